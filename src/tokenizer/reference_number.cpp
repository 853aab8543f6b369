#include "tokenizer/reference_number.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace fairlead::tokenizer {

namespace {

// The closest float to a power of ten that is in range.
double power_of_ten(std::int64_t exponent) {
  char text[8] = "1e";
  const std::to_chars_result end = std::to_chars(text + 2, std::end(text), exponent);
  double power = 0;
  std::from_chars(text, end.ptr, power);
  return power;
}

}  // namespace

// The digits up to the last one that fits 64 bits, as a float, times or divided by a power of ten.
std::optional<double> reference_number(std::string_view text) {
  static constexpr double kMaxPower = 1e308;
  static constexpr int kMaxExponent = 308;
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  const auto is_digit = [&] { return peek() >= '0' && peek() <= '9'; };
  const bool negative = peek() == '-';
  at += negative ? 1 : 0;
  std::uint64_t digits = 0;
  std::int64_t exponent = 0;
  bool full = false;
  const auto take = [&](int without, int with) {
    for (; is_digit(); ++at) {
      const auto digit = static_cast<std::uint64_t>(peek() - '0');
      full = full || digits > (UINT64_MAX - digit) / 10;
      digits = full ? digits : digits * 10 + digit;
      exponent += full ? without : with;
    }
  };
  take(1, 0);
  if (peek() == '.') {
    ++at;
    take(0, -1);
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at;
    const bool down = peek() == '-';
    at += down || peek() == '+' ? 1 : 0;
    std::int64_t written = 0;
    for (; is_digit(); ++at) {
      written = std::min<std::int64_t>(written * 10 + (peek() - '0'), INT32_MAX);
    }
    exponent += down ? -written : written;
  }
  auto value = static_cast<double>(digits);
  for (; value != 0 && exponent < -kMaxExponent; exponent += kMaxExponent) {
    value /= kMaxPower;
  }
  if (value != 0 && exponent > kMaxExponent) {
    return std::nullopt;
  }
  if (value != 0) {
    const double power = power_of_ten(exponent < 0 ? -exponent : exponent);
    value = exponent < 0 ? value / power : value * power;
  }
  return std::isinf(value) ? std::nullopt : std::optional(negative ? -value : value);
}

}  // namespace fairlead::tokenizer
