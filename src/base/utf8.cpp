#include "base/utf8.hpp"

namespace fairlead::utf8 {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Scan {
  int length;      // bytes looked at: the sequence, or the maximal ill-formed part
  bool valid;      // a whole well-formed sequence
  bool cut_short;  // well-formed so far, but the text ended
  char32_t code_point;
};

// Table 3-7 of the Unicode standard: which second bytes each lead byte allows.
Scan scan(std::string_view text) {
  if (text.empty()) {
    return {0, false, false, kReplacement};
  }
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return {1, true, false, lead};
  }
  int length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  char32_t value = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0F;
    low = lead == 0xE0 ? 0xA0 : 0x80;
    high = lead == 0xED ? 0x9F : 0xBF;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
    low = lead == 0xF0 ? 0x90 : 0x80;
    high = lead == 0xF4 ? 0x8F : 0xBF;
  } else {
    return {1, false, false, kReplacement};
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= text.size()) {
      return {i, false, true, kReplacement};
    }
    const unsigned next = byte(static_cast<std::size_t>(i));
    if (next < low || next > high) {
      return {i, false, false, kReplacement};
    }
    value = (value << 6) | (next & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false, value};
}

}  // namespace

int sequence_length(std::string_view text) {
  const Scan result = scan(text);
  return result.valid ? result.length : 0;
}

bool is_incomplete(std::string_view text) { return scan(text).cut_short; }

bool valid(std::string_view text) {
  while (!text.empty()) {
    const int length = sequence_length(text);
    if (length == 0) {
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return true;
}

char32_t decode(std::string_view text, std::size_t& pos) {
  const Scan result = scan(text.substr(pos));
  pos += static_cast<std::size_t>(result.length);
  return result.code_point;
}

void append(std::string& out, char32_t code_point) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    code_point = kReplacement;
  }
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::size_t count(std::string_view text) {
  std::size_t total = 0;
  for (const char c : text) {
    total += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
  return total;
}

std::string lossy(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    append(out, decode(text, pos));
  }
  return out;
}

}  // namespace fairlead::utf8
