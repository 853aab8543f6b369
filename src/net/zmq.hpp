#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// Which addresses a host name stands for; the library tries one of them only.
enum class Family : unsigned char {
  ByLiteral,  ///< IPv6 for endpoints with brackets, else IPv4.
  Ipv6,       ///< IPv6 if the name has such an address.
};

/// How a socket behaves. Zero water marks mean unlimited.
struct SocketOptions {
  int send_high_water = 1000;           ///< Messages queued per peer before they are dropped.
  int receive_high_water = 1000;        ///< Likewise, received.
  std::int64_t max_message_bytes = -1;  ///< A peer that sends more is cut; -1: without limit.
  Family family = Family::ByLiteral;    ///< For `connect`.
};

/// A ZeroMQ context with its I/O thread. Outlives its sockets. Any thread.
class Context {
 public:
  /// `max_sockets` bounds how many sockets may be open at a time.
  explicit Context(int max_sockets = 1023);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  friend class Socket;
  void* handle_;
};

/// One frame in the library's own memory, so that receiving copies nothing.
class Frame {
 public:
  Frame();
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Content; valid until something else is received into the frame.
  std::string_view bytes() const;

 private:
  friend class Socket;
  alignas(void*) mutable std::array<std::byte, 64> message_;
};

/// Room for one message, used again for the next one.
class Message {
 public:
  /// Frames whose content is kept.
  static constexpr std::size_t kFrames = 4;

  /// Number of frames, of which those beyond `kFrames` were dropped.
  std::size_t size() const { return size_; }
  /// Content of frame `index`, which must be below both `size()` and `kFrames`.
  std::string_view operator[](std::size_t index) const { return frames_[index].bytes(); }

 private:
  friend class Socket;
  std::array<Frame, kFrames> frames_;
  Frame surplus_;
  std::size_t size_ = 0;
};

/// What happened to a socket's connection.
enum class ConnectionEvent : unsigned char {
  Up,    ///< The peer was greeted: from here on its messages are received.
  Down,  ///< The connection broke. A new one is made in the background.
};

/// Tells what happens to the connection of one socket. One thread at a time.
class Monitor {
 public:
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// The next event, or none. Up or Down comes before the messages received after it.
  std::optional<ConnectionEvent> next();
  /// As `Socket::fd`.
  int fd() const;

 private:
  friend class Socket;
  explicit Monitor(void* handle) : handle_(handle) {}
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
  /// Likewise, without copying; false when there is none.
  bool receive(Message& message);
  /// Begins to watch the connection; before `connect`, and once. The monitor lives as long as the
  /// socket and is used by the same thread.
  Result<Monitor*> monitor(Context& context);
  /// A descriptor that becomes readable, edge-triggered, when `receive` or `send` must be tried
  /// again.
  int fd() const;

 private:
  friend void wait(Socket* socket, int fd, int timeout_ms);
  Socket(void* handle, Family family) : handle_(handle), family_(family) {}
  void* handle_;
  Family family_;
  std::unique_ptr<Monitor> monitor_;
};

/// Waits until a message can be received from `socket` or `fd` is readable, at most
/// `timeout_ms` (-1: without limit). `socket` may be null and `fd` -1.
void wait(Socket* socket, int fd, int timeout_ms);

}  // namespace fairlead::net::zmq
