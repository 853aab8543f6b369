#include "tokenizer/base64.hpp"

#include <array>
#include <cstdint>

namespace fairlead::tokenizer {

namespace {

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<short, 256> kBase64Values = [] {
  std::array<short, 256> values{};
  values.fill(-1);
  for (std::size_t i = 0; i < kBase64.size(); ++i) {
    values[static_cast<unsigned char>(kBase64[i])] = static_cast<short>(i);
  }
  return values;
}();

}  // namespace

bool append_base64_bytes(std::string& out, std::string_view text) {
  if (text.size() % 4 != 0) {
    return false;
  }
  for (int i = 0; i < 2 && text.ends_with('='); ++i) {
    text.remove_suffix(1);
  }
  const std::size_t before = out.size();
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = kBase64Values[static_cast<unsigned char>(c)];
    if (value < 0) {
      out.resize(before);
      return false;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  if ((bits & ((1u << count) - 1)) != 0) {
    out.resize(before);
    return false;
  }
  return true;
}

}  // namespace fairlead::tokenizer
