#include "net/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "net/event.hpp"

namespace fairlead::net {
namespace {

constexpr int kBacklog = 4096;
constexpr int kAcceptBatch = 1024;
constexpr Duration kAcceptRetry = std::chrono::milliseconds(100);

std::string error_text(int error) { return std::strerror(error); }

void set_option(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof value);
}

void apply(int fd, const SocketOptions& options) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  const auto user_timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(options.user_timeout).count();
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(user_timeout));
  if (options.keep_alive > Duration(0)) {
    const auto seconds = std::max<std::int64_t>(
        1, std::chrono::floor<std::chrono::seconds>(options.keep_alive).count());
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(seconds));
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
  if (options.send_buffer_bytes > 0) {
    set_option(fd, SOL_SOCKET, SO_SNDBUF, options.send_buffer_bytes);
  }
}

class SocketStream final : public Stream, private IoHandler {
 public:
  explicit SocketStream(int fd) : fd_(fd), reactor_(*Reactor::current()) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      peer_ = Address::from_sockaddr(&address, length).to_string();
    }
  }

  ~SocketStream() override {
    if (alive_) {
      *alive_ = false;
    }
    if (registered_) {
      reactor_.remove(fd_, *this);
    }
    if (abortive_) {
      const linger now{1, 0};
      setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    close(fd_);
  }

  void set_handler(StreamHandler* handler) override {
    handler_ = handler;
    if (handler_ && !registered_) {
      registered_ = reactor_.add(fd_, *this);  // reports what is ready already
      if (!registered_) {
        log::error("cannot watch a socket: {}", error_text(errno));
      }
    }
  }

  IoResult read(std::span<char> buffer) override {
    const ssize_t count = recv(fd_, buffer.data(), buffer.size(), 0);
    if (count > 0) {
      return {IoResult::Status::Ok, static_cast<std::size_t>(count), 0};
    }
    return count == 0 ? IoResult{IoResult::Status::Eof, 0, 0} : failure();
  }

  IoResult write(std::span<const iovec> pieces) override {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());  // sendmsg does not write to it
    message.msg_iovlen = std::min<std::size_t>(pieces.size(), 64);
    const ssize_t count = sendmsg(fd_, &message, MSG_NOSIGNAL);
    return count >= 0 ? IoResult{IoResult::Status::Ok, static_cast<std::size_t>(count), 0}
                      : failure();
  }

  void shutdown_write() override { shutdown(fd_, SHUT_WR); }
  void set_abortive() override { abortive_ = true; }
  const std::string& peer() const override { return peer_; }

 private:
  static IoResult failure() {
    const int error = errno;
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR
               ? IoResult{IoResult::Status::WouldBlock, 0, 0}
               : IoResult{IoResult::Status::Failed, 0, error};
  }

  void on_io(std::uint32_t events) override {
    bool alive = true;
    alive_ = &alive;
    constexpr std::uint32_t kReadable = EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if ((events & kReadable) != 0 && handler_) {
      handler_->on_readable();
    }
    if (alive && (events & EPOLLOUT) != 0 && handler_) {
      handler_->on_writable();
    }
    if (alive) {
      alive_ = nullptr;
    }
  }

  int fd_;
  Reactor& reactor_;
  StreamHandler* handler_ = nullptr;
  bool registered_ = false;
  bool abortive_ = false;
  bool* alive_ = nullptr;  // on the stack of on_io: the handler may destroy this stream
  std::string peer_;
};

// A descriptor that is being connected; tells when the attempt has ended.
class Connecting final : private IoHandler {
 public:
  explicit Connecting(int fd) : fd_(fd), reactor_(*Reactor::current()) {}
  ~Connecting() override {
    if (registered_) {
      reactor_.remove(fd_, *this);
    }
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  bool watch() { return registered_ = reactor_.add(fd_, *this); }
  Event& done() { return done_; }
  int release() {
    reactor_.remove(fd_, *this);
    registered_ = false;
    return std::exchange(fd_, -1);
  }

 private:
  void on_io(std::uint32_t events) override {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) {
      done_.set();
    }
  }

  int fd_;
  Reactor& reactor_;
  bool registered_ = false;
  Event done_;
};

}  // namespace

Result<Address> Address::parse(std::string_view host, std::uint16_t port) {
  std::string text(host);
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    return from_sockaddr(&v4, sizeof v4);
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  if (inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    return from_sockaddr(&v6, sizeof v6);
  }
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` is not a numeric address", host));
}

Address Address::from_sockaddr(const void* address, std::size_t length) {
  Address out;
  out.length_ = std::min(length, out.storage_.size());
  std::memcpy(out.storage_.data(), address, out.length_);
  return out;
}

std::uint16_t Address::port() const {
  // The port stands at the same place in both families.
  sockaddr_in v4{};
  std::memcpy(&v4, storage_.data(), std::min(length_, sizeof v4));
  return ntohs(v4.sin_port);
}

std::string Address::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  sa_family_t family = AF_UNSPEC;
  std::memcpy(&family, storage_.data(), sizeof family);
  if (family == AF_INET) {
    inet_ntop(AF_INET, storage_.data() + offsetof(sockaddr_in, sin_addr), text.data(), text.size());
    return fmt::format("{}:{}", text.data(), port());
  }
  if (family == AF_INET6) {
    inet_ntop(AF_INET6, storage_.data() + offsetof(sockaddr_in6, sin6_addr), text.data(),
              text.size());
    return fmt::format("[{}]:{}", text.data(), port());
  }
  return "unknown";
}

bool Address::operator==(const Address& other) const { return to_string() == other.to_string(); }

std::unique_ptr<Stream> make_socket_stream(int fd, const SocketOptions& options) {
  apply(fd, options);
  return std::make_unique<SocketStream>(fd);
}

Task<Result<std::unique_ptr<Stream>>> TcpDialer::connect(Address address, TimePoint deadline) {
  sa_family_t family = AF_UNSPEC;
  std::memcpy(&family, address.data(), sizeof family);
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("cannot open a socket: {}", error_text(errno)));
  }
  Connecting attempt(fd);
  const auto* target = static_cast<const sockaddr*>(address.data());
  if (::connect(fd, target, static_cast<socklen_t>(address.size())) != 0 && errno != EINPROGRESS) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("cannot connect to {}: {}", address.to_string(), error_text(errno)));
  }
  if (!attempt.watch()) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("cannot watch a socket: {}", error_text(errno)));
  }
  const bool ended = co_await attempt.done().wait_until(deadline);
  if (!ended) {
    co_return fail(ErrorCode::EngineConnectTimeout,
                   fmt::format("connecting to {} timed out", address.to_string()));
  }
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) {
    co_return fail(ErrorCode::EngineUnreachable,
                   fmt::format("cannot connect to {}: {}", address.to_string(), error_text(error)));
  }
  co_return make_socket_stream(attempt.release(), options_);
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port) {
  if (auto numeric = Address::parse(host, port)) {
    return std::vector{*numeric};
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return fail(ErrorCode::EngineUnreachable,
                fmt::format("cannot resolve `{}`: {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<Address> out;
  for (const addrinfo* entry = found; entry; entry = entry->ai_next) {
    const Address address = Address::from_sockaddr(entry->ai_addr, entry->ai_addrlen);
    if (std::ranges::find(out, address) == out.end()) {
      out.push_back(address);
    }
  }
  return out;
}

Listener::Listener(Reactor& reactor, int fd, Address address, OnAccept on_accept)
    : reactor_(reactor),
      fd_(fd),
      address_(address),
      on_accept_(std::move(on_accept)),
      retry_([this] { accept_all(); }) {}

Listener::~Listener() {
  reactor_.remove(fd_, *this);
  close(fd_);
}

Result<std::unique_ptr<Listener>> Listener::open(Reactor& reactor, const Address& address,
                                                 OnAccept on_accept) {
  const auto refuse = [&](const char* what) {
    const int error = errno;
    return fail(ErrorCode::Internal, fmt::format("cannot {} {}: {}", what, address.to_string(),
                                                 error == EADDRINUSE ? "the port is already in use"
                                                                     : error_text(error)));
  };
  sa_family_t family = AF_UNSPEC;
  std::memcpy(&family, address.data(), sizeof family);
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return refuse("open a socket for");
  }
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  const auto* wanted = static_cast<const sockaddr*>(address.data());
  if (bind(fd, wanted, static_cast<socklen_t>(address.size())) != 0 || listen(fd, kBacklog) != 0) {
    auto error = refuse("listen on");
    close(fd);
    return error;
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &length);
  std::unique_ptr<Listener> listener(
      new Listener(reactor, fd, Address::from_sockaddr(&bound, length), std::move(on_accept)));
  if (!reactor.add(fd, *listener)) {
    return refuse("watch");
  }
  return listener;
}

void Listener::on_io(std::uint32_t) { accept_all(); }

void Listener::accept_all() {
  for (int i = 0; i < kAcceptBatch; ++i) {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      on_accept_(fd);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      log::warn("cannot accept a connection: {}", error_text(errno));
      break;
    }
    // Anything else concerns the one connection that failed before it was accepted.
  }
  retry_.arm(kAcceptRetry);
}

}  // namespace fairlead::net
