#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"
#include "net/task.hpp"

namespace fairlead::net {

/// A numeric socket address (IPv4 or IPv6 with port), comparable and cheap to copy.
class Address {
 public:
  Address() = default;
  /// Parses a numeric host (`127.0.0.1`, `::1`, brackets allowed) and a port.
  static Result<Address> parse(std::string_view host, std::uint16_t port);
  /// From the system's form.
  static Address from_sockaddr(const void* address, std::size_t length);

  /// The system's form.
  const void* data() const { return storage_.data(); }
  /// Length of the system's form in bytes.
  std::size_t size() const { return length_; }
  /// `HOST:PORT`, IPv6 in brackets.
  std::string to_string() const;
  /// The port.
  std::uint16_t port() const;
  /// Same family, host and port.
  bool operator==(const Address& other) const;

 private:
  alignas(8) std::array<unsigned char, 28> storage_{};
  std::size_t length_ = 0;
};

/// How a TCP connection behaves.
struct SocketOptions {
  Duration user_timeout = std::chrono::seconds(20);  ///< TCP_USER_TIMEOUT: unacknowledged data.
  Duration keep_alive = std::chrono::seconds(15);    ///< Idle time before the first probe; 0 = off.
  int send_buffer_bytes = 0;                         ///< SO_SNDBUF; 0 leaves it to the system.
};

/// A connected, non-blocking TCP socket as a stream in the current reactor. Takes the descriptor.
/// TCP_NODELAY is set.
std::unique_ptr<Stream> make_socket_stream(int fd, const SocketOptions& options);

/// Opens connections; the seam for tests.
class Dialer {
 public:
  virtual ~Dialer() = default;
  /// Connects in the current reactor, or fails with EngineUnreachable (refused, no route) or
  /// EngineConnectTimeout.
  virtual Task<Result<std::unique_ptr<Stream>>> connect(Address address, TimePoint deadline) = 0;
};

/// Dials TCP.
class TcpDialer final : public Dialer {
 public:
  /// `options` apply to every connection.
  explicit TcpDialer(SocketOptions options = {}) : options_(options) {}
  Task<Result<std::unique_ptr<Stream>>> connect(Address address, TimePoint deadline) override;

 private:
  SocketOptions options_;
};

/// Looks a host name up; blocking, for the control thread and its helpers only. Numeric hosts need
/// no look-up. The error names the host.
Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port);

/// A listening TCP socket in one reactor. Accepted descriptors are handed to `on_accept`, which
/// takes them (usually posting to the reactor that will serve them).
class Listener final : private IoHandler {
 public:
  /// Receives an accepted, non-blocking descriptor and owns it.
  using OnAccept = std::move_only_function<void(int fd)>;

  /// Binds and listens; port 0 takes a free one. The error names the address and the reason, and
  /// says so when the port is in use.
  static Result<std::unique_ptr<Listener>> open(Reactor& reactor, const Address& address,
                                                OnAccept on_accept);
  ~Listener() override;

  /// The bound address.
  const Address& address() const { return address_; }

 private:
  Listener(Reactor& reactor, int fd, Address address, OnAccept on_accept);
  void on_io(std::uint32_t events) override;
  void accept_all();

  Reactor& reactor_;
  int fd_;
  Address address_;
  OnAccept on_accept_;
  Timer retry_;  // descriptors may be exhausted: edges do not repeat, so try again later
};

}  // namespace fairlead::net
