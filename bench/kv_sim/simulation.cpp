#include "kv_sim/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "fleet/fleet.hpp"

namespace fairlead::kv_sim {
namespace {

constexpr Nanos kNever = Nanos::max();
constexpr std::size_t kMostPredicted = std::size_t{64} << 20U;

std::shared_ptr<fleet::WorkerSet> make_set(std::uint32_t workers, const EngineOptions& engine) {
  auto set = std::make_shared<fleet::WorkerSet>();
  set->id = 1;
  set->slot_count = workers;
  for (std::uint32_t slot = 0; slot < workers; ++slot) {
    auto worker = std::make_shared<fleet::Worker>();
    worker->id = slot + 1;
    worker->slot = slot;
    worker->healthy = true;
    worker->info.kv_block_size = engine.block_size;
    worker->info.total_kv_blocks = engine.blocks;
    worker->info.max_batched_tokens = engine.step_tokens;
    set->workers.push_back(std::move(worker));
  }
  return set;
}

}  // namespace

bool idle(const routing::Router& router) {
  std::string text;
  observe::TextWriter writer(text, "sim");
  router.collect(writer);
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const bool load = line.find("worker_inflight_requests{") != line.npos ||
                      line.find("worker_active_") != line.npos;
    if (load && !line.starts_with('#') && !line.ends_with(" 0")) {
      return false;
    }
  }
  return !text.empty();
}

struct Simulation::Running {
  Job job;
  routing::Reservation reservation;
  Outcome outcome;
};

Simulation::Simulation(SimulationOptions options, const Workload& workload)
    : options_(std::move(options)),
      workload_(workload),
      kv_(options_.router.mode == routing::RouterMode::Kv),
      set_(make_set(options_.workers, options_.engine)),
      router_(options_.router),
      index_({}) {
  if (options_.predicted_ttl > Nanos(0)) {
    predictions_.emplace(kv::ApproximateIndexOptions{
        .ttl = std::chrono::duration_cast<std::chrono::milliseconds>(options_.predicted_ttl),
        .max_blocks = kMostPredicted});
  }
  engines_.reserve(options_.workers);
  for (std::uint32_t worker = 0; worker < options_.workers; ++worker) {
    engines_.emplace_back(options_.engine);
  }
}

Simulation::~Simulation() = default;

Result<Results> Simulation::run() {
  for (std::uint32_t worker = 0; kv_ && worker < options_.workers; ++worker) {
    const auto target = index_.add_target();
    if (!target) {
      return std::unexpected(target.error());
    }
    writers_.emplace_back(index_, *target);
    if (places_.size() <= *target) {
      places_.resize(*target + 1);
    }
    places_[*target] = {.worker_id = set_->workers[worker]->id, .slot = worker};
  }
  std::size_t next = 0;
  while (true) {
    const Nanos arrival = next < workload_.size() ? workload_.at(next) : kNever;
    const Nanos step = step_ends_.empty() ? kNever : step_ends_.top().first;
    const Nanos event = events_.empty() ? kNever : events_.front().due;
    const Nanos then = std::min({arrival, step, event});
    if (then > now_ && !woken_.empty()) {  // all that arrive at one time are in the first step
      for (const std::uint32_t worker : woken_) {
        start(worker);
      }
      woken_.clear();
      continue;
    }
    if (then == kNever) {
      break;
    }
    now_ = then;
    if (event == then) {
      apply(events_.front());
      events_.pop_front();
    } else if (step == then) {
      const std::uint32_t worker = step_ends_.top().second;
      step_ends_.pop();
      end_step(worker);
    } else if (const auto arrived = arrive(next++); !arrived) {
      return std::unexpected(arrived.error());
    }
  }
  check();
  return std::move(results_);
}

Result<> Simulation::arrive(std::size_t request) {
  const Record& record = workload_.record(request);
  if (!Engine::fits(options_.engine, record.input_tokens, record.output_tokens)) {
    ++results_.rejected;
    return {};
  }
  auto running = std::make_unique<Running>();
  Job& job = running->job;
  job.request = request;
  job.prompt_tokens = record.input_tokens;
  job.output_tokens = record.output_tokens;
  workload_.prompt(request, options_.engine.block_size, job.locals, job.hashes);
  const auto before = std::chrono::steady_clock::now();
  auto chosen = route(job);
  route_time_ += std::chrono::steady_clock::now() - before;
  if (!chosen) {
    return std::unexpected(chosen.error());
  }
  running->reservation = std::move(*chosen);
  const auto worker = static_cast<std::uint32_t>(running->reservation.worker().slot);
  const routing::KvDecision* decision = running->reservation.decision();
  ++results_.picks[decision ? std::string(routing::reason_name(decision->reason)) : "mode"];
  running->outcome = {.worker = worker,
                      .prompt_tokens = job.prompt_tokens,
                      .output_tokens = job.output_tokens,
                      .predicted_tokens = decision ? decision->cached_tokens : 0,
                      .arrived = now_};
  engines_[worker].add(job);
  if (!engines_[worker].in_step()) {
    woken_.push_back(worker);
  }
  if (free_places_.empty()) {
    running->job.place = running_.size();
    running_.emplace_back();
  } else {
    running->job.place = free_places_.back();
    free_places_.pop_back();
  }
  const std::size_t place = running->job.place;
  running_[place] = std::move(running);
  return {};
}

// As the frontend does it: look up, choose and book, predict.
Result<routing::Reservation> Simulation::route(const Job& job) {
  if (!kv_) {
    return router_.choose(set_, {}, {});
  }
  index_.find(job.hashes, overlaps_);
  predicted_.clear();
  const kv::ApproximateIndex::TimePoint now(now_);
  if (predictions_) {
    predictions_->find(job.hashes, now, predicted_);
  }
  auto chosen = router_.choose(set_, {},
                               {.prompt = job.hashes,
                                .prompt_tokens = job.prompt_tokens,
                                .block_size = options_.engine.block_size,
                                .overlaps = overlaps_,
                                .predicted = predicted_,
                                .places = places_});
  if (chosen && predictions_) {
    predictions_->insert(writers_[chosen->worker().slot].target(), job.hashes, now);
  }
  return chosen;
}

void Simulation::start(std::uint32_t worker) {
  if (engines_[worker].in_step()) {
    return;
  }
  if (const auto duration = engines_[worker].begin_step()) {
    step_ends_.emplace(now_ + *duration, worker);
  }
}

void Simulation::end_step(std::uint32_t worker) {
  output_.advanced.clear();
  output_.events.clear();
  engines_[worker].finish_step(output_);
  for (Job* job : output_.advanced) {
    Running& running = *running_[job->place];
    if (job->generated == 1) {
      running.outcome.first_token = now_;
      running.outcome.cached_tokens = *job->cached;
      running.reservation.prefill_complete();
    }
    running.reservation.add_output_tokens(1);
    if (job->generated >= job->output_tokens) {
      running.outcome.ended = now_;
      results_.outcomes.push_back(running.outcome);
      const std::size_t place = job->place;
      free_places_.push_back(place);
      running_[place].reset();
    }
  }
  if (kv_) {
    for (CacheEvent& event : output_.events) {
      events_.push_back({now_ + options_.event_delay, worker, std::move(event)});
    }
  }
  start(worker);
}

void Simulation::apply(const PendingEvent& pending) {
  kv::IndexWriter& writer = writers_[pending.worker];
  if (pending.event.stored) {
    writer.stored(kv::Tier::Device, pending.event.parent, pending.event.blocks);
  } else {
    writer.removed(kv::Tier::Device, pending.event.removed);
  }
}

// What must hold when nothing runs any more.
void Simulation::check() {
  const std::size_t routed = results_.outcomes.size();
  results_.route_us = routed == 0 ? 0
                                  : std::chrono::duration<double, std::micro>(route_time_).count() /
                                        static_cast<double>(routed);
  results_.drained = idle(router_) && routed + results_.rejected == workload_.size();
  results_.exact = true;
  for (const kv::IndexWriter& writer : writers_) {
    const std::uint32_t worker = places_[writer.target()].slot;
    results_.exact &= index_.blocks(writer.target()) == engines_[worker].cache().published();
  }
  results_.index_unknown_parents = index_.stats().counts.unknown_parents;
  for (const Engine& engine : engines_) {
    results_.workers.push_back(engine.totals());
  }
}

}  // namespace fairlead::kv_sim
