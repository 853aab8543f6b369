#include "net/zmq.hpp"

#include <fmt/format.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdint>
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

std::string last_error() { return zmq_strerror(zmq_errno()); }

}  // namespace

Context::Context() : handle_(zmq_ctx_new()) {
  if (!handle_) {
    throw std::system_error(errno, std::system_category(), "cannot create a ZeroMQ context");
  }
}

Context::~Context() { zmq_ctx_term(handle_); }

Result<std::unique_ptr<Socket>> Socket::open(Context& context, Kind kind,
                                             const SocketOptions& options) {
  void* handle = zmq_socket(context.handle_, type_of(kind));
  if (!handle) {
    return fail(ErrorCode::Internal, fmt::format("cannot open a ZeroMQ socket: {}", last_error()));
  }
  std::unique_ptr<Socket> socket(new Socket(handle));
  const int zero = 0;
  const int one = 1;
  zmq_setsockopt(handle, ZMQ_LINGER, &zero, sizeof zero);
  zmq_setsockopt(handle, ZMQ_SNDHWM, &options.send_high_water, sizeof options.send_high_water);
  zmq_setsockopt(handle, ZMQ_RCVHWM, &options.receive_high_water,
                 sizeof options.receive_high_water);
  zmq_setsockopt(handle, ZMQ_TCP_KEEPALIVE, &one, sizeof one);
  return socket;
}

Socket::~Socket() { zmq_close(handle_); }

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
  const int ipv6 = 1;
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

int Socket::fd() const {
  int fd = -1;
  std::size_t length = sizeof fd;
  zmq_getsockopt(handle_, ZMQ_FD, &fd, &length);
  return fd;
}

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
