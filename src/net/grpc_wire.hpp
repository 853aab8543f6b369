#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/grpc.hpp"
#include "net/http2.hpp"

// gRPC's encodings over HTTP/2 (grpc.io, PROTOCOL-HTTP2.md); internal to net.

namespace fairlead::net::grpc {

/// Bytes in front of every message: the compressed flag and a big-endian length.
inline constexpr std::size_t kPrefixBytes = 5;

/// Appends a message with its prefix.
void append_message(std::string& out, std::string_view message);

/// Cuts a byte stream into messages, however it arrives. A message that lies whole in the input is
/// handed out in place; others are assembled in one buffer that is used again.
class MessageReader {
 public:
  /// What `next` found.
  enum class Status : std::uint8_t {
    NeedMore,    ///< The input is used up.
    Message,     ///< `message` is set, valid until the next call and while the input lives.
    Compressed,  ///< The compressed flag is set (or is no flag); final.
    TooLarge,    ///< `length` is above the bound; final.
  };

  /// Messages above `max_message_bytes` are TooLarge.
  explicit MessageReader(std::size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  /// Takes from the front of `input`. Call until NeedMore.
  Status next(std::string_view& input, std::string_view& message);
  /// Length that the last prefix declared.
  std::uint32_t length() const { return length_; }
  /// Bytes kept of a message whose end has not come, after NeedMore.
  std::size_t unfinished() const { return buffer_.size(); }
  /// True between messages: ending here cuts nothing.
  bool at_boundary() const { return prefix_size_ == 0; }

 private:
  bool take_prefix(std::string_view& input);

  std::size_t max_message_bytes_;
  char prefix_[kPrefixBytes] = {};
  std::size_t prefix_size_ = 0;
  std::uint32_t length_ = 0;
  bool delivered_ = false;  // `buffer_` holds the message handed out last
  std::string buffer_;
};

/// Encodes a `grpc-message`: printable ASCII but `%` stays, everything else is escaped.
std::string percent_encode(std::string_view text);
/// Decodes a `grpc-message`; malformed escapes stay as they are.
std::string percent_decode(std::string_view text);

/// Standard base64 without padding, as `-bin` metadata is sent.
std::string base64_encode(std::string_view bytes);
/// Accepts padded and unpadded input; nothing when it is malformed.
std::optional<std::string> base64_decode(std::string_view text);

/// A `grpc-timeout`, rounded up, of at most eight digits.
std::string format_timeout(Duration timeout);
/// Parses a `grpc-timeout`; nothing when it is malformed.
std::optional<Duration> parse_timeout(std::string_view text);

/// Status for an answer without `grpc-status`, from its HTTP status.
StatusCode status_of_http(int status);
/// Status for a reset stream.
StatusCode status_of_reset(http2::ErrorCode code);
/// Status from the text of a `grpc-status` field; Unknown when it is none of the codes.
StatusCode parse_status(std::string_view text);

/// True for `application/grpc`, `application/grpc+proto` and kin.
bool is_grpc_content_type(std::string_view value);
/// The text of a message above a limit, as tonic words it.
std::string too_large_text(std::uint64_t found, std::uint64_t limit);

}  // namespace fairlead::net::grpc
