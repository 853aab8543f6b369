#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/intrusive_list.hpp"
#include "net/http_server.hpp"
#include "net/stream.hpp"

// What http::Server and the connections of its two protocols know of each other; internal to net.

namespace fairlead::net::http {

/// One client's connection, owned by the server. Destroying it closes the stream and destroys the
/// tasks of its handlers; its destructor must not touch the server's context.
class ServerConnection : public ListNode<ServerConnection> {
 public:
  ServerConnection() = default;
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;
  virtual ~ServerConnection() = default;

  /// Called once by the server, after it has taken the connection: registers for readiness,
  /// processes the received bytes and reads until the stream would block (edges seen before are not
  /// repeated). May end in `ServerContext::closed`.
  virtual void start() = 0;
  /// Begins the drain: closes at once when idle, otherwise after the requests in flight.
  virtual void drain() = 0;
  /// Requests whose handler runs, and answers that still have bytes which the transport has not
  /// taken: a drain waits for both.
  virtual std::size_t in_flight() const = 0;
};

/// Adds to a counter that has one writer, without a locked instruction.
inline void bump(std::atomic<std::uint64_t>& counter, std::int64_t by = 1) {
  counter.store(counter.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(by),
                std::memory_order_relaxed);
}

/// What the connections of one server share. Lives as long as the server.
struct ServerContext {
  Handler handler;          ///< Answers requests.
  ServerLimits limits;      ///< Bounds, with the high and low marks of unsent bytes.
  ErrorBody error_body;     ///< Bodies of refusals.
  ServerCounters counters;  ///< `connections_*` are kept by the server, the rest by connections.
  bool draining = false;    ///< Set before the connections' `drain` is called.
  /// To be called once by a connection that is over, from anywhere, even below its handler: it
  /// leaves the server now and is destroyed when the turn ends.
  std::function<void(ServerConnection&)> closed;
  /// Scratch space for reads, shared by all connections: what is to be kept must be copied out
  /// before control returns to the reactor.
  std::span<char> read_buffer;

  /// Adds the `retry-after` of a refusal for want of room.
  void add_retry_after(int status, HeaderList& headers) const {
    if (status == 503) {
      headers.add("retry-after", std::to_string(limits.retry_after_secs));
    }
  }

  /// Value of the `Date` field, made once per second. Valid until the next call.
  std::string_view date();

 private:
  std::int64_t date_second_ = -1;
  std::string date_;
};

/// Splits a request target in origin form (`/path?query`), absolute form or `*` into
/// `request.path`, percent-decoded, and `request.query`, raw. False when it is malformed: a bad
/// escape, an escaped NUL, a fragment, or none of these forms.
bool split_target(std::string_view target, Request& request);

/// The text of a 503 because unfinished requests fill the budget.
inline constexpr std::string_view kNoRoomText =
    "too many bytes of unfinished requests are held, please retry later";

/// The text of a 413.
std::string body_too_large_text(std::size_t limit_bytes);

/// An HTTP/1 connection. `received` holds the bytes read so far.
std::unique_ptr<ServerConnection> make_http1_connection(ServerContext& context,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string received);

/// An HTTP/2 connection. `received` holds the bytes read so far and begins with the whole preface.
std::unique_ptr<ServerConnection> make_http2_connection(ServerContext& context,
                                                        std::unique_ptr<Stream> stream,
                                                        std::string received);

}  // namespace fairlead::net::http
