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

namespace fairlead::routing {

/// How a worker is chosen.
enum class RouterMode : std::uint8_t {
  RoundRobin,   ///< In turn.
  Random,       ///< Uniformly.
  PowerOfTwo,   ///< The less loaded of two random workers.
  LeastLoaded,  ///< The one with the fewest requests in flight; ties in turn.
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
};

/// Distinguishes what a worker has cached for an adapter from what it has for the base model or
/// another adapter: the same tokens give other KV blocks. Mixed into every key that policies derive
/// from a prompt; 0 for the base model.
std::uint64_t adapter_key(std::string_view adapter);

/// Requests in flight per worker of one WorkerSet, packed by the workers' slots.
class LoadTable;

/// What a choice booked: one request in flight at one worker. Gives it back when destroyed.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  /// The chosen worker; stays valid while the reservation lives.
  const fleet::Worker& worker() const { return *worker_; }
  /// True when something is booked.
  explicit operator bool() const { return worker_ != nullptr; }
  /// Gives the booking back early.
  void release();

 private:
  friend class Router;
  Reservation(std::shared_ptr<LoadTable> table, std::shared_ptr<const fleet::Worker> worker);

  std::shared_ptr<LoadTable> table_;
  std::shared_ptr<const fleet::Worker> worker_;
};

/// Chooses workers. Thread-safe: choosing and booking are one step under one short mutex per
/// WorkerSet. No I/O.
class Router {
 public:
  /// `seed` feeds the random modes.
  Router(RouterMode mode, std::uint64_t seed);
  ~Router();

  /// Chooses among the healthy workers of the set and books the request there. Errors: NoWorkers;
  /// in Direct mode InvalidRequest when no worker is named; NoWorkers when the named one is not
  /// usable.
  Result<Reservation> choose(const fleet::WorkerSet& set, const RouteRequest& request);

  /// Forgets the loads of worker sets and workers that the fleet no longer has; what still runs
  /// there is forgotten when it ends.
  void retain(const fleet::Fleet& fleet);
  /// Requests in flight at a worker; 0 for unknown ones.
  std::uint32_t in_flight(std::uint64_t worker_id) const;
  /// Writes the per-worker gauges.
  void collect(observe::TextWriter& writer) const;
  /// The mode.
  RouterMode mode() const { return mode_; }

 private:
  std::shared_ptr<LoadTable> table_of(const fleet::WorkerSet& set);

  RouterMode mode_;
  mutable std::mutex mutex_;
  std::mt19937_64 seeds_;                                       // guarded by mutex_
  std::map<std::uint64_t, std::shared_ptr<LoadTable>> tables_;  // guarded by mutex_
};

}  // namespace fairlead::routing
