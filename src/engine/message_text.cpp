#include "engine/message_text.hpp"

#include <algorithm>
#include <cstddef>

namespace fairlead::engine {
namespace {

/// What is kept of a message.
constexpr std::size_t kMessageBytes = 4096;

}  // namespace

std::string one_line(std::string text) {
  if (text.size() > kMessageBytes) {
    std::size_t end = kMessageBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) {
      --end;  // not inside a character
    }
    text.resize(end);
    text += "…";
  }
  std::ranges::replace_if(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  return text;
}

}  // namespace fairlead::engine
