#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.hpp"
#include "jinja/args.hpp"
#include "jinja/builtins.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

// Digits of any script as ASCII, surrounding whitespace gone; nothing for other characters.
std::optional<std::string> ascii_number(std::string_view text) {
  std::string out;
  const std::string_view inner = text::strip(text, text::Side::Both);
  for (std::size_t pos = 0; pos < inner.size();) {
    const char32_t c = utf8::decode(inner, pos);
    const int digit = unicode::decimal_value(c);
    if (digit >= 0) {
      out += static_cast<char>('0' + digit);
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// Removes underscores that stand between digits; false for misplaced ones.
bool remove_underscores(std::string& digits, bool leading_allowed) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      out += digits[i];
      continue;
    }
    const bool before =
        i > 0 ? std::isalnum(static_cast<unsigned char>(digits[i - 1])) != 0 : leading_allowed;
    const bool after =
        i + 1 < digits.size() && std::isalnum(static_cast<unsigned char>(digits[i + 1])) != 0;
    if (!before || !after) {
      return false;
    }
  }
  digits = out;
  return true;
}

int prefix_base(std::string_view digits) {
  if (digits.size() < 2 || digits[0] != '0') {
    return 0;
  }
  switch (digits[1]) {
    case 'b':
    case 'B': return 2;
    case 'o':
    case 'O': return 8;
    case 'x':
    case 'X': return 16;
    default: return 0;
  }
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'z') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

Value filter_int(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "int", args, {"default", "base"});
  const auto base = bound ? bound.integer(1, 10) : std::nullopt;
  if (!base) {
    return Value::missing();
  }
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  switch (input.kind()) {
    case Kind::Bool: return Value::integer(input.as_int());
    case Kind::Int:
    case Kind::BigInt: return input;
    case Kind::Float:
      return std::isnan(input.as_float()) ? otherwise : int_of_float(runtime, input.as_float());
    case Kind::Undefined: return runtime.fail(input.undefined_message());
    case Kind::String: break;
    default: return otherwise;
  }
  constexpr std::size_t kMaxDigits = 4300;
  if (!runtime.charge(input.text().size())) {
    return Value::missing();
  }
  if (input.text().size() <= kMaxDigits) {
    if (auto parsed =
            parse_int(input.text(), static_cast<int>(std::min<std::int64_t>(*base, 99)))) {
      return from_big(runtime, std::move(*parsed));
    }
  }
  const auto number = parse_float(input.text());
  return number && std::isfinite(*number) ? int_of_float(runtime, *number) : otherwise;
}

Value filter_float(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "float", args, {"default"});
  if (!bound) {
    return Value::missing();
  }
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::number(0);
  if (is_number(input)) {
    const double number = to_double(input);
    return input.kind() == Kind::BigInt && std::isinf(number)
               ? runtime.fail("int too large to convert to float")
               : Value::number(number);
  }
  if (input.is_undefined()) {
    return runtime.fail(input.undefined_message());
  }
  if (!input.is_string() || !runtime.charge(input.text().size())) {
    return runtime.failed() ? Value::missing() : otherwise;
  }
  const auto number = parse_float(input.text());
  return number ? Value::number(*number) : otherwise;
}

// `round(value, places)`: exact decimal expansion, ties to even.
double round_half_even(double value, std::int64_t places) {
  constexpr std::int64_t kMaxPlaces = 323;
  if (!std::isfinite(value) || places > kMaxPlaces) {
    return value;
  }
  if (places >= 0) {
    std::array<char, 700> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(places), value);
    double rounded = 0;
    const std::string_view text = buffer.data();
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return rounded;
  }
  if (places < -308) {
    return std::copysign(0.0, value);
  }
  const double scale = std::pow(10.0, static_cast<double>(-places));
  return std::nearbyint(value / scale) * scale;
}

Value round_int(Runtime& runtime, const Value& value, std::int64_t places) {
  if (places >= 0) {
    return value.kind() == Kind::Bool ? Value::integer(value.as_int()) : value;
  }
  if (places < -100) {
    return Value::integer(0);
  }
  const Value unit =
      number_arithmetic(runtime, Arithmetic::Power, Value::integer(10), Value::integer(-places));
  BigInt quotient;
  BigInt remainder;
  const BigInt size = to_big(unit);
  BigInt::divide(to_big(value), size, quotient, remainder);
  const auto twice = (remainder + remainder) <=> size;
  const bool odd = [&] {
    BigInt half;
    BigInt rest;
    BigInt::divide(quotient, BigInt(2), half, rest);
    return !rest.zero();
  }();
  if (twice > 0 || (twice == 0 && odd)) {
    quotient = quotient + BigInt(1);
  }
  return from_big(runtime, quotient * size);
}

Value filter_round(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<2> bound(runtime, "round", args, {"precision", "method"});
  const auto places = bound ? bound.integer(0, 0) : std::nullopt;
  const auto method = bound ? bound.text(1, "common") : std::nullopt;
  if (!places || !method) {
    return Value::missing();
  }
  if (*method != "common" && *method != "ceil" && *method != "floor") {
    return runtime.fail("method must be common, ceil or floor");
  }
  if (!is_number(input)) {
    return runtime.fail(input.is_undefined() ? input.undefined_message()
                                             : std::string("type ") + type_name(input) +
                                                   " doesn't define __round__ method");
  }
  if (*method == "common") {
    return input.kind() == Kind::Float ? Value::number(round_half_even(input.as_float(), *places))
                                       : round_int(runtime, input, *places);
  }
  const Value scale =
      number_arithmetic(runtime, Arithmetic::Power, Value::integer(10), Value::integer(*places));
  Value scaled =
      runtime.failed() ? scale : number_arithmetic(runtime, Arithmetic::Multiply, input, scale);
  if (runtime.failed()) {
    return scaled;
  }
  if (scaled.kind() == Kind::Float) {
    scaled = int_of_float(
        runtime, *method == "ceil" ? std::ceil(scaled.as_float()) : std::floor(scaled.as_float()));
  }
  return runtime.failed() ? scaled : number_arithmetic(runtime, Arithmetic::Divide, scaled, scale);
}

Value filter_abs(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "abs", args, {});
  if (!none) {
    return Value::missing();
  }
  if (!is_number(input)) {
    return runtime.fail(input.is_undefined() ? input.undefined_message()
                                             : std::string("bad operand type for abs(): '") +
                                                   type_name(input) + "'");
  }
  if (input.kind() == Kind::Float) {
    return Value::number(std::abs(input.as_float()));
  }
  const bool negative = compare_numbers(input, Value::integer(0)) < 0;
  return negative ? negate(runtime, input) : positive(runtime, input);
}

Value filter_filesizeformat(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "filesizeformat", args, {"binary"});
  if (!bound) {
    return Value::missing();
  }
  std::optional<double> bytes;
  if (is_number(input)) {
    bytes = to_double(input);
  } else if (input.is_string()) {
    bytes = parse_float(input.text());
  }
  if (!bytes) {
    return runtime.fail("could not convert value to float");
  }
  const bool binary = bound.flag(0, false);
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) {
    return runtime.string("1 Byte");
  }
  if (*bytes < base) {
    return runtime.string(std::to_string(static_cast<std::int64_t>(*bytes)) + " Bytes");
  }
  constexpr std::array<std::string_view, 8> kDecimal = {"kB", "MB", "GB", "TB",
                                                        "PB", "EB", "ZB", "YB"};
  constexpr std::array<std::string_view, 8> kBinary = {"KiB", "MiB", "GiB", "TiB",
                                                       "PiB", "EiB", "ZiB", "YiB"};
  double unit = base;
  std::size_t at = 0;
  do {
    unit *= base;
  } while (*bytes >= unit && ++at < kDecimal.size());
  at = std::min(at, kDecimal.size() - 1);
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f ", base * *bytes / unit);
  return runtime.string(std::string(buffer.data()) +
                        std::string(binary ? kBinary[at] : kDecimal[at]));
}

constexpr std::array kFilters = {
    BuiltinRow{"int", filter_int},
    BuiltinRow{"float", filter_float},
    BuiltinRow{"round", filter_round},
    BuiltinRow{"abs", filter_abs},
    BuiltinRow{"filesizeformat", filter_filesizeformat},
};

}  // namespace

std::span<const BuiltinRow> number_filters() { return kFilters; }

std::optional<BigInt> parse_int(std::string_view text, int base) {
  auto digits = ascii_number(text);
  if (!digits || digits->empty() || base < 0 || base == 1 || base > 36) {
    return std::nullopt;
  }
  bool negative = false;
  if ((*digits)[0] == '-' || (*digits)[0] == '+') {
    negative = (*digits)[0] == '-';
    digits->erase(0, 1);
  }
  if (digits->starts_with('-') || digits->starts_with('+')) {
    return std::nullopt;
  }
  const int prefix = prefix_base(*digits);
  const bool prefixed = prefix != 0 && (base == 0 || base == prefix);
  if (prefixed) {
    base = prefix;
    digits->erase(0, 2);
  }
  if (!remove_underscores(*digits, prefixed) || digits->empty()) {
    return std::nullopt;
  }
  if (base == 0) {
    base = 10;
    if ((*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) {
      return std::nullopt;
    }
  }
  if (base == 10) {
    auto value = BigInt::parse(*digits);
    return value && negative ? -*value : value;
  }
  BigInt value;
  const BigInt factor(base);
  for (char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= base) {
      return std::nullopt;
    }
    value = value * factor + BigInt(digit);
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  auto digits = ascii_number(text);
  if (!digits || digits->empty() || !remove_underscores(*digits, false)) {
    return std::nullopt;
  }
  std::string_view rest = *digits;
  bool negative = false;
  if (rest[0] == '-' || rest[0] == '+') {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') {
    return std::nullopt;
  }
  double value = 0;
  const std::string folded = unicode::lower(rest);
  if (folded == "inf" || folded == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (folded == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    // Hexadecimal and named forms are not Python's.
    if (rest.find_first_not_of("0123456789.eE+-") != std::string_view::npos) {
      return std::nullopt;
    }
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (parsed.ptr != rest.data() + rest.size()) {
      return std::nullopt;
    }
    if (parsed.ec == std::errc::result_out_of_range) {
      value = std::strtod(std::string(rest).c_str(), nullptr);
    } else if (parsed.ec != std::errc()) {
      return std::nullopt;
    }
  }
  return negative ? -value : value;
}

}  // namespace fairlead::jinja
