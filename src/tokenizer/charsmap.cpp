#include "tokenizer/charsmap.hpp"

#include <algorithm>
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

// Calls `visit(length, value)` for each key that `text` begins with, from the shortest on, while it
// returns true. Whether all of the text was walked. The trie is outside bytes: a walk that leaves
// it ends without a match.
template <class Visit>
bool Charsmap::walk(std::string_view text, Visit&& visit) const {
  std::size_t at = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) {
      return false;
    }
    const bool leaf = has_leaf(units_[at]);
    at ^= offset_of(units_[at]);
    if (leaf && (at >= units_.size() || !visit(i + 1, value_of(units_[at])))) {
      return false;
    }
  }
  return true;
}

// The text up to the next NUL. One that does not begin at a character would make malformed text.
std::optional<std::string_view> Charsmap::replacement(std::uint32_t begin) const {
  if (begin > replacements_.size() ||
      (begin < replacements_.size() &&
       (static_cast<unsigned char>(replacements_[begin]) & 0xC0) == 0x80)) {
    return std::nullopt;
  }
  const std::string_view rest = std::string_view(replacements_).substr(begin);
  return rest.substr(0, rest.find('\0'));
}

std::optional<std::string_view> Charsmap::transform(std::string_view chunk) const {
  std::optional<std::uint32_t> first;
  walk(chunk, [&](std::size_t, std::uint32_t value) {
    first = value;
    return false;
  });
  return first ? replacement(*first) : std::nullopt;
}

Charsmap::Match Charsmap::longest(std::string_view text) const {
  constexpr int kMaxKeys = 32;
  Match match;
  std::uint32_t begin = 0;
  int keys = 0;
  match.may_grow = walk(text, [&](std::size_t length, std::uint32_t value) {
    match.length = length;
    begin = value;
    return ++keys < kMaxKeys;
  });
  const std::optional<std::string_view> found =
      match.length != 0 ? replacement(begin) : std::nullopt;
  match.length = found ? match.length : 0;
  match.replacement = found.value_or(std::string_view());
  return match;
}

std::size_t Charsmap::longest_replacement() const {
  std::size_t longest = 0;
  for (std::size_t at = 0; at < replacements_.size();) {
    const std::size_t end = std::min(replacements_.find('\0', at), replacements_.size());
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  return longest;
}

}  // namespace fairlead::tokenizer
