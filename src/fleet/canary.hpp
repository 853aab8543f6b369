#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "fleet/activity.hpp"
#include "fleet/canary_payload.hpp"
#include "fleet/card.hpp"
#include "net/reactor.hpp"
#include "net/task.hpp"
#include "observe/metrics.hpp"

namespace fairlead::fleet {

/// How one canary ended.
enum class CanaryResult : std::uint8_t {
  Success,    ///< The engine generated.
  Failure,    ///< It answered with an error.
  Timeout,    ///< It did not answer in time.
  Refused,    ///< It is alive but would not or could not take the request; says nothing about it.
  Cancelled,  ///< Given up, because the fleet ended or the worker had left meanwhile.
  kCount,     ///< Number of results.
};

/// Value of the label `result`.
std::string_view label(CanaryResult result);

/// Counts of all canaries of a fleet. Written by the control thread, read by any.
class CanaryCounters {
 public:
  /// Counts one.
  void add(CanaryResult result) { cells_[static_cast<std::size_t>(result)].add(1); }
  /// How many ended so.
  std::int64_t get(CanaryResult result) const {
    return cells_[static_cast<std::size_t>(result)].get();
  }
  /// Appends `canary_requests_total`.
  void collect(observe::TextWriter& writer) const;

 private:
  std::array<observe::Cell, static_cast<std::size_t>(CanaryResult::kCount)> cells_;
};

/// When and with what workers are tried by generating. Times as in discovery spec §8.3.
struct CanaryOptions {
  bool enabled = false;                                         ///< Otherwise there is none at all.
  net::Duration wait = std::chrono::seconds(10);                ///< An idle worker is tried after
                                                                ///< so long without output.
  net::Duration timeout = std::chrono::seconds(3);              ///< For one canary.
  net::Duration busy_stall = std::chrono::seconds(60);          ///< A busy worker is tried after so
                                                                ///< long without output.
  CanaryPayload payload;                                        ///< Of models without their own.
  std::map<std::string, CanaryPayload, std::less<>> per_model;  ///< By public model name.
  /// The BOS token of a model, for payloads that name no prompt; may be empty.
  std::function<engine::TokenId(std::string_view model)> bos;
  /// Where they are counted; shared with whoever reports it.
  std::shared_ptr<CanaryCounters> counters = std::make_shared<CanaryCounters>();
};

/// What the engine of a canary does, which decides what it can be asked for.
struct CanaryPart {
  Role role = Role::Aggregated;  ///< In its fleet.
  /// It says so itself, as SGLang does, and then takes no request without a peer to meet. Instead
  /// of one the canary names the address by which such engines try themselves: they skip the
  /// hand-over. It is never sent for anything else, since what is generated means nothing.
  bool meets_peer = false;
};

/// The canaries of one worker. Belongs to the control reactor; `options` and `activity` outlive
/// it.
class Canary {
 public:
  /// `name` distinguishes the worker in request ids.
  Canary(const CanaryOptions& options, const Activity& activity, std::string name);

  /// Generates once on the engine, its part of a generation. Success also when the engine refused
  /// without being at fault, as decode engines do that take nothing without a prefill. An
  /// error says why the worker must not be given requests. Destroying the task aborts the
  /// generation.
  net::Task<Result<>> run(engine::EngineClient& client, std::string_view model,
                          CanaryPart part = {});

  /// When a worker in routing must be tried next, as things stand: later traffic moves it.
  net::TimePoint due() const;
  /// How long to sleep before asking again whether it is due.
  net::Duration pause(net::TimePoint now) const;
  /// How long a worker stays out of routing after its last canary failed before it is tried again:
  /// longer each time, at most the wait time.
  net::Duration retry_delay() const;

 private:
  engine::GenerateRequest request(std::string_view model, CanaryPart part);
  Result<> judge(CanaryResult result, std::string message);

  const CanaryOptions& options_;
  const Activity& activity_;
  std::string name_;
  std::uint64_t sequence_ = 0;
  net::TimePoint last_success_{};
  int failures_ = 0;  // in a row
};

}  // namespace fairlead::fleet
