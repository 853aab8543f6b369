#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::utf8 {

/// Length in bytes of the well-formed sequence at the start of `text`; 0 when it is malformed or
/// cut short. Overlong forms, surrogates and values above U+10FFFF are malformed.
int sequence_length(std::string_view text);

/// True when the start of `text` is a well-formed sequence that only lacks its end.
bool is_incomplete(std::string_view text);

/// True when all of `text` is well-formed.
bool valid(std::string_view text);

/// Decodes the code point at `pos` and moves `pos` behind it. Malformed input gives U+FFFD and
/// moves by the length of the maximal ill-formed part (the practice of Python, Rust and the
/// WHATWG).
char32_t decode(std::string_view text, std::size_t& pos);

/// Appends a code point; surrogates and values above U+10FFFF become U+FFFD.
void append(std::string& out, char32_t code_point);

/// Number of code points of well-formed text.
std::size_t count(std::string_view text);

/// `text` with every maximal ill-formed part replaced by one U+FFFD.
std::string lossy(std::string_view text);

}  // namespace fairlead::utf8
