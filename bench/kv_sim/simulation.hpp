#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kv/approximate_index.hpp"
#include "kv/index.hpp"
#include "kv/index_writer.hpp"
#include "kv_sim/engine.hpp"
#include "kv_sim/trace.hpp"
#include "routing/router.hpp"

namespace fairlead::kv_sim {

/// What a run is made with.
struct SimulationOptions {
  std::uint32_t workers = 8;                         ///< Engines, one rank each.
  EngineOptions engine = {};                         ///< Each of them.
  routing::RouterOptions router = {};                ///< Mode, seed, weights.
  Nanos event_delay = std::chrono::milliseconds(5);  ///< From a step's end to the index.
  Nanos predicted_ttl = std::chrono::seconds(5);     ///< 0 = nothing is predicted.
};

/// What became of one request.
struct Outcome {
  std::uint32_t worker = 0;            ///< Which got it.
  std::uint32_t prompt_tokens = 0;     ///< Of its prompt.
  std::uint32_t output_tokens = 0;     ///< That it generated.
  std::uint32_t cached_tokens = 0;     ///< That the engine found when it began with it.
  std::uint32_t predicted_tokens = 0;  ///< That the router expected it to find.
  Nanos arrived{0};                    ///< And was given to its worker.
  Nanos first_token{0};                ///< When it was there.
  Nanos ended{0};                      ///< When the last one was.
};

/// What a run gave.
struct Results {
  std::vector<Outcome> outcomes;               ///< By end.
  std::vector<Engine::Totals> workers;         ///< What each did.
  std::map<std::string, std::uint64_t> picks;  ///< By reason.
  std::size_t rejected = 0;                    ///< Requests that no engine could hold.
  std::uint64_t index_unknown_parents = 0;     ///< Events that the index could not place.
  double route_us = 0;                         ///< Wall time of a choice: look-up, choice, booking.
  bool drained = false;                        ///< Every load counter of the router is zero.
  bool exact = false;                          ///< The index holds what the engines hold.
};

/// True when every load gauge of a router is zero.
bool idle(const routing::Router& router);

/// Replays a workload against the real router and the real index, with virtual engines. One thread,
/// no clock: the same options give the same results, `route_us` apart.
class Simulation {
 public:
  /// `workload` outlives it.
  Simulation(SimulationOptions options, const Workload& workload);
  ~Simulation();
  /// Runs to the last token. Once.
  Result<Results> run();

 private:
  struct Running;
  struct PendingEvent {
    Nanos due;
    std::uint32_t worker;
    CacheEvent event;
  };
  using StepEnd = std::pair<Nanos, std::uint32_t>;  // and whose

  Result<> arrive(std::size_t request);
  Result<routing::Reservation> route(const Job& job);
  void start(std::uint32_t worker);
  void end_step(std::uint32_t worker);
  void apply(const PendingEvent& pending);
  void check();

  SimulationOptions options_;
  const Workload& workload_;
  bool kv_;
  std::shared_ptr<fleet::WorkerSet> set_;
  routing::Router router_;
  kv::KvIndex index_;
  std::deque<kv::IndexWriter> writers_;  // by worker
  std::vector<routing::TargetPlace> places_;
  std::optional<kv::ApproximateIndex> predictions_;
  std::vector<Engine> engines_;
  std::vector<std::unique_ptr<Running>> running_;  // those in the engines
  std::vector<std::size_t> free_places_;
  std::priority_queue<StepEnd, std::vector<StepEnd>, std::greater<>> step_ends_;
  std::deque<PendingEvent> events_;  // by time: all have the same delay
  std::vector<std::uint32_t> woken_;
  Nanos now_{0};
  Nanos route_time_{0};
  std::vector<kv::Overlap> overlaps_;
  std::vector<kv::Overlap> predicted_;
  StepOutput output_;
  Results results_;
};

}  // namespace fairlead::kv_sim
