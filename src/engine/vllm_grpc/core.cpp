#include "engine/vllm_grpc/core.hpp"

#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "engine/vllm_grpc/generate_call.hpp"
#include "engine/vllm_grpc/status.hpp"
#include "vllm/control.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

constexpr auto kAbortTimeout = std::chrono::seconds(5);

/// An engine that comes back is dialed again soon: routing decides who is tried, and the probe's
/// interval is above this pause, so that every probe dials.
net::grpc::ChannelOptions channel_options() {
  net::grpc::ChannelOptions options;
  options.max_backoff = std::chrono::milliseconds(500);
  return options;
}

}  // namespace

Core::Core(net::Dialer& dialer, ClientOptions options)
    : channel(dialer, std::move(options.authority), std::move(options.addresses),
              channel_options()),
      dialect(dialect_from_name(options.dialect)),
      model(std::move(options.model)) {}

Core::~Core() = default;

void Core::abort(std::string request_id) {
  if (!has_control(dialect)) {
    return;
  }
  if (aborts_.size() >= kMaxAborts) {
    log::debug("Abort of {} is not sent: {} aborts are unanswered", request_id, aborts_.size());
    return;
  }
  aborts_.spawn(send_abort(std::move(request_id)));
}

net::Task<> Core::send_abort(std::string request_id) {
  ::vllm::AbortRequest request;
  request.add_request_ids(request_id);
  const net::TimePoint deadline = net::Reactor::current()->now() + kAbortTimeout;
  const auto answer =
      co_await channel.unary("/vllm.Control/Abort", {}, request.SerializeAsString(), deadline);
  if (!answer) {
    log::debug("{} of request {}", status_error("Abort", answer.error()).message, request_id);
  }
}

}  // namespace fairlead::engine::vllm_grpc
