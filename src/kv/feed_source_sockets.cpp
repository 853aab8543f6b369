#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "kv/feed_source.hpp"

// The sockets of a source; feed_source.cpp reads them.

namespace fairlead::kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kDefaultBufferSteps = 10000;
constexpr std::size_t kLeastReplayMessages = 1024;
constexpr int kMostReopenDoublings = 4;

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift));
  }
  return bytes;
}

bool names_a_host(std::string_view endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp)) {
    return false;
  }
  const std::string_view host = endpoint.substr(kTcp.size(), endpoint.rfind(':') - kTcp.size());
  return host.find_first_not_of("0123456789.") != std::string_view::npos && !host.contains(':');
}

}  // namespace

// Connects the live socket, anew if there was one.
Result<> FeedSource::open_live() {
  auto socket = net::zmq::Socket::open(
      context_, net::zmq::Kind::Sub,
      {.receive_high_water = options_.receive_high_water,
       .max_message_bytes = static_cast<std::int64_t>(options_.max_message_bytes),
       .family = family_});
  if (!socket) {
    return std::unexpected(socket.error());
  }
  auto monitor = (*socket)->monitor(context_);
  if (!monitor) {
    return std::unexpected(monitor.error());
  }
  if (auto subscribed = (*socket)->subscribe(spec_.topic); !subscribed) {
    return subscribed;
  }
  if (auto connected = (*socket)->connect(spec_.endpoint); !connected) {
    return connected;
  }
  const int epoll_fd = epoll_fd_;
  unwatch();
  live_ = std::move(*socket);
  monitor_ = *monitor;
  reopen_at_ = Clock::now() + options_.reopen;
  if (epoll_fd >= 0) {
    watch(epoll_fd);
  }
  return {};
}

// There has been no connection for a while. The library tries the addresses of one family only, and
// ends for good the attempts of a socket that met anything but a publisher, or a message above the
// limit; so this begins anew.
void FeedSource::reopen() {
  if (names_a_host(spec_.endpoint)) {
    family_ = family_ == net::zmq::Family::ByLiteral ? net::zmq::Family::Ipv6
                                                     : net::zmq::Family::ByLiteral;
  }
  if (auto opened = open_live(); !opened && state_lines_.pass(Clock::now())) {
    log::warn("KV events of {}: {}", spec_.label, opened.error().message);
  }
  reopened_ = std::min(reopened_ + 1, kMostReopenDoublings);
  reopen_at_ = Clock::now() + options_.reopen * (1 << (reopened_ - 1));
}

void FeedSource::epoll(int operation, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = this;
  epoll_ctl(epoll_fd_, operation, fd, &event);
}

void FeedSource::watch(int epoll_fd) {
  epoll_fd_ = epoll_fd;
  epoll(EPOLL_CTL_ADD, monitor_->fd());
  epoll(EPOLL_CTL_ADD, live_->fd());
  if (replay_) {
    epoll(EPOLL_CTL_ADD, replay_->fd());
  }
}

void FeedSource::unwatch() {
  if (epoll_fd_ < 0) {
    return;
  }
  // A closed socket's descriptor lives on for a while; epoll would report it.
  epoll(EPOLL_CTL_DEL, monitor_->fd());
  epoll(EPOLL_CTL_DEL, live_->fd());
  if (replay_) {
    epoll(EPOLL_CTL_DEL, replay_->fd());
  }
  epoll_fd_ = -1;
}

void FeedSource::close() {
  const std::lock_guard lock(view_mutex_);
  closed_ = true;
  unwatch();
  live_.reset();
  replay_.reset();
}

bool FeedSource::request_replay(std::uint64_t start) {
  if (!replay_) {
    // Best when a full answer finds room: some engines drop what does not, silently.
    const std::size_t steps = spec_.buffer_steps == 0 ? kDefaultBufferSteps : spec_.buffer_steps;
    const std::size_t sources = std::max<std::size_t>(1, sources_.load(std::memory_order_relaxed));
    const std::size_t room = std::max(kLeastReplayMessages, options_.replay_messages / sources);
    auto socket = net::zmq::Socket::open(
        context_, net::zmq::Kind::Dealer,
        {.receive_high_water = static_cast<int>(std::min(steps + 1, room)),
         .max_message_bytes = static_cast<std::int64_t>(options_.max_message_bytes),
         .family = family_});
    auto connected = socket ? (*socket)->connect(spec_.replay_endpoint)
                            : Result<>(std::unexpected(socket.error()));
    if (!connected) {
      if (state_lines_.pass(Clock::now())) {
        log::warn("KV events of {}: replay: {}", spec_.label, connected.error().message);
      }
      return false;
    }
    replay_ = std::move(*socket);
    ++replay_number_;
    if (epoll_fd_ >= 0) {
      epoll(EPOLL_CTL_ADD, replay_->fd());
    }
  }
  return replay_->send({"", big_endian(start)});
}

// What is still answered goes to a socket that is closed, so it cannot be taken for the answer to
// the next request.
void FeedSource::abandon_replay() {
  if (replay_ && epoll_fd_ >= 0) {
    epoll(EPOLL_CTL_DEL, replay_->fd());
  }
  replay_.reset();
}

}  // namespace fairlead::kv
