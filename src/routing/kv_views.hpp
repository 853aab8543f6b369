#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/fleet.hpp"
#include "kv/checkpoint.hpp"
#include "kv/dump.hpp"
#include "kv/event_feed.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_set_view.hpp"
#include "routing/kv_view_options.hpp"

namespace fairlead::routing {

/// Keeps what is known of the caches of every worker set: follows the KV events of its workers into
/// an index per set, falls back to what was routed where there are none or none to be trusted, and
/// publishes the result as immutable views.
///
/// A target lives as long as its worker is in the set, well or not: an engine that restarts keeps
/// its id, and its events tell that it begins anew. `update` and `tick` belong to one thread, which
/// must not be one that applies events; `collect` may be called from any.
class KvViews {
 public:
  /// Receives the views whenever one of them has changed; called inside `update` and `tick`.
  using OnChange = std::function<void(std::shared_ptr<const KvViewMap>)>;
  /// Of the caller's clock.
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Nothing is followed before the first `update`.
  KvViews(const KvViewOptions& options, OnChange on_change);
  ~KvViews();
  KvViews(const KvViews&) = delete;
  KvViews& operator=(const KvViews&) = delete;

  /// Follows a snapshot: workers that joined get targets, those that left lose them.
  void update(std::shared_ptr<const fleet::Fleet> fleet, TimePoint now);
  /// Looks what became of the sources; to be called several times a second.
  void tick(TimePoint now);
  /// Gives views of a peer, with checkpoints, to begin with: a target that is followed within the
  /// next two minutes and is among them goes on from there, once its engine has confirmed it.
  void offer(std::vector<kv::DumpedTarget> views, TimePoint now);
  /// False while an engine is still being asked about a peer's view of it.
  bool settled() const;
  /// Writes the gauges and counters.
  void collect(observe::TextWriter& writer) const;

 private:
  struct Target;
  struct Set;
  struct Totals;

  static void learn_block_size(Set& set, std::uint64_t id);
  std::uint32_t told_block_size(const fleet::WorkerSet& set) const;
  kv::HashParams params_of(const fleet::WorkerSet& set, const Set* known) const;
  bool follow_set(const fleet::WorkerSet& set, TimePoint now);
  bool drop_targets(Set& set, const fleet::WorkerSet* workers);
  bool follow_worker(Set& set, const fleet::Worker& worker, TimePoint now);
  void follow_source(Set& set, Target& target, const fleet::Worker& worker, TimePoint now);
  void drop_source(Set& set, Target& target);
  std::optional<kv::Checkpoint> take_over(Set& set, Target& target);
  TargetState state_of(Set& set, Target& target, TimePoint now);
  bool refresh(Set& set, TimePoint now);
  void publish();

  const KvViewOptions options_;
  OnChange on_change_;
  std::unique_ptr<kv::EventFeed> feed_;  // from the first source on
  std::shared_ptr<const fleet::Fleet> fleet_;
  TimePoint retry_at_ = TimePoint::max();  // sources that could not be followed
  std::map<std::pair<std::uint64_t, std::uint32_t>, kv::DumpedTarget> offered_;  // by worker, rank
  TimePoint offered_until_;
  std::set<std::uint64_t> blockless_;  // sets of unknown block size that were warned of
  mutable std::mutex mutex_;           // of what follows, against `collect`
  std::map<std::uint64_t, std::unique_ptr<Set>> sets_;
  std::unique_ptr<Totals> former_;  // of sources that are gone
};

}  // namespace fairlead::routing
