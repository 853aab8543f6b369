#include "net/zmq.hpp"

#include <fmt/format.h>
#include <zmq.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#if __has_feature(thread_sanitizer)
// libzmq is not instrumented: its own synchronisation is invisible and looks like races.
extern "C" const char* __tsan_default_suppressions();   // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "called_from_lib:libzmq.so\n";
}
#endif

namespace fairlead::net::zmq {
namespace {

int type_of(Kind kind) {
  switch (kind) {
    case Kind::Pub: return ZMQ_PUB;
    case Kind::Sub: return ZMQ_SUB;
    case Kind::Router: return ZMQ_ROUTER;
    case Kind::Dealer: return ZMQ_DEALER;
  }
  return ZMQ_DEALER;
}

// Between attempts to connect again.
constexpr int kReconnectMs = 100;
constexpr int kReconnectMaxMs = 5000;
// Of one attempt; the system's own is minutes.
constexpr int kConnectTimeoutMs = 5000;
// A peer that vanished without a word is noticed after idle + count * interval seconds.
constexpr int kKeepaliveIdle = 15;
constexpr int kKeepaliveInterval = 5;
constexpr int kKeepaliveCount = 3;

int descriptor_of(void* handle) {
  int fd = -1;
  std::size_t length = sizeof fd;
  zmq_getsockopt(handle, ZMQ_FD, &fd, &length);
  return fd;
}

zmq_msg_t* message_of(std::array<std::byte, 64>& storage) {
  static_assert(sizeof(zmq_msg_t) == sizeof storage && alignof(zmq_msg_t) <= alignof(void*));
  return reinterpret_cast<zmq_msg_t*>(storage.data());
}

std::string last_error() { return zmq_strerror(zmq_errno()); }

}  // namespace

Context::Context(int max_sockets) : handle_(zmq_ctx_new()) {
  if (!handle_) {
    throw std::system_error(errno, std::system_category(), "cannot create a ZeroMQ context");
  }
  zmq_ctx_set(handle_, ZMQ_MAX_SOCKETS, max_sockets);
}

Context::~Context() { zmq_ctx_term(handle_); }

Frame::Frame() { zmq_msg_init(message_of(message_)); }
Frame::~Frame() { zmq_msg_close(message_of(message_)); }

std::string_view Frame::bytes() const {
  zmq_msg_t* message = message_of(message_);
  return {static_cast<const char*>(zmq_msg_data(message)), zmq_msg_size(message)};
}

Monitor::~Monitor() { zmq_close(handle_); }
int Monitor::fd() const { return descriptor_of(handle_); }

std::optional<ConnectionEvent> Monitor::next() {
  for (;;) {
    // Two frames: the event's number and value, then the address.
    std::uint16_t event = 0;
    int more = 1;
    for (int frame = 0; more != 0; ++frame) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&message);
        return std::nullopt;
      }
      if (frame == 0 && zmq_msg_size(&message) >= sizeof event) {
        std::memcpy(&event, zmq_msg_data(&message), sizeof event);
      }
      more = zmq_msg_more(&message);
      zmq_msg_close(&message);
    }
    if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      return ConnectionEvent::Up;
    }
    if (event == ZMQ_EVENT_DISCONNECTED) {
      return ConnectionEvent::Down;
    }
  }
}

Result<std::unique_ptr<Socket>> Socket::open(Context& context, Kind kind,
                                             const SocketOptions& options) {
  void* handle = zmq_socket(context.handle_, type_of(kind));
  if (!handle) {
    return fail(ErrorCode::Internal, fmt::format("cannot open a ZeroMQ socket: {}", last_error()));
  }
  std::unique_ptr<Socket> socket(new Socket(handle, options.family));
  const int zero = 0;
  const int one = 1;
  zmq_setsockopt(handle, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(handle, ZMQ_SNDHWM, &options.send_high_water, sizeof options.send_high_water);
  zmq_setsockopt(handle, ZMQ_RCVHWM, &options.receive_high_water,
                 sizeof options.receive_high_water);
  zmq_setsockopt(handle, ZMQ_TCP_KEEPALIVE, &one, sizeof one);
  zmq_setsockopt(handle, ZMQ_TCP_KEEPALIVE_IDLE, &kKeepaliveIdle, sizeof kKeepaliveIdle);
  zmq_setsockopt(handle, ZMQ_TCP_KEEPALIVE_INTVL, &kKeepaliveInterval, sizeof kKeepaliveInterval);
  zmq_setsockopt(handle, ZMQ_TCP_KEEPALIVE_CNT, &kKeepaliveCount, sizeof kKeepaliveCount);
  zmq_setsockopt(handle, ZMQ_RECONNECT_IVL, &kReconnectMs, sizeof kReconnectMs);
  zmq_setsockopt(handle, ZMQ_RECONNECT_IVL_MAX, &kReconnectMaxMs, sizeof kReconnectMaxMs);
  zmq_setsockopt(handle, ZMQ_CONNECT_TIMEOUT, &kConnectTimeoutMs, sizeof kConnectTimeoutMs);
  zmq_setsockopt(handle, ZMQ_MAXMSGSIZE, &options.max_message_bytes,
                 sizeof options.max_message_bytes);
  return socket;
}

Socket::~Socket() {
  // The library's thread would wait for ever, and with it every connection of the context, to tell
  // of this socket once nobody can take it: so that ends first.
  zmq_socket_monitor(handle_, nullptr, 0);
  monitor_.reset();
  zmq_close(handle_);
}

Result<std::string> Socket::bind(const std::string& endpoint) {
  // Only then: it makes IPv4 endpoints read back as mapped IPv6 ones.
  const int ipv6 = endpoint.find('[') != std::string::npos ? 1 : 0;
  zmq_setsockopt(handle_, ZMQ_IPV6, &ipv6, sizeof ipv6);
  if (zmq_bind(handle_, endpoint.c_str()) != 0) {
    return fail(ErrorCode::Internal, fmt::format("cannot bind {}: {}", endpoint, last_error()));
  }
  std::array<char, 256> bound{};
  std::size_t length = bound.size();
  if (zmq_getsockopt(handle_, ZMQ_LAST_ENDPOINT, bound.data(), &length) != 0) {
    return fail(ErrorCode::Internal, fmt::format("cannot bind {}: {}", endpoint, last_error()));
  }
  return std::string(bound.data());
}

Result<> Socket::connect(const std::string& endpoint) {
  const bool literal = endpoint.find('[') != std::string::npos;
  const int ipv6 = literal || family_ == Family::Ipv6 ? 1 : 0;
  zmq_setsockopt(handle_, ZMQ_IPV6, &ipv6, sizeof ipv6);
  if (zmq_connect(handle_, endpoint.c_str()) != 0) {
    return fail(ErrorCode::EngineUnreachable,
                fmt::format("cannot connect to {}: {}", endpoint, last_error()));
  }
  return {};
}

Result<> Socket::subscribe(std::string_view prefix) {
  if (zmq_setsockopt(handle_, ZMQ_SUBSCRIBE, prefix.data(), prefix.size()) != 0) {
    return fail(ErrorCode::Internal, fmt::format("cannot subscribe: {}", last_error()));
  }
  return {};
}

bool Socket::send(const Frames& frames) {
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const int more = i + 1 < frames.size() ? ZMQ_SNDMORE : 0;
    if (zmq_send(handle_, frames[i].data(), frames[i].size(), ZMQ_DONTWAIT | more) < 0) {
      return false;
    }
  }
  return true;
}

std::optional<Frames> Socket::receive() {
  Frames frames;
  for (;;) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, handle_, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return std::nullopt;
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    const bool more = zmq_msg_more(&message) != 0;
    zmq_msg_close(&message);
    if (!more) {
      return frames;
    }
  }
}

bool Socket::receive(Message& message) {
  message.size_ = 0;
  for (;;) {
    Frame& frame =
        message.size_ < Message::kFrames ? message.frames_[message.size_] : message.surplus_;
    zmq_msg_t* part = message_of(frame.message_);
    if (zmq_msg_recv(part, handle_, ZMQ_DONTWAIT) < 0) {
      return false;
    }
    ++message.size_;
    if (zmq_msg_more(part) == 0) {
      return true;
    }
  }
}

Result<Monitor*> Socket::monitor(Context& context) {
  static std::atomic<std::uint64_t> count{0};
  const std::string endpoint = fmt::format("inproc://monitor-{}", count.fetch_add(1));
  if (zmq_socket_monitor(handle_, endpoint.c_str(),
                         ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED) != 0) {
    return fail(ErrorCode::Internal, fmt::format("cannot watch a socket: {}", last_error()));
  }
  void* pair = zmq_socket(context.handle_, ZMQ_PAIR);
  if (!pair) {
    return fail(ErrorCode::Internal, fmt::format("cannot open a ZeroMQ socket: {}", last_error()));
  }
  monitor_.reset(new Monitor(pair));
  const int zero = 0;
  zmq_setsockopt(pair, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(pair, ZMQ_RCVHWM, &zero, sizeof zero);  // nor does it wait for events to be read
  if (zmq_connect(pair, endpoint.c_str()) != 0) {
    return fail(ErrorCode::Internal, fmt::format("cannot watch a socket: {}", last_error()));
  }
  return monitor_.get();
}

int Socket::fd() const { return descriptor_of(handle_); }

void wait(Socket* socket, int fd, int timeout_ms) {
  std::array<zmq_pollitem_t, 2> items{};
  int count = 0;
  if (fd >= 0) {
    items[static_cast<std::size_t>(count++)] = {nullptr, fd, ZMQ_POLLIN, 0};
  }
  if (socket) {
    items[static_cast<std::size_t>(count++)] = {socket->handle_, -1, ZMQ_POLLIN, 0};
  }
  zmq_poll(items.data(), count, timeout_ms);
}

}  // namespace fairlead::net::zmq
