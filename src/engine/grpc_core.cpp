#include "engine/grpc_core.hpp"

#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "engine/grpc_status.hpp"

namespace fairlead::engine {
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

GrpcCore::GrpcCore(net::Dialer& dialer, const ClientOptions& options)
    : channel(dialer, options.authority, options.addresses, channel_options()) {}

void GrpcCore::abort(const std::string& request_id) {
  std::optional<AbortCall> call = abort_call(request_id);
  if (!call) {
    return;
  }
  if (aborts_.size() >= kMaxAborts) {
    log::debug("Abort of {} is not sent: {} aborts are unanswered", request_id, aborts_.size());
    return;
  }
  aborts_.spawn(send_abort(std::move(*call), request_id));
}

net::Task<> GrpcCore::send_abort(AbortCall call, std::string request_id) {
  const net::TimePoint deadline = net::Reactor::current()->now() + kAbortTimeout;
  const auto answer = co_await channel.unary(call.path, {}, std::move(call.message), deadline);
  if (!answer) {
    log::debug("{} of request {}", status_error("Abort", answer.error()).message, request_id);
  }
}

}  // namespace fairlead::engine
