#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http.hpp"

// The bytes of HTTP/1 heads and chunks that are sent; internal to net.

namespace fairlead::net::http {

/// What stands in a response head besides the handler's fields.
struct ResponseHeadOptions {
  std::string_view date;                      ///< Value of the Date field.
  std::optional<std::size_t> content_length;  ///< Adds Content-Length.
  bool chunked = false;                       ///< Adds Transfer-Encoding: chunked.
  std::string_view connection;                ///< Value of the Connection field; empty for none.
};

/// Appends a response head. Fields that frame the message or name the connection are not taken from
/// `headers`; control characters in values become blanks.
void append_response_head(std::string& out, int status, const HeaderList& headers,
                          const ResponseHeadOptions& options);

/// Appends `name: value`; control characters in the value become blanks.
void append_field(std::string& out, std::string_view name, std::string_view value);

/// True for the fields that belong to the writer of a message, not to its author: Connection,
/// Content-Length, Transfer-Encoding, Keep-Alive, Date, Upgrade.
bool is_writers_field(std::string_view lower_case_name);

/// Longest head of a chunk.
inline constexpr std::size_t kChunkHeadBytes = 18;

/// Writes the head of a chunk of `size` bytes to `out`; the result is what was written.
std::string_view write_chunk_head(char (&out)[kChunkHeadBytes], std::size_t size);

}  // namespace fairlead::net::http
