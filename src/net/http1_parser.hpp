#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.hpp"
#include "net/http_client.hpp"

// Heads of HTTP/1 messages (RFC 9112), read strictly: whatever two parsers could read in two ways
// is refused. Internal to net; Boost.Beast stays behind it.

namespace fairlead::net::http {

/// Why a message is refused.
struct Refusal {
  int status = 400;          ///< Status for the client.
  std::string_view message;  ///< Static text.
};

/// Finds the end of a message head, however the bytes arrive: each is looked at once.
class HeadScanner {
 public:
  /// What is known so far.
  enum class Status : std::uint8_t {
    NeedMore,       ///< The head goes on.
    Complete,       ///< `size` is known.
    TooLarge,       ///< Above `max_bytes`.
    TooManyFields,  ///< Above `max_fields`.
    Malformed,      ///< A bare LF, a folded line, or no message at all.
  };
  /// `bytes` begins with the head and contains what former calls have seen.
  Status scan(std::string_view bytes, std::size_t max_bytes, std::size_t max_fields);
  /// Bytes of the head, with the empty line.
  std::size_t size() const { return position_; }
  /// Gets ready for another head.
  void reset() { *this = HeadScanner(); }

 private:
  std::size_t position_ = 0;
  std::size_t line_start_ = 0;
  std::size_t lines_ = 0;
};

/// How a request goes on after its head.
struct RequestFraming {
  bool http11 = true;                ///< HTTP/1.1, otherwise 1.0.
  bool keep_alive = true;            ///< The client will send another request.
  bool chunked = false;              ///< A chunked body follows.
  bool expect_continue = false;      ///< The client waits for a 100 before it sends the body.
  std::uint64_t content_length = 0;  ///< Body bytes when not chunked.
};

/// Parses a complete head into `request` (method, path, query, headers).
std::expected<RequestFraming, Refusal> parse_request_head(std::string_view head, Request& request);

/// How a response goes on after its head.
struct ResponseFraming {
  bool keep_alive = true;                       ///< The server will answer another request.
  bool chunked = false;                         ///< A chunked body follows.
  std::optional<std::uint64_t> content_length;  ///< Body bytes; without it and not chunked, the
                                                ///< body ends with the connection.
};

/// Parses a complete head into `response` (status, headers). `to_head_request`: there is no body.
std::expected<ResponseFraming, Refusal> parse_response_head(std::string_view head,
                                                            bool to_head_request,
                                                            ClientResponse& response);

}  // namespace fairlead::net::http
