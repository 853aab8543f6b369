#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/task.hpp"

namespace fairlead::net::http {

/// One header field; names are lower-case.
struct Header {
  std::string name;   ///< Lower-case.
  std::string value;  ///< Without surrounding blanks.
};

/// Header fields in their order.
class HeaderList {
 public:
  HeaderList() = default;
  /// Fields in the order given; names must be lower-case.
  HeaderList(std::initializer_list<Header> headers) : headers_(headers) {}
  /// Appends a field; `name` must be lower-case.
  void add(std::string name, std::string value) {
    headers_.push_back({std::move(name), std::move(value)});
  }
  /// The first field of this lower-case name.
  std::optional<std::string_view> find(std::string_view name) const {
    for (const Header& header : headers_) {
      if (header.name == name) {
        return header.value;
      }
    }
    return std::nullopt;
  }
  /// Removes every field.
  void clear() { headers_.clear(); }
  /// Number of fields.
  std::size_t size() const { return headers_.size(); }
  /// First field.
  auto begin() const { return headers_.begin(); }
  /// Past the last field.
  auto end() const { return headers_.end(); }

 private:
  std::vector<Header> headers_;
};

/// Spare bytes that every request body keeps allocated behind its end, as simdjson needs them.
inline constexpr std::size_t kBodyPadding = 64;

/// A request, complete with its body.
struct Request {
  std::string method;  ///< Upper-case, e.g. `POST`.
  std::string path;    ///< Percent-decoded path, without the query.
  std::string query;   ///< Raw query without the `?`; may be empty.
  HeaderList headers;  ///< All fields; HTTP/2 pseudo-headers are not among them.
  std::string body;    ///< Capacity exceeds size by at least kBodyPadding.
  bool http2 = false;  ///< Arrived over HTTP/2.
  std::string peer;    ///< The client's address, for logs.
};

/// One request and the writer of its response, the same for HTTP/1 and HTTP/2: all that a handler
/// sees of the network. Belongs to the connection's reactor. When the client leaves (FIN, RST, dead
/// peer) or the server cuts it, the connection destroys the handler's task: whatever the task holds
/// is given back by destructors. A handler that returns without having finished its response gets a
/// 500 (nothing sent yet) or an aborted connection.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// The request.
  const Request& request() const { return request_; }
  /// The request, for handlers that move its body out.
  Request& request() { return request_; }

  /// Sends a whole response. At most one of `respond` and `start` may be called, once.
  virtual void respond(int status, const HeaderList& headers, std::string_view body) = 0;
  /// `respond` that takes the body over, without a copy where possible, which room for the head
  /// behind it helps. `kept` is let go when the client has taken all of it, or is gone.
  virtual void respond_owned(int status, const HeaderList& headers, std::string body,
                             std::shared_ptr<void> kept) {
    const std::shared_ptr<void> kept_meanwhile = std::move(kept);
    const std::string owned = std::move(body);
    respond(status, headers, owned);
  }
  /// Begins a response whose body is written piece by piece.
  virtual void start(int status, const HeaderList& headers) = 0;
  /// Body bytes that wait for the end of the turn; append to it, then call `commit`.
  std::string& out() { return pending_; }
  /// What was appended to `out` leaves at the end of this turn, coalesced.
  virtual void commit() = 0;
  /// Ends a started response. Trailers are sent over HTTP/2 and dropped over HTTP/1.
  virtual void finish(const HeaderList& trailers = {}) = 0;

  /// Behind `finish`: `kept` is let go as in `respond_owned`.
  virtual void keep(std::shared_ptr<void> kept) = 0;

  /// True after `respond` or `start`.
  virtual bool started() const = 0;
  /// True after `respond` or `finish`.
  virtual bool finished() const = 0;
  /// Body bytes of this exchange that the client has not taken yet.
  virtual std::size_t unsent() const = 0;

  /// Called in a turn after `unsent` has fallen below the server's low mark, having been above its
  /// high mark. The writer pauses its source in between.
  void set_on_drain(std::move_only_function<void()> callback) { on_drain_ = std::move(callback); }

 protected:
  Request request_;
  std::string pending_;
  std::move_only_function<void()> on_drain_;
};

/// Answers requests; runs as a task owned by the connection.
using Handler = std::function<Task<>(Exchange&)>;

/// The reason phrase of a status.
std::string_view reason_phrase(int status);

}  // namespace fairlead::net::http
