#include "tokenizer/byte_level.hpp"

#include <array>

#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr bool is_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

constexpr std::array<char32_t, 256> kChars = [] {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    chars[byte] = is_itself(byte) ? byte : next++;
  }
  return chars;
}();

// Byte of each code point below the end of the mapped range, or -1.
constexpr std::array<short, 0x144> kBytes = [] {
  std::array<short, 0x144> bytes{};
  bytes.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes[kChars[byte]] = static_cast<short>(byte);
  }
  return bytes;
}();

}  // namespace

char32_t byte_level_char(unsigned char byte) { return kChars[byte]; }

bool append_byte_level_bytes(std::string& out, std::string_view spelling) {
  const std::size_t before = out.size();
  out.resize(before + spelling.size());
  char* end = out.data() + before;
  for (std::size_t pos = 0; pos < spelling.size();) {
    std::size_t length = 0;
    const char32_t c = decode_valid(spelling.data() + pos, length);
    if (c >= kBytes.size() || kBytes[c] < 0) {
      out.resize(before);
      return false;
    }
    *end++ = static_cast<char>(kBytes[c]);
    pos += length;
  }
  out.resize(static_cast<std::size_t>(end - out.data()));
  return true;
}

}  // namespace fairlead::tokenizer
