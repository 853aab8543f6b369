#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::net::zmq {

/// The frames of one message.
using Frames = std::vector<std::string>;

/// Socket patterns that are used here.
enum class Kind : unsigned char {
  Pub,     ///< Publishes to every subscriber; drops for slow ones.
  Sub,     ///< Receives what it subscribed to.
  Router,  ///< Answers peers by identity, the first frame.
  Dealer,  ///< Asks a router.
};

/// How a socket behaves. Zero water marks mean unlimited.
struct SocketOptions {
  int send_high_water = 1000;     ///< Messages queued per peer before they are dropped.
  int receive_high_water = 1000;  ///< Likewise, received.
};

/// A ZeroMQ context with its I/O thread. Outlives its sockets. Any thread.
class Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  friend class Socket;
  void* handle_;
};

/// One socket, closed without linger. Used by one thread at a time; never blocks.
class Socket {
 public:
  /// Opens a socket. Fails when the context's socket or the process's descriptor limit is reached.
  static Result<std::unique_ptr<Socket>> open(Context& context, Kind kind,
                                              const SocketOptions& options = {});
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  /// Binds, e.g. `tcp://127.0.0.1:*`; the result is the endpoint with the real port. The error
  /// names the endpoint and the reason.
  Result<std::string> bind(const std::string& endpoint);
  /// Connects, in the background.
  Result<> connect(const std::string& endpoint);
  /// Subscribes to topics that begin with `prefix`.
  Result<> subscribe(std::string_view prefix);
  /// Sends one message; false when it was dropped or the peer's queue is full.
  bool send(const Frames& frames);
  /// The next message, or none.
  std::optional<Frames> receive();
  /// A descriptor that becomes readable, edge-triggered, when `receive` or `send` must be tried
  /// again.
  int fd() const;

 private:
  friend void wait(Socket* socket, int fd, int timeout_ms);
  explicit Socket(void* handle) : handle_(handle) {}
  void* handle_;
};

/// Waits until a message can be received from `socket` or `fd` is readable, at most
/// `timeout_ms` (-1: without limit). `socket` may be null and `fd` -1.
void wait(Socket* socket, int fd, int timeout_ms);

}  // namespace fairlead::net::zmq
