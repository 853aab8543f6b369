#include "base/yaml_scalar.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace fairlead::yaml {
namespace {

using json::Value;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, is_digit);
}

// One outside 64 bits, without leading zeros.
json::BigInt big_integer(std::string_view digits) {
  json::BigInt out;
  if (digits.starts_with('-')) {
    out.digits = "-";
    digits.remove_prefix(1);
  }
  out.digits += digits.substr(digits.find_first_not_of('0'));
  return out;
}

// An integer of the core schema: decimal with sign, 0o or 0x.
std::optional<Value> integer(std::string_view text) {
  int base = 10;
  std::string_view digits = text;
  if (text.starts_with("0o") || text.starts_with("0x")) {
    base = text[1] == 'o' ? 8 : 16;
    digits.remove_prefix(2);
    if (digits.starts_with('-')) {
      return std::nullopt;
    }
  } else if (text.starts_with('+')) {
    digits.remove_prefix(1);
    if (!all_digits(digits)) {
      return std::nullopt;
    }
  }
  std::int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    return base == 10 ? std::optional<Value>(big_integer(digits)) : std::nullopt;
  }
  return Value(value);
}

// A number of the core schema: digits with a point or an exponent, .inf or .nan.
std::optional<Value> real(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) {
    digits.remove_prefix(1);
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (digits == ".inf" || digits == ".Inf" || digits == ".INF") {
    return Value(negative ? -kInfinity : kInfinity);
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    return Value(std::numeric_limits<double>::quiet_NaN());
  }
  const bool number =
      !digits.empty() &&
      (is_digit(digits[0]) || (digits.size() > 1 && digits[0] == '.' && is_digit(digits[1])));
  if (!number) {
    return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size() || error != std::errc()) {
    return std::nullopt;
  }
  return Value(negative ? -value : value);
}

}  // namespace

Value resolve_scalar(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return {};
  }
  if (text == "true" || text == "True" || text == "TRUE") {
    return true;
  }
  if (text == "false" || text == "False" || text == "FALSE") {
    return false;
  }
  if (auto value = integer(text)) {
    return std::move(*value);
  }
  if (auto value = real(text)) {
    return std::move(*value);
  }
  return text;
}

}  // namespace fairlead::yaml
