#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "fleet/fleet.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_table.hpp"
#include "routing/kv_waiter.hpp"
#include "routing/policy_classes.hpp"
#include "routing/queue_stats.hpp"

namespace fairlead::routing {

/// How a worker is chosen.
enum class RouterMode : std::uint8_t {
  RoundRobin,   ///< In turn.
  Random,       ///< Uniformly.
  PowerOfTwo,   ///< The less loaded of two random workers.
  LeastLoaded,  ///< The one with the fewest requests in flight; ties in turn.
  Kv,           ///< The cheapest by what it has cached and what it is busy with.
  Direct,       ///< Only the worker the request names.
};

/// Parses a mode's command-line name.
std::optional<RouterMode> parse_router_mode(std::string_view text);

/// What the choice may depend on.
struct RouteRequest {
  std::optional<std::uint64_t> worker_id;   ///< Named by the client; honoured in every mode.
  std::span<const std::uint64_t> excluded;  ///< Workers that failed this request already.
  std::string_view adapter;                 ///< LoRA adapter as the engines know it: only workers
                                            ///< that have it; empty = the base model.
  std::span<const std::string> required_taints = {};  ///< Workers lacking one are left out.
  std::optional<std::uint32_t> rank = {};  ///< Data-parallel rank named by the client. In kv mode
                                           ///< the router chooses one otherwise.
};

/// What a request demands of workers, as the end of a sentence; empty when it demands nothing.
std::string demands_of(const RouteRequest& request);

/// Requests in flight per worker of one WorkerSet, packed by the workers' slots.
class LoadTable;

/// What a choice booked: one request in flight at one worker and, in kv mode, its blocks and
/// prefill tokens at one rank. Gives everything back when destroyed.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  /// The chosen worker; stays valid while the reservation lives.
  const fleet::Worker& worker() const { return *worker_; }
  /// The same, to be kept.
  const std::shared_ptr<const fleet::Worker>& shared_worker() const { return worker_; }
  /// True when something is booked.
  explicit operator bool() const { return worker_ != nullptr; }
  /// The rank chosen in kv mode, else the one the request named, if any.
  std::optional<std::uint32_t> rank() const { return rank_; }
  /// How it came about in kv mode; null in the others.
  const KvDecision* decision() const { return kv_ ? &kv_->decision : nullptr; }
  /// The prompt is computed: to be called at the first item that carries tokens. Nothing happens
  /// when called again.
  void prefill_complete();
  /// So many tokens were generated. Cheap: only a new block takes the lock, and only when outputs
  /// are tracked.
  void add_output_tokens(std::uint32_t count);
  /// Gives the booking back early.
  void release();

 private:
  friend class Router;
  struct KvPart {
    std::shared_ptr<KvTable> table;
    KvBooking booking;
    KvDecision decision;
  };
  Reservation(std::shared_ptr<LoadTable> table, std::shared_ptr<const fleet::Worker> worker,
              std::optional<std::uint32_t> rank);
  Reservation(std::unique_ptr<KvPart> part, std::shared_ptr<const fleet::Worker> worker);

  std::shared_ptr<LoadTable> table_;
  std::unique_ptr<KvPart> kv_;
  std::shared_ptr<const fleet::Worker> worker_;
  std::optional<std::uint32_t> rank_;
};

/// What a router is made with.
struct RouterOptions {
  RouterMode mode = RouterMode::RoundRobin;  ///< How workers are chosen.
  std::uint64_t seed = 0;                    ///< Of lots and ties.
  KvRouterConfig kv = {};                    ///< Of kv mode.
  BusyThresholds thresholds = {};            ///< Of kv mode, for models without their own.
  /// Of kv mode: which requests wait while all workers are busy, and in which order; null: none.
  std::shared_ptr<const PolicyConfig> policies = nullptr;
  std::size_t queue_limit = 8192;  ///< Requests that may wait for one worker set.
};

/// Chooses workers. Thread-safe: choosing and booking are one step under one short mutex per
/// WorkerSet. No I/O.
class Router {
 public:
  /// `seed` feeds the random modes.
  Router(RouterMode mode, std::uint64_t seed) : Router({.mode = mode, .seed = seed}) {}
  /// `options.kv` must be valid.
  explicit Router(const RouterOptions& options);
  ~Router();

  /// Chooses among the healthy workers of the set and books the request there. Errors: NoWorkers;
  /// in Direct mode InvalidRequest when no worker is named; NoWorkers when the named one is not
  /// usable. In kv mode nothing but requests in flight is counted.
  Result<Reservation> choose(const fleet::WorkerSet& set, const RouteRequest& request);
  /// The same in any mode; `route` matters in kv mode only. Further errors there: Overloaded when
  /// all workers that would do, or the named one, are beyond the thresholds; InvalidRequest for a
  /// rank that the named worker, or no worker at all, has and for weights out of range. The set is
  /// kept until the next choice in it. With a `waiter` the request may have to wait: the
  /// reservation is empty then, and the waiter is woken when it should choose again, with the same
  /// waiter; QueueFull when too many wait.
  Result<Reservation> choose(const std::shared_ptr<const fleet::WorkerSet>& set,
                             const RouteRequest& request, const KvRoute& route,
                             KvWaiter* waiter = nullptr);
  /// True when requests for this base model may have to wait.
  bool queues(std::string_view model) const;
  /// What `choose` would decide now in kv mode; nothing is booked or counted.
  Result<KvDecision> preview(const std::shared_ptr<const fleet::WorkerSet>& set,
                             const RouteRequest& request, const KvRoute& route);

  /// From when on workers of a model (of every model that shares its worker sets) are overloaded,
  /// from now on and for sets it gets later. Kv mode only.
  void set_thresholds(const fleet::Model& model, const BusyThresholds& thresholds);
  /// Changes some of a model's thresholds and returns them all as they are then; one step.
  BusyThresholds change_thresholds(const fleet::Model& model, const ThresholdChange& change);
  /// Those of a model.
  BusyThresholds thresholds(const fleet::Model& model) const;
  /// KV blocks in use at a rank as its engine reports them, or nothing any more; ignored for
  /// unknown ones.
  void report_used_blocks(std::uint64_t worker_id, std::uint32_t rank,
                          std::optional<std::uint64_t> blocks);
  /// True when some model's thresholds look at what is reported so.
  bool wants_used_blocks() const;

  /// To be told before anybody chooses by this fleet: its new worker sets have their models'
  /// thresholds then.
  void expect(const fleet::Fleet& fleet);
  /// Forgets the loads of worker sets and workers that the fleet no longer has; what still runs
  /// there is forgotten when it ends. Those who wait choose anew when the fleet has room for them,
  /// or no longer has their set. To be told when nobody chooses by former fleets any more: a choice
  /// there would bring what is gone back, and those who were woken for new workers would wait on.
  void retain(const fleet::Fleet& fleet);
  /// Requests in flight at a worker; 0 for unknown ones.
  std::uint32_t in_flight(std::uint64_t worker_id) const;
  /// Writes the per-worker gauges and the picks by reason.
  void collect(observe::TextWriter& writer) const;
  /// The mode.
  RouterMode mode() const { return options_.mode; }
  /// What it was made with.
  const RouterOptions& options() const { return options_; }

 private:
  // In kv mode sets have the one table, in the others the other.
  struct KvSet {
    std::shared_ptr<KvTable> table;
    std::string_view worker_type;  // label
  };
  std::shared_ptr<LoadTable> table_of(const fleet::WorkerSet& set);
  void put_thresholds(const fleet::Model& model, const BusyThresholds& thresholds);
  BusyThresholds thresholds_of(const fleet::Model& model) const;
  void learn_thresholds(const fleet::Fleet& fleet);
  std::shared_ptr<KvTable> kv_table_of(const fleet::WorkerSet& set);
  void retain_kv(const std::map<std::uint64_t, std::shared_ptr<const fleet::WorkerSet>>& sets);
  void collect_kv(observe::TextWriter& writer) const;

  RouterOptions options_;
  mutable std::mutex mutex_;  // of all below
  std::mt19937_64 seeds_;
  std::map<std::uint64_t, std::shared_ptr<LoadTable>> tables_;           // by set
  std::map<std::uint64_t, KvSet> kv_tables_;                             // by set
  std::map<std::uint64_t, BusyThresholds> set_thresholds_;               // by set
  std::map<std::string, BusyThresholds, std::less<>> model_thresholds_;  // by base model
  PickCounts former_picks_{};  // of tables that are gone, and of the other modes
  QueueReport former_queues_;  // of tables that are gone
};

}  // namespace fairlead::routing
