#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "net/event.hpp"
#include "net/http.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::net::http {

/// A request to send.
struct ClientRequest {
  std::string method = "GET";  ///< Upper-case.
  std::string target = "/";    ///< Path and query, already percent-encoded.
  HeaderList headers;          ///< Extra fields; Host and Content-Length are added.
  std::string body;            ///< Empty for none.
};

/// A response; `body` is empty when it was streamed.
struct ClientResponse {
  int status = 0;      ///< HTTP status.
  HeaderList headers;  ///< Lower-case names.
  std::string body;    ///< Whole body.
};

/// Bounds of a client.
struct ClientLimits {
  std::size_t header_bytes = 64 * 1024;       ///< Response head.
  std::size_t body_bytes = 64 * 1024 * 1024;  ///< Collected body, or one SSE event.
  std::size_t idle_connections = 32;          ///< Kept open per client.
  /// A connection idle for longer is closed.
  Duration idle_timeout = std::chrono::seconds(30);
  Duration connect_timeout = std::chrono::seconds(5);  ///< All addresses together.
  /// Connections that are being established at once, so that a burst of requests does not overflow
  /// the server's accept queue. Further requests wait; in vain when for the time above none of them
  /// is established.
  std::size_t dials_at_once = 64;
};

/// Stops and restarts the reading of one streamed response, in the client's reactor. Must outlive
/// that request's task.
class BodyGate {
 public:
  BodyGate() = default;
  BodyGate(const BodyGate&) = delete;
  BodyGate& operator=(const BodyGate&) = delete;

  /// Nothing more is read from the connection: the sender will stop when the buffers between are
  /// full. What was read already, at most 64 KiB, still arrives.
  void pause() { paused_ = true; }
  /// Goes on reading.
  void resume() {
    paused_ = false;
    if (reader_) {
      reader_->set();
    }
  }
  /// True between `pause` and `resume`.
  bool paused() const { return paused_; }

 private:
  friend class Client;

  bool paused_ = false;
  Event* reader_ = nullptr;  // of the connection while the request runs
};

/// HTTP/1.1 client of one server in one reactor, with a pool of idle connections. A request on a
/// reused connection that breaks before any byte of the answer is sent again once on a new one.
class Client {
 public:
  /// `host` fills the Host field; `addresses` are tried in order.
  Client(Dialer& dialer, std::string host, std::vector<Address> addresses,
         ClientLimits limits = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Replaces the addresses of later connections; idle ones to the former addresses are closed.
  void set_addresses(std::vector<Address> addresses);
  /// Sends a request and collects the answer. Failures are transport errors only; any status is a
  /// response. Destroying the task closes the connection.
  Task<Result<ClientResponse>> send(ClientRequest request, TimePoint deadline);
  /// Sends a request and hands the body on as it arrives; `on_body` is called in the reactor. A
  /// response with status >= 400 is collected into `body` instead. A paused `gate` holds the whole
  /// answer back.
  Task<Result<ClientResponse>> stream(ClientRequest request, TimePoint deadline,
                                      std::function<void(std::string_view)> on_body,
                                      BodyGate* gate = nullptr);
  /// Connections opened so far. One more although others were idle means that the server had closed
  /// those: perhaps it was another one.
  std::uint64_t dials() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Incremental reader of server-sent events (WHATWG): any chunking, LF, CR or CRLF, comments
/// skipped. `on_event(event, data)` is called per event; `event` is `message` when not named.
class SseReader {
 public:
  /// Lines and events above `max_event_bytes` are an error.
  explicit SseReader(std::size_t max_event_bytes = 64 * 1024 * 1024);
  /// Feeds bytes; false from then on when the bound was exceeded.
  bool feed(std::string_view bytes,
            const std::function<void(std::string_view event, std::string_view data)>& on_event);

 private:
  void line(std::string_view text,
            const std::function<void(std::string_view event, std::string_view data)>& on_event);

  std::size_t max_event_bytes_;
  std::size_t event_bytes_ = 0;  // of the data lines since the last event
  std::string buffer_;           // a line whose end has not come
  std::string event_;
  std::string data_;
  bool has_data_ = false;
  bool skip_lf_ = false;  // an LF now belongs to the CR before it
  bool at_start_ = true;
  bool failed_ = false;
};

}  // namespace fairlead::net::http
