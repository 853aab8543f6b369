#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/runtime.hpp"

namespace fairlead::jinja {

/// How a field is laid out, in both of Python's formatting languages.
struct FieldSpec {
  std::string fill = " ";       ///< One character.
  char align = 0;               ///< `<`, `>`, `^`, `=`, or 0 for the type's own.
  char sign = 0;                ///< `-`, `+`, a space, or 0 for none given (as `-`).
  bool no_minus_zero = false;   ///< `z`.
  bool alternate = false;       ///< `#`.
  char grouping = 0;            ///< `,`, `_` or 0.
  std::int64_t width = 0;       ///< At least so many characters.
  std::int64_t precision = -1;  ///< -1: not given.
  char type = 0;                ///< Conversion letter, or 0.
};

/// Pads `digits` (with its `prefix`: sign and base) to the width.
std::string lay_out(const FieldSpec& spec, std::string_view prefix, std::string_view digits,
                    char own_align);

/// A float's digits without its sign, by `e`, `f`, `g` (either case) or 0 (as `str`).
std::string float_digits(double magnitude, char type, std::int64_t precision, bool alternate);

/// A `repr` with escapes for what is not ASCII, as Python's `ascii`.
std::string ascii_only(std::string_view text);

/// An integer's digits in a base, without sign and prefix.
std::string int_digits(const Value& integral, char type);

/// Checks width and precision against the limits; false after an error.
bool check_field(Runtime& runtime, const FieldSpec& spec);

}  // namespace fairlead::jinja
