#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine/client.hpp"
#include "fleet/worker.hpp"
#include "kv/event_feed.hpp"
#include "kv/index_writer.hpp"
#include "routing/kv_views.hpp"

// What KvViews keeps per worker set and target; for its own files.

namespace fairlead::routing {

/// Ranks of one worker set that are told apart by what they have cached.
inline constexpr std::size_t kMostTargets = 4096;

/// One rank of one worker.
struct KvViews::Target {
  /// What was said about it last; each thing is said once.
  enum class Warned : std::uint8_t { Nothing, NoSource, Silent, BlockSize, Hashing };

  kv::TargetId id = 0;
  TargetPlace place;
  TargetState state = TargetState::kCount;  ///< As published.
  engine::KvEventSource source;             ///< Followed; no endpoint when none.
  std::string instance_id;                  ///< Of the engine.
  TimePoint since;                          ///< Its subscription's beginning.
  TimePoint retry_at;                       ///< Not subscribed again before.
  Warned warned = Warned::Nothing;
  bool taken_over = false;           ///< From a peer, when this subscription began.
  std::chrono::seconds distrust{0};  ///< How long its events do not count when they are wrong.
  std::optional<TimePoint> distrusted_until;
  std::unique_ptr<kv::IndexWriter> writer;         ///< Outlives the subscription.
  std::unique_ptr<kv::Subscription> subscription;  ///< Null when there is no source.
};

/// One worker set.
struct KvViews::Set {
  std::shared_ptr<KvCaches> caches;  ///< Outlives the targets' writers.
  bool bigram = false;               ///< Most of its engines' keys are pairs.
  TimePoint cut_again_at;            ///< Not made anew for that before.
  std::uint32_t block_size = 0;      ///< As its engines' first events have it; 0 = not needed, or
                                     ///< not known yet.
  bool warned_full = false;
  bool warned_memory = false;
  std::vector<std::unique_ptr<Target>> targets;  ///< By worker and rank.
  std::shared_ptr<const KvSetView> view;         ///< As published.

  /// True while the events are followed only to learn the size of the blocks.
  bool learns() const { return caches->params.block_size == 0; }
  /// What most engines do whose kind of keys is known; as now when that is undecided.
  bool most_use_bigrams() const;
  /// A view of the targets as they are.
  std::shared_ptr<const KvSetView> make_view() const;
};

/// Counters of sources, in the order of the rows that are written.
struct KvViews::Totals {
  std::vector<std::uint64_t> values;
  /// Adds those of a target that has a subscription.
  void add(const Target& target);
};

/// Order of a set's targets.
inline constexpr auto kKeyOf = [](const auto& target) {
  return std::tuple(target->place.worker_id, target->place.rank);
};

}  // namespace fairlead::routing
