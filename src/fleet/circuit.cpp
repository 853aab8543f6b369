#include "fleet/circuit.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::fleet {

std::optional<Outcome> outcome_of(ErrorCode code) {
  if (traits(code).worker_down) {
    return Outcome::Down;
  }
  const bool failed = code == ErrorCode::EngineProtocol || code == ErrorCode::EngineUnknown;
  return failed ? std::optional(Outcome::Failed) : std::nullopt;
}

std::string_view circuit_name(Circuit circuit) {
  switch (circuit) {
    case Circuit::Closed: return "closed";
    case Circuit::HalfOpen: return "half_open";
    case Circuit::Open: return "open";
  }
  return {};
}

void CircuitBoard::set(WorkerId worker, Circuit circuit, bool opened) {
  const std::lock_guard lock(mutex_);
  Row& row = rows_[worker];
  row.circuit = circuit;
  row.openings += opened ? 1 : 0;
}

void CircuitBoard::forget(WorkerId worker) {
  const std::lock_guard lock(mutex_);
  rows_.erase(worker);
}

void CircuitBoard::collect(observe::TextWriter& writer) const {
  const std::lock_guard lock(mutex_);
  writer.family("worker_circuit_state", "gauge",
                "Whether a worker gets requests, by how its last ones ended: 0 closed (it does), 1 "
                "half open (trials only), 2 open (none).");
  for (const auto& [worker, row] : rows_) {
    writer.sample(fmt::format("worker_id=\"{}\"", worker), static_cast<double>(row.circuit));
  }
  writer.family("worker_circuit_openings_total", "counter",
                "How often a worker's circuit opened because its requests failed.");
  for (const auto& [worker, row] : rows_) {
    writer.sample(fmt::format("worker_id=\"{}\"", worker), static_cast<double>(row.openings));
  }
}

CircuitBreaker::CircuitBreaker(const CircuitOptions& options, Activity& activity, WorkerId worker)
    : options_(options), activity_(activity), worker_(worker) {
  show(false);
}

CircuitBreaker::~CircuitBreaker() { options_.board->forget(worker_); }

void CircuitBreaker::show(bool opened) const { options_.board->set(worker_, state_, opened); }

bool CircuitBreaker::fail(net::TimePoint now, bool may_open) {
  if (options_.failures == 0 || state_ == Circuit::Open) {
    return false;
  }
  failures_ = activity_.note_failure() ? failures_ + 1 : 1;
  const bool opens = state_ == Circuit::HalfOpen || (failures_ >= options_.failures && may_open);
  if (!opens) {
    return false;
  }
  // Who fails again soon after a trial went well is no better than one whose trial failed.
  const bool again =
      state_ == Circuit::HalfOpen || (pause_.count() > 0 && now - closed_at_ < pause_);
  pause_ = std::min(again ? pause_ * 2 : options_.open, options_.longest_open);
  state_ = Circuit::Open;
  open_until_ = now + pause_;
  show(true);
  return true;
}

bool CircuitBreaker::succeed(net::TimePoint now) {
  if (state_ != Circuit::HalfOpen) {
    return false;
  }
  state_ = Circuit::Closed;
  closed_at_ = now;
  failures_ = 0;
  show(false);
  return true;
}

void CircuitBreaker::half_open() {
  state_ = Circuit::HalfOpen;
  show(false);
}

bool CircuitBreaker::reset() {
  const bool was_closed = state_ == Circuit::Closed;
  state_ = Circuit::Closed;
  failures_ = 0;
  pause_ = {};
  show(false);
  return !was_closed;
}

}  // namespace fairlead::fleet
