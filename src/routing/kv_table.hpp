#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/fleet.hpp"
#include "routing/admission_queue.hpp"
#include "routing/kv_loads.hpp"
#include "routing/kv_route.hpp"
#include "routing/overlap_list.hpp"
#include "routing/queue_stats.hpp"

namespace fairlead::routing {

struct RouteRequest;
class KvWaiter;

/// Picks by reason.
using PickCounts = std::array<std::uint64_t, static_cast<std::size_t>(PickReason::kCount)>;

/// Chooses targets of one worker set by cache and load, and books them. Thread-safe: a choice and
/// its booking are one step under one mutex.
///
/// At temperature 0 the cheapest target is exact without looking at all of them. A target that has
/// nothing of the prompt, neither cached nor active, costs what an empty request would cost there
/// plus the same for every such target; so the best of those is the least of a maintained order,
/// and only targets with something of the prompt are weighed one by one. When many have something,
/// what they have is looked at for single targets only: one that the order puts first is as cheap
/// as all that have no more of the prompt, so only those that have more are weighed, and of those
/// only such as their place in the order does not rule out. Where costs do not have that shape (a
/// request's own weights, preferred taints, decay, lmetric), where targets are left out, and for
/// explanations, all are weighed.
class KvTable : public std::enable_shared_from_this<KvTable> {
 public:
  /// An empty table; `seed` is that of lots and ties.
  KvTable(const KvRouterConfig& config, std::uint64_t seed);

  /// A target that was taken.
  struct Picked {
    std::shared_ptr<const fleet::Worker> worker;  ///< Its worker; null when the request waits.
    KvDecision decision;                          ///< Which and why.
    KvBooking booking;                            ///< What was booked.
  };
  /// Chooses; and books when `book`. With a `waiter`, and once there is a queue, the request waits
  /// while all targets it may go to are busy: nothing is picked then, and the waiter is woken when
  /// it should choose again. Errors: NoWorkers, Overloaded when some target would do but for the
  /// thresholds, QueueFull, InvalidRequest for a rank that the named worker, or no worker at all,
  /// has, or weights out of range.
  Result<Picked> choose(const std::shared_ptr<const fleet::WorkerSet>& set,
                        const RouteRequest& request, const KvRoute& route, bool book,
                        KvWaiter* waiter = nullptr);

  /// From now on requests for `model` may wait, by these classes; nothing happens when they may
  /// already.
  void open_queue(std::string_view model, std::shared_ptr<const PolicyProfile> profile,
                  std::size_t limit);
  /// A waiter leaves.
  void leave(KvWaiter& waiter);
  /// The set is gone: all that wait choose again, elsewhere.
  void dissolve();
  /// State of the queue.
  QueueStats queue_stats() const;

  /// The prompt of a booking is computed.
  void prefill_complete(KvBooking& booking);
  /// Books output of a booking.
  void grow(KvBooking& booking);
  /// Gives a booking back.
  void release(KvBooking& booking);

  /// True when outputs are counted.
  bool tracks_output() const { return config_.track_output_blocks && config_.track_active_blocks; }
  /// See KvLoads.
  void set_thresholds(const BusyThresholds& thresholds);
  /// See KvLoads.
  void report_used(std::uint64_t worker_id, std::uint32_t rank,
                   std::optional<std::uint64_t> blocks);
  /// Follows the set.
  void retain(const std::shared_ptr<const fleet::WorkerSet>& set);
  /// True when no request runs or waits.
  bool idle() const;
  /// Picks so far.
  PickCounts picks() const;
  /// Nodes of the trie of active prompts; 0 when no request runs.
  std::size_t active_nodes() const;
  /// Calls `each(target)` for every target in use.
  template <class Each>
  void visit(Each&& each) const {
    const std::lock_guard lock(mutex_);
    for (const KvLoads::Target& target : loads_.targets()) {
      if (target.worker_id != 0) {
        each(target);
      }
    }
  }

 private:
  // What is known of one target in one choice; valid when `stamp` is the choice's.
  struct Known {
    std::uint64_t stamp = 0;
    CachedBlocks cached = {};
    std::uint32_t confirmed = 0;
    std::uint32_t prefix = 0;
    bool live = false;
  };
  struct Weighed {
    TargetIndex target;
    double cost;
  };
  struct Best;

  struct Room {
    std::size_t eligible = 0;
    std::size_t busy = 0;
  };

  void visit_eligible(const RouteRequest& request, const KvRoute& route, const auto& each);
  Room room_for(const PolicyClass& policy_class, const RouteRequest& request, const KvRoute& route);
  QueueDemand demand_of(const KvWaiter& waiter, const RouteRequest& request, const KvRoute& route,
                        const PromptShape& shape);
  bool may_go(const KvWaiter& waiter);
  Result<bool> has_to_wait(const PromptShape& shape, const RouteRequest& request,
                           const KvRoute& route, KvWaiter& waiter);
  void leave_other(KvWaiter& waiter) const;
  void served(KvWaiter& waiter, bool booked);
  void let_go();
  Result<Picked> pick(const KvRouterConfig& config, const PromptShape& shape,
                      const RouteRequest& request, const KvRoute& route, bool book, bool skims);
  void follow(const std::shared_ptr<const fleet::WorkerSet>& set);
  Known& touch(TargetIndex target);
  std::optional<TargetIndex> place_of(const KvRoute& route, kv::TargetId id) const;
  void begin(const KvRouterConfig& config, const KvRoute& route);
  void learn(const KvRoute& route);
  std::optional<kv::TargetId> id_of(const KvRoute& route, TargetIndex target);
  void learn_of(const KvRoute& route, TargetIndex target);
  TargetLoad load_of(TargetIndex index) const;
  CostTerms weigh(const KvRouterConfig& config, const PromptShape& shape, TargetIndex index) const;
  void explain(const KvRouterConfig& config, const PromptShape& shape, const RouteRequest& request,
               const KvRoute& route);
  bool ordered(const KvRouterConfig& config, const RouteRequest& request,
               const KvRoute& route) const;
  bool crowded(const KvRoute& route) const;
  bool admits(const RouteRequest& request, const KvRoute& route, const std::vector<bool>* adapter,
              const KvLoads::Target& target) const;
  Result<TargetIndex> pinned(const KvRouterConfig& config, const PromptShape& shape,
                             const RouteRequest& request, const KvRoute& route);
  std::optional<TargetIndex> preferred(const RouteRequest& request, const KvRoute& route);
  std::optional<TargetIndex> by_order(const KvRouterConfig& config, const PromptShape& shape);
  std::optional<TargetIndex> by_reference(const KvRouterConfig& config, const PromptShape& shape,
                                          const KvRoute& route);
  TargetIndex draw_least();
  bool has_rank(std::uint32_t rank) const;
  Result<TargetIndex> by_scan(const KvRouterConfig& config, const PromptShape& shape,
                              const RouteRequest& request, const KvRoute& route);
  TargetIndex cheapest();
  TargetIndex drawn(double temperature, double least, double most);
  double taints(const KvRoute& route, const KvLoads::Target& target) const;

  const KvRouterConfig config_;
  mutable std::mutex mutex_;
  KvLoads loads_;                                 // what follows is guarded by mutex_
  std::shared_ptr<const fleet::WorkerSet> seen_;  // whose workers the loads list
  std::unique_ptr<AdmissionQueue> queue_;         // null: nobody waits
  std::string queue_model_;
  std::vector<WaitTimes> waited_;      // by policy class
  std::vector<std::uint64_t> queued_;  // likewise: requests that had to wait
  PickCounts picks_{};
  std::mt19937_64 random_;
  // Scratch of one choice.
  std::uint64_t stamp_ = 0;
  bool degraded_ = false;
  std::int64_t min_prefill_ = 0;
  std::vector<Known> known_;  // by target
  std::size_t touched_count_ = 0;
  std::vector<TargetIndex> touched_;  // those with something of the prompt lead it
  std::vector<Weighed> weighed_;
  ActiveSequences::Path path_;
  OverlapList overlaps_;
  OverlapList predicted_;
  std::vector<kv::TargetId> ids_;  // by target, where it was found last; to be checked
};

}  // namespace fairlead::routing
