#include "fleet/canary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "net/event.hpp"

namespace fairlead::fleet {
namespace {

/// The first delay after a failed canary.
constexpr net::Duration kFirstRetry = std::chrono::seconds(1);
/// Shortest sleep, so that no loop spins.
constexpr net::Duration kShortestPause = net::TimerWheel::kTick;

/// By this host SGLang's engines try themselves: no hand-over takes place.
constexpr std::string_view kNoPeer = "2.2.2.2";
constexpr std::uint16_t kNoPort = 1;

/// Takes the messages of one canary.
class Listener final : public engine::TokenSink {
 public:
  void on_tokens(const engine::TokenChunk& chunk) override {
    generated = generated || !chunk.ids.empty();
    if (!chunk.finish) {
      return;
    }
    if (chunk.finish->reason == engine::FinishReason::Aborted) {
      error = Error{ErrorCode::EngineCancelled, "the engine aborted it", {}};
    } else {
      generated = true;
    }
    ended.set();
  }
  void on_error(Error failure) override {
    error = std::move(failure);
    ended.set();
  }

  bool generated = false;
  std::optional<Error> error;
  net::Event ended;
};

/// Makes the request the part of a generation that the engine does.
void take_part(engine::GenerateRequest& request, CanaryPart part) {
  if (part.role == Role::Aggregated || (part.role == Role::Decode && !part.meets_peer)) {
    return;
  }
  request.leg = part.role == Role::Prefill ? engine::Leg::Prefill : engine::Leg::Decode;
  if (part.meets_peer) {
    const std::uint64_t room = std::hash<std::string>()(request.request_id) >> 1U;
    request.bootstrap = {
        .host = std::string(kNoPeer), .port = kNoPort, .room = static_cast<std::int64_t>(room)};
    return;
  }
  json::Object params;
  params.set("do_remote_decode", json::Value(true));
  params.set("do_remote_prefill", json::Value(false));
  request.kv_transfer_params = std::move(params);
}

/// Counts a canary as cancelled unless something else became of it.
class Counted {
 public:
  explicit Counted(CanaryCounters& counters) : counters_(counters) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { counters_.add(result_); }
  void set(CanaryResult result) { result_ = result; }

 private:
  CanaryCounters& counters_;
  CanaryResult result_ = CanaryResult::Cancelled;
};

/// Errors that say nothing against the worker: what it cannot express, that it has enough to do,
/// and of one that only decodes that it was asked for more.
bool is_refusal(ErrorCode code, Role role) {
  return (code == ErrorCode::EngineRejected && role == Role::Decode) ||
         code == ErrorCode::UnsupportedField || code == ErrorCode::CapabilityUnsupported ||
         code == ErrorCode::CapabilityUnavailable || code == ErrorCode::EngineExhausted;
}

}  // namespace

std::string_view label(CanaryResult result) {
  switch (result) {
    case CanaryResult::Success: return "success";
    case CanaryResult::Failure: return "failure";
    case CanaryResult::Timeout: return "timeout";
    case CanaryResult::Refused: return "refused";
    case CanaryResult::Cancelled: return "cancelled";
    case CanaryResult::kCount: break;
  }
  return {};
}

void CanaryCounters::collect(observe::TextWriter& writer) const {
  writer.family("canary_requests_total", "counter",
                "Generations sent to engines to see whether they can generate.");
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    writer.sample(fmt::format("result=\"{}\"", label(static_cast<CanaryResult>(i))),
                  static_cast<double>(cells_[i].get()));
  }
}

Canary::Canary(const CanaryOptions& options, const Activity& activity, std::string name)
    : options_(options), activity_(activity), name_(std::move(name)) {}

engine::GenerateRequest Canary::request(std::string_view model, CanaryPart part) {
  const auto own = options_.per_model.find(model);
  const CanaryPayload& payload = own == options_.per_model.end() ? options_.payload : own->second;
  engine::GenerateRequest out;
  out.request_id = fmt::format("canary-{}-{}", name_, ++sequence_);
  out.prompt = payload.token_ids;
  if (out.prompt.empty()) {
    out.prompt.push_back(options_.bos ? options_.bos(model) : 1);
  }
  out.sampling = payload.sampling;
  out.stop = payload.stop;
  out.extra_args = payload.extra_args;
  out.extra_args_required = !payload.extra_args.is_null();
  take_part(out, part);
  return out;
}

net::Task<Result<>> Canary::run(engine::EngineClient& client, std::string_view model,
                                CanaryPart part) {
  Counted outcome(*options_.counters);
  const engine::GenerateRequest sent = request(model, part);
  Listener listener;
  const net::TimePoint deadline = net::Reactor::current()->now() + options_.timeout;
  Result<std::unique_ptr<engine::EngineStream>> stream = client.open(sent, listener);
  if (!stream) {
    listener.error = std::move(stream.error());
  } else {
    co_await listener.ended.wait_until(deadline);
    stream->reset();  // behind the deadline this aborts it
  }
  CanaryResult result = CanaryResult::Success;
  std::string message;
  if (listener.error) {
    const ErrorCode code = listener.error->code;
    result = is_refusal(code, part.role)               ? CanaryResult::Refused
             : code == ErrorCode::EngineConnectTimeout ? CanaryResult::Timeout
                                                       : CanaryResult::Failure;
    message = std::move(listener.error->message);
  } else if (!listener.generated) {
    result = CanaryResult::Timeout;
    message = fmt::format(
        "no output within {} ms",
        std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count());
  }
  outcome.set(result);
  co_return judge(result, std::move(message));
}

Result<> Canary::judge(CanaryResult result, std::string message) {
  if (result == CanaryResult::Success || result == CanaryResult::Refused) {
    failures_ = 0;
    last_success_ = net::Reactor::current()->now();
    return {};
  }
  ++failures_;
  return fail(result == CanaryResult::Timeout ? ErrorCode::EngineSilent : ErrorCode::EngineUnknown,
              fmt::format("canary failed: {}", message));
}

net::TimePoint Canary::due() const {
  const net::TimePoint since = std::max(activity_.quiet_since(), last_success_);
  return since + (activity_.busy() ? options_.busy_stall : options_.wait);
}

net::Duration Canary::pause(net::TimePoint now) const {
  // A busy worker may become idle, and is then due earlier.
  const net::Duration longest = std::max(options_.wait, kShortestPause);
  return std::clamp(due() - now, kShortestPause, longest);
}

net::Duration Canary::retry_delay() const {
  const int doublings = std::clamp(failures_ - 1, 0, 8);
  return std::min(kFirstRetry * (1 << doublings), options_.wait);
}

}  // namespace fairlead::fleet
