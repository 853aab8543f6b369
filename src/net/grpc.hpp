#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::net::grpc {

/// Canonical status codes.
enum class StatusCode : std::uint8_t {
  Ok = 0,                  ///< Success.
  Cancelled = 1,           ///< Cancelled, usually by the caller.
  Unknown = 2,             ///< Unknown error.
  InvalidArgument = 3,     ///< The request is wrong.
  DeadlineExceeded = 4,    ///< Too late.
  NotFound = 5,            ///< No such entity.
  AlreadyExists = 6,       ///< Entity exists.
  PermissionDenied = 7,    ///< Not allowed.
  ResourceExhausted = 8,   ///< Out of quota or capacity.
  FailedPrecondition = 9,  ///< Wrong state.
  Aborted = 10,            ///< Concurrency trouble.
  OutOfRange = 11,         ///< Past the valid range.
  Unimplemented = 12,      ///< No such method.
  Internal = 13,           ///< Broken invariant.
  Unavailable = 14,        ///< Try again.
  DataLoss = 15,           ///< Data lost.
  Unauthenticated = 16,    ///< No valid credentials.
};

/// `UNAVAILABLE` and kin.
std::string_view status_name(StatusCode code);

/// How a call ended.
struct Status {
  /// Where the status was made.
  enum class Origin : std::uint8_t {
    Server,      ///< The server sent it.
    Connect,     ///< No connection could be made; the server saw nothing.
    Connection,  ///< The connection or stream broke (RST, GOAWAY, socket error) after the call
                 ///< began.
    Client,      ///< Made here: deadline, malformed or oversized message.
  };
  StatusCode code = StatusCode::Ok;  ///< The code.
  std::string message;               ///< Decoded from percent-encoding.
  Origin origin = Origin::Server;    ///< Who says so.

  /// True for success.
  bool ok() const { return code == StatusCode::Ok; }
};

/// Names are lower-case; values of names ending in `-bin` are raw bytes (base64 on the wire).
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Receives a call's events, inline, in the channel's reactor. Must not destroy the call from
/// inside a callback.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// One message; the bytes are valid during the call only.
  virtual void on_message(std::string_view message) = 0;
  /// `bytes` are kept of a message that is large and whose end has not come.
  virtual void on_unfinished(std::size_t bytes) { static_cast<void>(bytes); }
  /// The end, exactly once, after the last message. Never called when the call was destroyed first.
  virtual void on_end(const Status& status) = 0;
};

/// A running call. Destroying it before its end resets the stream (CANCEL).
class Call {
 public:
  virtual ~Call() = default;
  /// Nothing more is handed on until `resume`, and the stream's flow-control window is not
  /// returned: the server stops sending once it is used up, while other calls on the connection go
  /// on.
  virtual void pause() = 0;
  /// Returns what was held back.
  virtual void resume() = 0;
  /// Ends the call as its destruction would: nothing more is handed on. For observers that give a
  /// call up from inside its events, where it cannot be destroyed at once.
  virtual void give_up() = 0;
};

/// How a channel connects.
struct ChannelOptions {
  /// Either direction; RESOURCE_EXHAUSTED above.
  std::size_t max_message_bytes = 64 * 1024 * 1024;
  Duration connect_timeout = std::chrono::seconds(5);     ///< One attempt.
  Duration min_backoff = std::chrono::milliseconds(100);  ///< First pause after a failed attempt.
  Duration max_backoff = std::chrono::seconds(5);         ///< Longest pause; jittered by a fifth.
  Duration ping_interval = std::chrono::seconds(20);      ///< Keep-alive while calls run.
  Duration ping_timeout = std::chrono::seconds(10);       ///< No answer: the connection is dead.
  Duration quiet_after = std::chrono::milliseconds(500);  ///< A connection without calls and bytes
                                                          ///< for so long may have died unseen.
  Duration quiet_ping_timeout = std::chrono::seconds(3);  ///< The first call there is sent with a
                                                          ///< ping, and once more on another
                                                          ///< connection when nothing comes back.
  std::uint32_t stream_window_bytes = 256 * 1024;         ///< Receive window of one call.
  std::size_t max_connections = 16;                       ///< Opened at the peer's stream limit.
  std::size_t max_waiting = 4096;  ///< Calls waiting for a connection; RESOURCE_EXHAUSTED above.
};

class ChannelCore;

/// Calls to one server from one reactor: a lazily connected pool of HTTP/2 connections, another one
/// whenever the peer's concurrent-stream limit is reached. During back-off calls fail at once with
/// UNAVAILABLE (origin Connect). Destroying the channel ends its calls without `on_end`.
class Channel {
 public:
  /// `authority` is sent as `:authority`; `dialer` must outlive the channel.
  Channel(Dialer& dialer, std::string authority, std::vector<Address> addresses,
          ChannelOptions options = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Starts a call with one request message: `path` is `/package.Service/Method`. The observer must
  /// outlive the call. The call's events never begin inside `start`, at the earliest when the turn
  /// ends. Metadata that cannot be sent as a field is dropped.
  std::unique_ptr<Call> start(std::string_view path, const Metadata& metadata,
                              std::string_view request, CallObserver& observer,
                              std::optional<TimePoint> deadline = std::nullopt);
  /// A call with exactly one answer. Must not outlive the channel.
  Task<std::expected<std::string, Status>> unary(std::string_view path, const Metadata& metadata,
                                                 std::string request, TimePoint deadline);
  /// Replaces the addresses used by later connection attempts.
  void set_addresses(std::vector<Address> addresses);
  /// Open connections.
  std::size_t connections() const;
  /// Running calls.
  std::size_t calls() const;

 private:
  std::unique_ptr<ChannelCore> core_;
};

/// One call at the server. Lives as long as its handler's task; when the client cancels, the task
/// is destroyed.
class ServerCall {
 public:
  /// `exchange` must be a gRPC request over HTTP/2.
  explicit ServerCall(http::Exchange& exchange) : exchange_(exchange) {}

  /// The request message.
  std::string_view request() const { return request_; }
  /// The value of a metadata key (lower-case), if any; as it was sent, so `-bin` values are base64.
  std::optional<std::string_view> metadata(std::string_view name) const {
    return exchange_.request().headers.find(name);
  }
  /// Appends one message; it leaves at the end of the turn.
  void write(std::string_view message);
  /// Ends the call.
  void finish(const Status& status, const Metadata& trailers = {});
  /// True after `finish`.
  bool finished() const { return finished_; }
  /// The exchange below, for back-pressure.
  http::Exchange& exchange() { return exchange_; }

 private:
  friend class Service;
  http::Exchange& exchange_;
  std::string_view request_;
  bool finished_ = false;
};

/// Methods by path; becomes the handler of an http::Server. Unknown methods are UNIMPLEMENTED;
/// malformed requests are refused as gRPC says; the client's `grpc-timeout` ends the call with
/// DEADLINE_EXCEEDED. A handler that returns without `finish` ends its call with OK.
class Service {
 public:
  /// Answers one call, as a task owned by its connection.
  using Method = std::function<Task<>(ServerCall&)>;
  /// Adds a method: `path` is `/package.Service/Method`.
  void add(std::string path, Method method);
  /// Requests above `bytes` end with OUT_OF_RANGE, as tonic's do. Without it only the server's body
  /// limit holds, with RESOURCE_EXHAUSTED.
  void limit_requests(std::size_t bytes) { max_request_bytes_ = bytes; }
  /// The handler; the service must outlive the server.
  http::Handler handler();

 private:
  Task<> serve(http::Exchange& exchange);
  const Method* find(std::string_view path) const;
  static bool read_request(ServerCall& call, std::size_t max_bytes);
  static Task<> run(const Method& method, ServerCall& call);

  std::vector<std::pair<std::string, Method>> methods_;
  std::size_t max_request_bytes_ = 0xffffffff;
};

}  // namespace fairlead::net::grpc
