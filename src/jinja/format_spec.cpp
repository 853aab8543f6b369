#include "jinja/format_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/utf8.hpp"
#include "jinja/methods.hpp"
#include "jinja/ops.hpp"
#include "jinja/text.hpp"

namespace fairlead::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 1000;

std::string repeat(std::string_view unit, std::int64_t times) {
  std::string out;
  for (std::int64_t i = 0; i < times; ++i) {
    out += unit;
  }
  return out;
}

void group_digits(std::string& digits, char separator, std::size_t every) {
  std::size_t end = 0;
  while (end < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[end])) != 0) {
    ++end;
  }
  for (std::size_t at = end; at > every; at -= every) {
    digits.insert(at - every, 1, separator);
  }
}

bool is_align(char32_t c) { return c == '<' || c == '>' || c == '^' || c == '='; }

bool read_number(std::string_view& rest, std::int64_t& out) {
  std::int64_t value = 0;
  bool any = false;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    value = std::min<std::int64_t>(value * 10 + (rest[0] - '0'), std::int64_t{1} << 40);
    rest.remove_prefix(1);
    any = true;
  }
  if (any) {
    out = value;
  }
  return any;
}

bool take(std::string_view& rest, char c) {
  if (!rest.starts_with(c)) {
    return false;
  }
  rest.remove_prefix(1);
  return true;
}

// `[[fill]align][sign][#][0][width][grouping][.precision][type]`
bool parse_spec(Runtime& runtime, std::string_view rest, bool number, FieldSpec& spec) {
  bool filled = false;
  if (!rest.empty()) {
    std::size_t next = 0;
    utf8::decode(rest, next);
    if (next < rest.size() && is_align(static_cast<unsigned char>(rest[next]))) {
      spec.fill = rest.substr(0, next);
      filled = true;
      spec.align = rest[next];
      rest.remove_prefix(next + 1);
    } else if (is_align(static_cast<unsigned char>(rest[0]))) {
      spec.align = rest[0];
      rest.remove_prefix(1);
    }
  }
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec.sign = rest[0];
    rest.remove_prefix(1);
  }
  spec.alternate = take(rest, '#');
  if (!filled && take(rest, '0')) {
    spec.fill = "0";
    spec.align = spec.align == 0 && number ? '=' : spec.align;
  }
  read_number(rest, spec.width);
  if (!rest.empty() && (rest[0] == ',' || rest[0] == '_')) {
    spec.grouping = rest[0];
    rest.remove_prefix(1);
  }
  if (take(rest, '.') && !read_number(rest, spec.precision)) {
    runtime.fail("Format specifier missing precision");
    return false;
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) {
    runtime.fail("Invalid format specifier");
    return false;
  }
  return check_field(runtime, spec);
}

Value unknown_code(Runtime& runtime, char type, const Value& value) {
  return runtime.fail(std::string("Unknown format code '") + type + "' for object of type '" +
                      type_name(value) + "'");
}

std::string sign_of(const FieldSpec& spec, bool negative) {
  if (negative) {
    return "-";
  }
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

Value format_string(Runtime& runtime, const Value& value, const FieldSpec& spec) {
  if (spec.type != 0 && spec.type != 's') {
    return unknown_code(runtime, spec.type, value);
  }
  if (spec.align == '=') {
    return runtime.fail("'=' alignment not allowed in string format specifier");
  }
  std::string_view body = value.text();
  if (spec.precision >= 0) {
    body = body.substr(0, text::offset(body, static_cast<std::size_t>(spec.precision)));
  }
  return runtime.string(lay_out(spec, {}, body, '<'));
}

Value format_float(Runtime& runtime, const Value& value, double number, const FieldSpec& spec) {
  char type = spec.type;
  if (type != 0 && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) {
    return unknown_code(runtime, type, value);
  }
  const bool percent = type == '%';
  const double magnitude = std::abs(number) * (percent ? 100 : 1);
  type = percent ? 'f' : type == 'n' ? 'g' : type;
  std::string digits = float_digits(magnitude, type, spec.precision, spec.alternate);
  if (spec.grouping != 0) {
    group_digits(digits, spec.grouping, 3);
  }
  return runtime.string(lay_out(spec, sign_of(spec, std::signbit(number) && !std::isnan(number)),
                                digits + (percent ? "%" : ""), '>'));
}

Value format_int(Runtime& runtime, const Value& value, const FieldSpec& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return format_float(runtime, value, to_double(value), spec);
  }
  if (spec.precision >= 0) {
    return runtime.fail("Precision not allowed in integer format specifier");
  }
  if (type == 'c') {
    std::string out;
    if (value.kind() == Kind::BigInt || value.as_int() < 0 || value.as_int() > 0x10FFFF) {
      return runtime.fail("%c arg not in range(0x110000)");
    }
    utf8::append(out, static_cast<char32_t>(value.as_int()));
    return runtime.string(lay_out(spec, {}, out, '>'));
  }
  if (std::string_view("bdoxX").find(type) == std::string_view::npos) {
    return unknown_code(runtime, type, value);
  }
  std::string digits = int_digits(value, type);
  if (spec.grouping != 0) {
    group_digits(digits, spec.grouping, type == 'd' ? 3 : 4);
  }
  const bool negative =
      value.kind() == Kind::BigInt ? as<BigObject>(value).value.negative() : value.as_int() < 0;
  std::string prefix = sign_of(spec, negative);
  if (spec.alternate && type != 'd') {
    prefix += std::string("0") + type;
  }
  return runtime.string(lay_out(spec, prefix, digits, '>'));
}

}  // namespace

std::string lay_out(const FieldSpec& spec, std::string_view prefix, std::string_view digits,
                    char own_align) {
  const auto size = static_cast<std::int64_t>(text::length(prefix) + text::length(digits));
  const std::int64_t missing = std::max<std::int64_t>(spec.width - size, 0);
  const char align = spec.align != 0 ? spec.align : own_align;
  std::string out;
  if (align == '=') {
    out += prefix;
    out += repeat(spec.fill, missing);
  } else {
    const std::int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
    out += repeat(spec.fill, left);
    out += prefix;
    out += digits;
    return out + repeat(spec.fill, missing - left);
  }
  out += digits;
  return out;
}

std::string float_digits(double magnitude, char type, std::int64_t precision, bool alternate) {
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(magnitude)) {
    const bool nan = std::isnan(magnitude);
    return upper ? (nan ? "NAN" : "INF") : (nan ? "nan" : "inf");
  }
  if (type == 0 && precision < 0) {
    return repr_float(magnitude);
  }
  const char letter = type == 0 ? 'g' : type;
  const int places = precision < 0 ? 6 : static_cast<int>(std::min(precision, kMaxPrecision));
  const std::string pattern = std::string(alternate ? "%#.*" : "%.*") + letter;
  std::array<char, 1500> buffer{};
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), places, magnitude);
#pragma clang diagnostic pop
  std::string digits = buffer.data();
  if (type == 0 && digits.find_first_of(".e") == std::string::npos) {
    // `str` always shows that it is a float, and changes to an exponent one digit earlier.
    if (static_cast<std::int64_t>(digits.size()) < std::max<std::int64_t>(precision, 1)) {
      return digits + ".0";
    }
    std::snprintf(buffer.data(), buffer.size(), "%.*e", std::max(places - 1, 0), magnitude);
    digits = buffer.data();
    const std::size_t mark = digits.find('e');
    std::size_t last = mark;
    while (digits.find('.') < mark && (digits[last - 1] == '0' || digits[last - 1] == '.')) {
      --last;
      if (digits[last] == '.') {
        break;
      }
    }
    digits.erase(last, mark - last);
  }
  return digits;
}

std::string int_digits(const Value& integral, char type) {
  if (integral.kind() == Kind::BigInt) {
    BigInt magnitude = as<BigObject>(integral).value;
    magnitude = magnitude.negative() ? -magnitude : magnitude;
    if (type == 'd') {
      return magnitude.text();
    }
    const int base = type == 'b' ? 2 : type == 'o' ? 8 : 16;
    std::string out;
    while (!magnitude.zero()) {
      BigInt quotient;
      BigInt remainder;
      BigInt::divide(magnitude, BigInt(base), quotient, remainder);
      out += "0123456789abcdef"[remainder.small().value_or(0)];
      magnitude = quotient;
    }
    std::ranges::reverse(out);
    return out;
  }
  const std::int64_t number = integral.as_int();
  const auto magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  const std::uint64_t base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
  std::string out;
  for (std::uint64_t rest = magnitude; rest != 0 || out.empty(); rest /= base) {
    out += (type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
  }
  std::ranges::reverse(out);
  return out;
}

bool check_field(Runtime& runtime, const FieldSpec& spec) {
  if (spec.precision > kMaxPrecision && spec.type != 0 && spec.type != 's' && spec.type != 'r') {
    runtime.fail("precision too big");
    return false;
  }
  constexpr std::int64_t kMaxWidth = std::int64_t{1} << 31;
  if (spec.width > kMaxWidth) {
    runtime.fail("width too big");
    return false;
  }
  return runtime.reserve(static_cast<std::size_t>(spec.width) * spec.fill.size());
}

Value format_value(Runtime& runtime, const Value& value, std::string_view spec) {
  if (spec.empty()) {
    return to_str(runtime, value);
  }
  FieldSpec parsed;
  if (!parse_spec(runtime, spec, is_number(value), parsed)) {
    return Value::missing();
  }
  switch (value.kind()) {
    case Kind::String: return format_string(runtime, value, parsed);
    case Kind::Float: return format_float(runtime, value, value.as_float(), parsed);
    case Kind::Bool:
      if (parsed.type == 's') {
        return unknown_code(runtime, 's', value);
      }
      return format_int(runtime, value, parsed);
    case Kind::Int:
    case Kind::BigInt: return format_int(runtime, value, parsed);
    default:
      return runtime.fail(std::string("unsupported format string passed to ") + type_name(value) +
                          ".__format__");
  }
}

}  // namespace fairlead::jinja
