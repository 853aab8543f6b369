#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "net/body_budget.hpp"
#include "net/http.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/stream.hpp"

namespace fairlead::net::http {

/// Bounds of one server's connections.
struct ServerLimits {
  std::size_t header_bytes = 64 * 1024;            ///< Request line and fields together: 431 above.
  std::size_t header_count = 256;                  ///< Fields: 431 above.
  std::size_t body_bytes = 45 * 1024 * 1024;       ///< 413 above.
  std::size_t read_ahead_bytes = 256 * 1024;       ///< Pipelined bytes kept while a request runs.
  std::size_t high_mark_bytes = 256 * 1024;        ///< Unsent response bytes that pause the source.
  std::size_t low_mark_bytes = 64 * 1024;          ///< Unsent bytes at which it goes on.
  std::size_t max_unsent_bytes = 8 * 1024 * 1024;  ///< A client with more unsent is cut.
  Duration header_timeout = std::chrono::seconds(15);  ///< First byte to end of head: 408.
  Duration body_timeout = std::chrono::seconds(60);    ///< Longest pause inside a body: 408.
  std::size_t body_min_rate = 1024;  ///< Bytes of a body per second: 408 below; 0 takes any rate.
  Duration idle_timeout = std::chrono::seconds(75);  ///< Keep-alive connection without request.
  Duration slow_reader_timeout = std::chrono::seconds(60);  ///< Unsent bytes without progress: cut.
  std::uint32_t max_streams = 256;     ///< Concurrent HTTP/2 streams per connection.
  bool allow_half_close = false;       ///< A FIN while a request is in flight is not a leave.
  SocketOptions socket;                ///< Options of accepted sockets.
  std::shared_ptr<BodyBudget> bodies;  ///< Shared by servers; null: 1 GiB of each server's own.
  std::uint32_t retry_after_secs = 1;  ///< Retry-After when `bodies` has no room.

  /// The deadline of an unfinished body to which `bytes` more have come: each buys time at
  /// `body_min_rate`, but never more than `body_timeout` from now.
  TimePoint body_deadline(TimePoint deadline, std::size_t bytes, TimePoint now) const;
};

/// What a server counts; single writer (its reactor), any reader.
struct ServerCounters {
  std::atomic<std::uint64_t> connections_total{0};  ///< Accepted.
  std::atomic<std::uint64_t> connections_open{0};   ///< Open now.
  std::atomic<std::uint64_t> requests_total{0};     ///< Handed to the handler.
  std::atomic<std::uint64_t> clients_gone{0};       ///< Left while a request was in flight.
  std::atomic<std::uint64_t> slow_readers_cut{0};   ///< Cut for not reading.
  std::atomic<std::uint64_t> bad_requests{0};       ///< Refused before the handler.
  std::atomic<std::uint64_t> bodies_refused{0};     ///< Those of them for want of room.
};

/// Renders the error of a request that never reached the handler (431, 413, 408, 400): body bytes
/// for a status and a message. Content type is JSON.
using ErrorBody = std::function<std::string(int status, std::string_view message)>;

/// The connections of one reactor. HTTP/1.1 and, chosen by the client's preface, HTTP/2 without
/// TLS. Destroying it closes every connection and cancels every handler.
class Server {
 public:
  /// `handler` must outlive the server.
  Server(Handler handler, ServerLimits limits, ErrorBody error_body);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Serves an accepted descriptor in the current reactor, which owns this server.
  void accept(int fd);
  /// Serves a connected stream.
  void accept(std::unique_ptr<Stream> stream);
  /// Begins the drain: idle connections close, answers carry `Connection: close`, HTTP/2 peers get
  /// GOAWAY. New connections are still answered (so that they read a 503).
  void drain();
  /// Open connections.
  std::size_t connections() const;
  /// Requests whose handler runs, and answers with bytes that the client's connection has not taken
  /// yet.
  std::size_t in_flight() const;
  /// Counters.
  const ServerCounters& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fairlead::net::http
