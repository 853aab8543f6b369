#include <algorithm>
#include <utility>

#include "net/grpc_client.hpp"

namespace fairlead::net::grpc {
namespace {

// Servers built on grpc-core end a connection whose client pings oftener than every five minutes
// while nothing is sent to it, at the fourth ping.
constexpr int kPingsWithoutData = 3;
constexpr Duration kCalmPingInterval = std::chrono::seconds(310);

http2::SessionOptions session_options(const ChannelOptions& options) {
  http2::SessionOptions out;
  out.stream_window_bytes = std::clamp<std::uint32_t>(options.stream_window_bytes, 1, 0x7fffffff);
  return out;
}

}  // namespace

ClientSession::ClientSession(ChannelCore& channel, std::unique_ptr<Stream> stream,
                             const ChannelOptions& options)
    : Session(std::move(stream), session_options(options)),
      channel_(&channel),
      interval_(options.ping_interval),
      timeout_(options.ping_timeout),
      quiet_after_(options.quiet_after),
      quiet_timeout_(std::min(options.ping_timeout, options.quiet_ping_timeout)),
      keepalive_([this] { keep_alive(); }) {}

void ClientSession::forsake() {
  channel_ = nullptr;
  keepalive_.cancel();
  abandon();
}

void ClientSession::on_settings() {
  if (channel_ && !std::exchange(ready_, true)) {
    channel_->session_ready(*this);
  } else if (channel_) {
    channel_->room_made();
  }
}

void ClientSession::on_goaway(http2::ErrorCode code) {
  if (code == http2::ErrorCode::EnhanceYourCalm && channel_) {
    channel_->slow_pings();
  }
}

void ClientSession::on_headers_sent(http2::SessionStream& stream) {
  static_cast<ClientCall&>(stream).set_sent_at(collected());
}

void ClientSession::on_stream_gone() {
  if (channel_) {
    channel_->room_made();
  }
}

void ClientSession::on_lost(std::string_view reason) {
  keepalive_.cancel();
  if (channel_) {
    std::exchange(channel_, nullptr)->session_lost(*this, reason);
  }
}

Duration ClientSession::ping_interval() const {
  return pings_without_data_ < kPingsWithoutData ? interval_
                                                 : std::max(interval_, kCalmPingInterval);
}

bool ClientSession::quiet() const {
  return streams() == 0 && Reactor::current()->now() - last_received() >= quiet_after_;
}

void ClientSession::call_began(bool was_quiet) {
  if (interval_ <= Duration(0)) {
    return;
  }
  if (was_quiet && !ping_sent_ && pings_without_data_ < kPingsWithoutData) {
    ping_for(quiet_timeout_);
  } else if (!keepalive_.armed()) {
    keepalive_.arm(ping_interval());
  }
}

void ClientSession::keep_alive() {
  const TimePoint now = Reactor::current()->now();
  if (std::exchange(ping_sent_, false) && last_received() < ping_sent_at_) {
    close("no answer to a ping");
    return;
  }
  if (streams() == 0) {
    return;
  }
  const TimePoint due = last_received() + ping_interval();
  if (now < due) {
    keepalive_.arm_at(due);
    return;
  }
  ping_for(timeout_);
}

void ClientSession::ping_for(Duration timeout) {
  ping();
  ++pings_without_data_;
  ping_sent_ = true;
  ping_sent_at_ = Reactor::current()->now();
  keepalive_.arm(timeout);
}

}  // namespace fairlead::net::grpc
