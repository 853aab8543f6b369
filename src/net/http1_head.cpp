#include "net/http1_head.hpp"

#include <algorithm>
#include <charconv>

namespace fairlead::net::http {
namespace {

void append_number(std::string& out, std::uint64_t value) {
  char digits[20];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, result.ptr);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == '\x7f'; }

}  // namespace

bool is_writers_field(std::string_view name) {
  switch (name.size()) {
    case 4: return name == "date";
    case 7: return name == "upgrade";
    case 10: return name == "connection" || name == "keep-alive";
    case 14: return name == "content-length";
    case 17: return name == "transfer-encoding";
    default: return false;
  }
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  const std::size_t start = out.size();
  out.append(value);
  if (std::ranges::any_of(value, is_control)) {
    std::replace_if(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(), is_control, ' ');
  }
  out.append("\r\n");
}

void append_response_head(std::string& out, int status, const HeaderList& headers,
                          const ResponseHeadOptions& options) {
  if (status == 200) {
    out.append("HTTP/1.1 200 OK\r\n");
  } else {
    out.append("HTTP/1.1 ");
    append_number(out, static_cast<std::uint64_t>(std::clamp(status, 100, 999)));
    out.append(" ").append(reason_phrase(status)).append("\r\n");
  }
  for (const Header& header : headers) {
    if (!is_writers_field(header.name)) {
      append_field(out, header.name, header.value);
    }
  }
  out.append("date: ").append(options.date).append("\r\n");
  if (options.content_length) {
    out.append("content-length: ");
    append_number(out, *options.content_length);
    out.append("\r\n");
  }
  if (options.chunked) {
    out.append("transfer-encoding: chunked\r\n");
  }
  if (!options.connection.empty()) {
    out.append("connection: ").append(options.connection).append("\r\n");
  }
  out.append("\r\n");
}

std::string_view write_chunk_head(char (&out)[kChunkHeadBytes], std::size_t size) {
  const auto result = std::to_chars(out, out + kChunkHeadBytes - 2, size, 16);
  *result.ptr = '\r';
  *(result.ptr + 1) = '\n';
  return {out, static_cast<std::size_t>(result.ptr + 2 - out)};
}

}  // namespace fairlead::net::http
