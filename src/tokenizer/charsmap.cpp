#include "tokenizer/charsmap.hpp"

#include "base/utf8.hpp"
#include "tokenizer/base64.hpp"

namespace fairlead::tokenizer {

namespace {

std::uint32_t little_endian(const char* p) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) {
    value = value << 8 | static_cast<unsigned char>(p[i]);
  }
  return value;
}

// A unit of the trie. Label and value share the lower bits; bit 31 marks a value.
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
std::size_t offset_of(std::uint32_t unit) {
  return std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6);
}

std::unexpected<Error> bad(std::string_view message) {
  return fail(ErrorCode::InvalidRequest, "precompiled_charsmap: " + std::string(message));
}

}  // namespace

Result<Charsmap> Charsmap::create(std::string_view bytes) {
  if (bytes.size() < 4) {
    return bad("cut short");
  }
  const std::size_t count = little_endian(bytes.data()) / 4;
  bytes.remove_prefix(4);
  if (count == 0 || bytes.size() / 4 < count) {
    return bad("cut short");
  }
  Charsmap map;
  map.units_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    map.units_.push_back(little_endian(bytes.data() + 4 * i));
  }
  map.replacements_ = bytes.substr(4 * count);
  if (!utf8::valid(map.replacements_)) {
    return bad("the replacements are not valid UTF-8");
  }
  return map;
}

Result<Charsmap> Charsmap::from_base64(std::string_view text) {
  std::string bytes;
  return append_base64_bytes(bytes, text) ? create(bytes) : bad("not base64");
}

// The trie is outside bytes: a walk that leaves it ends without a match.
std::optional<std::uint32_t> Charsmap::first_value(std::string_view chunk) const {
  std::size_t at = offset_of(units_[0]);
  for (const char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) {
      return std::nullopt;
    }
    const bool leaf = has_leaf(units_[at]);
    at ^= offset_of(units_[at]);
    if (leaf) {
      return at < units_.size() ? std::optional(value_of(units_[at])) : std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<std::string_view> Charsmap::transform(std::string_view chunk) const {
  const std::optional<std::uint32_t> begin = first_value(chunk);
  // A replacement that does not begin at a character would make malformed text.
  if (!begin || *begin > replacements_.size() ||
      (*begin < replacements_.size() &&
       (static_cast<unsigned char>(replacements_[*begin]) & 0xC0) == 0x80)) {
    return std::nullopt;
  }
  const std::string_view rest = std::string_view(replacements_).substr(*begin);
  return rest.substr(0, rest.find('\0'));
}

}  // namespace fairlead::tokenizer
