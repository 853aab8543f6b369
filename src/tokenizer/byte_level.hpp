#pragma once

#include <string>
#include <string_view>

namespace fairlead::tokenizer {

/// The printable code point that stands for a byte in a byte-level vocabulary: 33–126, 161–172 and
/// 174–255 stand for themselves, the other 68 bytes follow in order from U+0100.
char32_t byte_level_char(unsigned char byte);

/// Appends the bytes that a byte-level spelling stands for. False, with `out` as it was, when a
/// character of the spelling stands for no byte. `spelling` must be well-formed UTF-8.
bool append_byte_level_bytes(std::string& out, std::string_view spelling);

}  // namespace fairlead::tokenizer
