#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "net/http1_chunks.hpp"
#include "net/http1_parser.hpp"
#include "net/http_client.hpp"

namespace fairlead::net::http {

/// Reads one HTTP/1 response from bytes in any cut; internal to net. Failures carry EngineProtocol
/// (malformed, too large) or EngineDisconnected (ended early).
class ResponseReader {
 public:
  /// Receives the body as it arrives.
  using OnBody = std::function<void(std::string_view)>;

  /// `to_head_request`: the response has no body. `on_body`, when not null, receives the body of a
  /// response with status < 400; every other body is collected.
  ResponseReader(const ClientLimits& limits, bool to_head_request, const OnBody* on_body)
      : limits_(limits), to_head_request_(to_head_request), on_body_(on_body) {}

  /// Takes the next bytes.
  Result<> feed(std::string_view bytes);
  /// The server has closed its side.
  Result<> end();

  /// True when the response is complete.
  bool done() const { return state_ == State::Done; }
  /// True when any byte has arrived.
  bool begun() const { return begun_; }
  /// True when the connection can carry another request.
  bool reusable() const { return done() && framing_.keep_alive && !excess_; }
  /// The response.
  ClientResponse& response() { return response_; }

 private:
  enum class State : std::uint8_t { Head, Body, Chunked, UntilEnd, Done };

  Result<> process(std::string_view bytes, std::size_t& consumed);
  Result<> process_head(std::string_view bytes, std::size_t& consumed);
  Result<> process_chunks(std::string_view bytes, std::size_t& consumed);
  Result<> deliver(std::string_view bytes);
  bool collects() const { return on_body_ == nullptr || response_.status >= 400; }
  void begin_body();

  ClientLimits limits_;
  bool to_head_request_;
  const OnBody* on_body_;
  State state_ = State::Head;
  bool begun_ = false;
  bool excess_ = false;  // bytes arrived behind the response
  int interim_ = 0;      // 1xx responses skipped
  HeadScanner scanner_;
  ResponseFraming framing_;
  std::uint64_t remaining_ = 0;
  std::optional<ChunkedDecoder> decoder_;
  std::string input_;    // what is not processed
  std::string decoded_;  // of chunks
  ClientResponse response_;
};

}  // namespace fairlead::net::http
