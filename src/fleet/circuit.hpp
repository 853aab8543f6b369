#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "fleet/activity.hpp"
#include "fleet/endpoint.hpp"
#include "net/reactor.hpp"
#include "observe/metrics.hpp"

namespace fairlead::fleet {

/// How a request ended, as far as that says something about its worker.
enum class Outcome : std::uint8_t {
  Served,  ///< To its end.
  Failed,  ///< By the engine's fault; the engine is still there.
  Down,    ///< The engine seems to be gone (ErrorTraits::worker_down).
};

/// What a failed request says about its worker. Nothing: the request was at fault, or its client,
/// or the worker has enough to do.
std::optional<Outcome> outcome_of(ErrorCode code);

/// Whether a worker that answers gets requests, by how its last ones ended.
enum class Circuit : std::uint8_t {
  Closed,    ///< It gets them.
  HalfOpen,  ///< It gets one at a time, as a trial; or a canary, where there are canaries.
  Open,      ///< It gets none.
};

/// `closed`, `half_open` or `open`.
std::string_view circuit_name(Circuit circuit);

/// The circuits of all workers, for metrics. Written by the control thread, read by any.
class CircuitBoard {
 public:
  /// The worker's circuit is now this; `opened` counts an opening.
  void set(WorkerId worker, Circuit circuit, bool opened);
  /// The worker is no longer there.
  void forget(WorkerId worker);
  /// Appends `worker_circuit_state` and `worker_circuit_openings_total`.
  void collect(observe::TextWriter& writer) const;

 private:
  struct Row {
    Circuit circuit = Circuit::Closed;
    std::uint64_t openings = 0;
  };
  mutable std::mutex mutex_;
  std::map<WorkerId, Row> rows_;
};

/// When circuits open and for how long.
struct CircuitOptions {
  std::uint32_t failures = 5;  ///< So many failed requests in a row open it; 0: none ever does.
  net::Duration open = std::chrono::seconds(10);           ///< The first time.
  net::Duration longest_open = std::chrono::seconds(120);  ///< It doubles up to this.
  /// Where they are shown; shared with whoever reports it.
  std::shared_ptr<CircuitBoard> board = std::make_shared<CircuitBoard>();
};

/// The circuit of one worker. Belongs to the control reactor; `options` and `activity` outlive it.
/// Requests that end well are not reported to it one by one: `activity` remembers that there was
/// one since the last failure.
class CircuitBreaker {
 public:
  /// Closed.
  CircuitBreaker(const CircuitOptions& options, Activity& activity, WorkerId worker);
  ~CircuitBreaker();
  CircuitBreaker(const CircuitBreaker&) = delete;
  CircuitBreaker& operator=(const CircuitBreaker&) = delete;

  /// Whether and how the worker gets requests.
  Circuit state() const { return state_; }
  /// When an open circuit becomes half-open.
  net::TimePoint open_until() const { return open_until_; }
  /// How long it was opened for the last time.
  net::Duration pause() const { return pause_; }
  /// Failures in a row.
  std::uint32_t failures() const { return failures_; }

  /// A request, or the trial of a half-open circuit, failed. True when that opened the circuit:
  /// after too many in a row, unless it must not open because nobody else could take the requests,
  /// or at once when it was half-open.
  bool fail(net::TimePoint now, bool may_open);
  /// A trial ended well. True when that closed the circuit.
  bool succeed(net::TimePoint now);
  /// The time is over: from now on there are trials.
  void half_open();
  /// Another engine process answers, of which nothing is known. True when that closed the circuit.
  bool reset();

 private:
  void show(bool opened) const;

  const CircuitOptions& options_;
  Activity& activity_;
  WorkerId worker_;
  Circuit state_ = Circuit::Closed;
  std::uint32_t failures_ = 0;
  net::Duration pause_{0};
  net::TimePoint open_until_{};
  net::TimePoint closed_at_{};
};

}  // namespace fairlead::fleet
