#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fairlead::jinja::unicode {

/// What Python's `str` methods ask about a character; bits of `classes`.
enum Class : std::uint16_t {
  kAlpha = 1 << 0,        ///< `isalpha`
  kDecimal = 1 << 1,      ///< `isdecimal`
  kDigit = 1 << 2,        ///< `isdigit`
  kNumeric = 1 << 3,      ///< `isnumeric`
  kSpace = 1 << 4,        ///< `isspace`
  kPrintable = 1 << 5,    ///< `isprintable`
  kLower = 1 << 6,        ///< `islower`
  kUpper = 1 << 7,        ///< `isupper`
  kTitle = 1 << 8,        ///< Category Lt.
  kCased = 1 << 9,        ///< Has a case.
  kIgnorable = 1 << 10,   ///< Case-ignorable.
  kIdStart = 1 << 11,     ///< May begin an identifier.
  kIdContinue = 1 << 12,  ///< May go on an identifier.
};

/// All classes of a character.
std::uint16_t classes(char32_t code_point);

/// True for what `str.isspace` and the regular expression `\s` accept.
inline bool is_space(char32_t code_point) {
  if (code_point < 0x80) {
    return code_point == ' ' || (code_point >= 9 && code_point <= 13) ||
           (code_point >= 0x1C && code_point <= 0x1F);
  }
  return (classes(code_point) & kSpace) != 0;
}

/// Value of a decimal digit of any script, or -1.
int decimal_value(char32_t code_point);

/// `str.lower()`, final sigma included.
std::string lower(std::string_view text);
/// `str.upper()`.
std::string upper(std::string_view text);
/// `str.title()`.
std::string title(std::string_view text);
/// `str.capitalize()`.
std::string capitalize(std::string_view text);
/// `str.casefold()`.
std::string casefold(std::string_view text);
/// `str.swapcase()`.
std::string swapcase(std::string_view text);

}  // namespace fairlead::jinja::unicode
