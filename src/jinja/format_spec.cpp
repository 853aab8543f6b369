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

// Separates groups of the leading digits. Zeros that fill the field (`width`: what the rest of it
// leaves for the digits) are grouped, too.
void group_digits(std::string& digits, const FieldSpec& spec, std::size_t every,
                  std::int64_t width) {
  const bool decimal = every == 3;  // Where an `e` begins the exponent.
  const auto is_digit = [decimal](unsigned char c) {
    return (decimal ? std::isdigit(c) : std::isxdigit(c)) != 0;
  };
  std::size_t end = 0;
  while (end < digits.size() && is_digit(static_cast<unsigned char>(digits[end]))) {
    ++end;
  }
  std::string grouped;  // From the right.
  std::int64_t room = width - static_cast<std::int64_t>(digits.size() - end);
  if (spec.fill != "0" || spec.align != '=') {
    room = 0;
  }
  std::size_t rest = end;
  do {
    if (!grouped.empty()) {
      grouped += spec.grouping;
      --room;
    }
    for (std::size_t i = 0; i < every && (i == 0 || rest > 0 || room > 0); ++i, --room) {
      grouped += rest > 0 ? digits[--rest] : '0';
    }
  } while (rest > 0 || room > 0);
  std::ranges::reverse(grouped);
  digits.replace(0, end, grouped);
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
  spec.no_minus_zero = take(rest, 'z');
  spec.alternate = take(rest, '#');
  if (!filled && take(rest, '0')) {
    spec.fill = "0";
    spec.align = spec.align == 0 && number ? '=' : spec.align;
  }
  read_number(rest, spec.width);
  for (; !rest.empty() && (rest[0] == ',' || rest[0] == '_'); rest.remove_prefix(1)) {
    if (spec.grouping != 0) {
      runtime.fail("Cannot specify both ',' and '_'.");
      return false;
    }
    spec.grouping = rest[0];
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

// Only numbers in the right base have groups. `type`: with the value's own for none.
bool check_grouping(Runtime& runtime, const FieldSpec& spec, char type) {
  const std::string_view with = spec.grouping == '_' ? "deEfFgG%boxX" : "deEfFgG%";
  if (spec.grouping == 0 || type == 0 || with.find(type) != std::string_view::npos) {
    return true;
  }
  runtime.fail(std::string("Cannot specify '") + spec.grouping + "' with '" + type + "'.");
  return false;
}

Value unknown_code(Runtime& runtime, char type, const Value& value) {
  return runtime.fail(std::string("Unknown format code '") + type + "' for object of type '" +
                      type_name(value) + "'");
}

std::string sign_of(const FieldSpec& spec, bool negative) {
  if (negative) {
    return "-";
  }
  return spec.sign == 0 || spec.sign == '-' ? "" : std::string(1, spec.sign);
}

Value format_string(Runtime& runtime, const Value& value, const FieldSpec& spec) {
  if (!check_grouping(runtime, spec, spec.type == 0 ? 's' : spec.type)) {
    return Value::missing();
  }
  if (spec.type != 0 && spec.type != 's') {
    return unknown_code(runtime, spec.type, value);
  }
  const char* wrong = spec.sign != 0       ? "Sign"
                      : spec.no_minus_zero ? "Negative zero coercion (z)"
                      : spec.alternate     ? "Alternate form (#)"
                      : spec.align == '='  ? "'=' alignment"
                                           : nullptr;
  if (wrong != nullptr) {
    return runtime.fail(std::string(wrong) + " not allowed in string format specifier");
  }
  std::string_view body = value.text();
  if (spec.precision >= 0) {
    body = body.substr(0, text::offset(body, static_cast<std::size_t>(spec.precision)));
  }
  return runtime.string(lay_out(spec, {}, body, '<'));
}

Value format_float(Runtime& runtime, const Value& value, double number, const FieldSpec& spec) {
  char type = spec.type;
  if (!check_grouping(runtime, spec, type)) {
    return Value::missing();
  }
  if (type != 0 && std::string_view("eEfFgGn%").find(type) == std::string_view::npos) {
    return unknown_code(runtime, type, value);
  }
  const bool percent = type == '%';
  const double magnitude = std::abs(number) * (percent ? 100 : 1);
  type = percent ? 'f' : type == 'n' ? 'g' : type;
  std::string digits =
      float_digits(magnitude, type, spec.precision, spec.alternate) + (percent ? "%" : "");
  const bool shows_zero =
      std::isfinite(number) &&
      digits.substr(0, digits.find_first_of("eE")).find_first_of("123456789") == std::string::npos;
  const std::string sign = sign_of(
      spec, std::signbit(number) && !std::isnan(number) && !(spec.no_minus_zero && shows_zero));
  if (spec.grouping != 0) {
    group_digits(digits, spec, 3, spec.width - static_cast<std::int64_t>(sign.size()));
  }
  return runtime.string(lay_out(spec, sign, digits, '>'));
}

Value format_int(Runtime& runtime, const Value& value, const FieldSpec& spec) {
  const char type = spec.type == 0 || spec.type == 'n' ? 'd' : spec.type;
  if (std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    return format_float(runtime, value, to_double(value), spec);
  }
  // `n` has no groups of its own to be replaced.
  if (!check_grouping(runtime, spec, spec.type == 0 ? 'd' : spec.type)) {
    return Value::missing();
  }
  if (spec.precision >= 0) {
    return runtime.fail("Precision not allowed in integer format specifier");
  }
  if (spec.no_minus_zero) {
    return runtime.fail("Negative zero coercion (z) not allowed in format specifier with integer");
  }
  if (type == 'c' && (spec.sign != 0 || spec.alternate)) {
    return runtime.fail(std::string(spec.sign != 0 ? "Sign" : "Alternate form (#)") +
                        " not allowed with integer format specifier 'c'");
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
  const bool negative =
      value.kind() == Kind::BigInt ? as<BigObject>(value).value.negative() : value.as_int() < 0;
  std::string prefix = sign_of(spec, negative);
  if (spec.alternate && type != 'd') {
    prefix += std::string("0") + type;
  }
  std::string digits = int_digits(value, type);
  if (spec.grouping != 0) {
    group_digits(digits, spec, type == 'd' ? 3 : 4,
                 spec.width - static_cast<std::int64_t>(prefix.size()));
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

std::string ascii_only(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const char32_t c = utf8::decode(text, pos);
    if (c < 0x80) {
      out += static_cast<char>(c);
      continue;
    }
    const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
    for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
      out += "0123456789abcdef"[(c >> shift) & 0xF];
    }
  }
  return out;
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
