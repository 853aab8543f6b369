#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fairlead::tokenizer {

/// Length in bytes of the character that starts with `lead`, in text known to be well-formed.
inline std::size_t character_length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Decodes the character at `p`, in text known to be well-formed; sets its length.
inline char32_t decode_valid(const char* p, std::size_t& length) {
  const auto byte = [p](int i) { return static_cast<char32_t>(static_cast<unsigned char>(p[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    length = 1;
    return lead;
  }
  if (lead < 0xE0) {
    length = 2;
    return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  }
  if (lead < 0xF0) {
    length = 3;
    return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  }
  length = 4;
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

/// Start of the character that ends at `end` (not 0), in text known to be well-formed.
inline std::size_t previous_character(std::string_view text, std::size_t end) {
  do {
    --end;
  } while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

}  // namespace fairlead::tokenizer
