#include "api/request_ids.hpp"

#include <array>

namespace fairlead::api {
namespace {

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool is_dash_place(std::size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

}  // namespace

bool is_uuid(std::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_dash_place(i) ? text[i] != '-' : !is_hex(text[i])) {
      return false;
    }
  }
  return true;
}

std::string RequestIds::next(const net::http::HeaderList& headers) {
  for (const std::string_view name : {"request-id", "x-dynamo-request-id"}) {
    if (const auto given = headers.find(name)) {
      if (is_uuid(*given)) {
        return std::string(*given);
      }
      break;
    }
  }
  static constexpr char kHex[] = "0123456789abcdef";
  const std::array<std::uint64_t, 2> bits{random_(), random_()};
  std::string id(36, '-');
  std::size_t nibble = 0;
  for (std::size_t i = 0; i < id.size(); ++i) {
    if (!is_dash_place(i)) {
      id[i] = kHex[(bits[nibble / 16] >> (nibble % 16 * 4)) & 15];
      ++nibble;
    }
  }
  id[14] = '4';
  id[19] = "89ab"[bits[1] >> 62];
  return id;
}

}  // namespace fairlead::api
