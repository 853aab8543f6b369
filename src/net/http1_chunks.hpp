#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::net::http {

/// A character of a method or field name (RFC 9110, `tchar`).
constexpr bool is_token_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").contains(c);
}

/// Removes the chunked coding (RFC 9112, section 7.1), byte for byte: nothing has to be presented
/// twice. Extensions and trailers are checked and dropped. Beast's own decoder is not used because
/// what it makes of a quoted extension depends on how the bytes were cut. Internal to net.
class ChunkedDecoder {
 public:
  /// What is known so far.
  enum class Status : std::uint8_t {
    NeedMore,       ///< The body goes on.
    Complete,       ///< The body and its trailers have ended.
    BodyTooLarge,   ///< Above `max_body`.
    HeadsTooLarge,  ///< A chunk's head or the trailers are above `max_head` or `max_fields`.
    Malformed,      ///< Not the chunked coding.
  };
  /// `max_body` bounds the decoded bytes, `max_head` the bytes of one chunk's head and those of all
  /// trailers, `max_fields` the trailers' number.
  ChunkedDecoder(std::uint64_t max_body, std::size_t max_head, std::size_t max_fields)
      : body_left_(max_body), max_head_(max_head), fields_left_(max_fields) {}

  /// Appends decoded bytes to `out`. `consumed` is all of `bytes` unless the body has ended before.
  Status feed(std::string_view bytes, std::size_t& consumed, std::string& out);

 private:
  enum class State : std::uint8_t {
    Size,       // digits
    Extension,  // up to the CR
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,  // the first character of a line
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
  };

  Status step(char c);
  Status add_digit(char c);
  Status begin_data();

  std::uint64_t body_left_;
  std::size_t max_head_;
  std::size_t fields_left_;
  State state_ = State::Size;
  bool has_digits_ = false;
  std::uint64_t size_ = 0;      // of the chunk; in Data: what is left of it
  std::size_t head_bytes_ = 0;  // of this chunk's head, or of the trailers
};

}  // namespace fairlead::net::http
