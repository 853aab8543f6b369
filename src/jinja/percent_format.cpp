#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"
#include "jinja/format_spec.hpp"
#include "jinja/methods.hpp"
#include "jinja/ops.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

// One `format % arguments`.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& format, const Value& arguments)
      : runtime_(runtime),
        rest_(format.text()),
        markup_(format.is_markup()),
        arguments_(arguments) {}

  Value run() {
    while (!rest_.empty()) {
      const std::size_t percent = std::min(rest_.find('%'), rest_.size());
      out_ += rest_.substr(0, percent);
      rest_.remove_prefix(percent);
      if (!rest_.empty() && !field()) {
        return Value::missing();
      }
    }
    if (!all_used()) {
      return runtime_.fail("not all arguments converted during string formatting");
    }
    return runtime_.string(out_, markup_);
  }

 private:
  bool is_mapping() const {
    switch (arguments_.kind()) {
      case Kind::Dict:
      case Kind::List:
      case Kind::Range:
      case Kind::Undefined: return true;
      default: return false;
    }
  }

  bool all_used() const {
    if (arguments_.kind() == Kind::Tuple) {
      return used_ >= as<ListObject>(arguments_).items().size();
    }
    return used_ > 0 || is_mapping();
  }

  bool next_argument(Value& out) {
    if (arguments_.kind() == Kind::Tuple) {
      const auto& items = as<ListObject>(arguments_).items();
      if (used_ < items.size()) {
        out = items[used_++];
        return true;
      }
    } else if (used_ == 0) {
      ++used_;
      out = arguments_;
      return true;
    }
    runtime_.fail("not enough arguments for format string");
    return false;
  }

  bool number_or_star(std::int64_t& out) {
    if (rest_.starts_with('*')) {
      rest_.remove_prefix(1);
      Value value;
      if (!next_argument(value)) {
        return false;
      }
      if (value.kind() != Kind::Int && value.kind() != Kind::Bool) {
        runtime_.fail("* wants int");
        return false;
      }
      out = value.as_int();
      return true;
    }
    std::int64_t value = 0;
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      value = std::min<std::int64_t>(value * 10 + (rest_[0] - '0'), std::int64_t{1} << 40);
      rest_.remove_prefix(1);
      out = value;
    }
    return true;
  }

  bool parse_key(Value& out) {
    int depth = 0;
    std::size_t end = 0;
    for (; end < rest_.size(); ++end) {
      depth += rest_[end] == '(' ? 1 : rest_[end] == ')' ? -1 : 0;
      if (depth == 0) {
        break;
      }
    }
    if (end == rest_.size()) {
      runtime_.fail("incomplete format key");
      return false;
    }
    if (arguments_.kind() != Kind::Dict) {
      runtime_.fail("format requires a mapping");
      return false;
    }
    const std::string_view key = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    const Value* found = as<DictObject>(arguments_).store().find(key);
    if (found == nullptr) {
      std::string message;
      append_repr(message, key);
      runtime_.fail(std::move(message));
      return false;
    }
    out = *found;
    used_ = 1;
    return true;
  }

  bool parse_flags(FieldSpec& spec) {
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      switch (rest_[0]) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == '+' ? '+' : ' '; break;
        case '0': spec.fill = "0"; break;
        case '#': spec.alternate = true; break;
        default: return true;
      }
    }
    return true;
  }

  bool field() {
    rest_.remove_prefix(1);
    FieldSpec spec;
    Value value = Value::missing();
    if (rest_.starts_with('(') && !parse_key(value)) {
      return false;
    }
    parse_flags(spec);
    if (!number_or_star(spec.width)) {
      return false;
    }
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -std::max(spec.width, -(std::int64_t{1} << 40));
    }
    if (rest_.starts_with('.')) {
      rest_.remove_prefix(1);
      spec.precision = 0;
      if (!number_or_star(spec.precision)) {
        return false;
      }
      spec.precision = std::max<std::int64_t>(spec.precision, 0);
    }
    while (!rest_.empty() && (rest_[0] == 'h' || rest_[0] == 'l' || rest_[0] == 'L')) {
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) {
      runtime_.fail("incomplete format");
      return false;
    }
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') {
      out_ += '%';
      return true;
    }
    if (value.is_missing() && !next_argument(value)) {
      return false;
    }
    return check_field(runtime_, spec) && convert(spec, value) &&
           runtime_.charge(static_cast<std::size_t>(spec.width)) &&
           (out_.size() <= runtime_.text_room() || too_large());
  }

  bool too_large() {
    runtime_.fail("the template uses too much memory");
    return false;
  }

  bool convert(FieldSpec& spec, const Value& value) {
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': return convert_text(spec, value);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': return convert_int(spec, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': return convert_float(spec, value);
      case 'c': return convert_char(spec, value);
      default:
        runtime_.fail(std::string("unsupported format character '") + spec.type + "'");
        return false;
    }
  }

  bool convert_text(FieldSpec& spec, const Value& value) {
    Value shown = spec.type == 's' ? (markup_ ? escape(runtime_, value) : to_str(runtime_, value))
                                   : Value::missing();
    if (spec.type != 's') {
      std::string repr;
      if (!append_repr(runtime_, repr, value)) {
        return false;
      }
      shown = runtime_.string(spec.type == 'a' ? ascii_only(repr) : repr);
      if (markup_) {
        shown = escape(runtime_, shown);
      }
    }
    if (shown.is_missing()) {
      return false;
    }
    std::string_view body = shown.text();
    if (spec.precision >= 0) {
      body = body.substr(0, text::offset(body, static_cast<std::size_t>(spec.precision)));
    }
    spec.fill = " ";
    out_ += lay_out(spec, {}, body, '>');
    return true;
  }

  std::string sign(const FieldSpec& spec, bool negative) const {
    return negative ? "-" : spec.sign == 0 ? "" : std::string(1, spec.sign);
  }

  bool convert_int(FieldSpec& spec, Value value) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal && value.kind() == Kind::Float) {
      value = int_of_float(runtime_, value.as_float());
    }
    if (!is_integral(value)) {
      if (value.is_undefined()) {
        runtime_.fail(value.undefined_message());
      } else {
        runtime_.fail(std::string("%") + spec.type +
                      " format: " + (decimal ? "a real number" : "an integer") +
                      " is required, not " + type_name(value));
      }
      return false;
    }
    const char type = decimal ? 'd' : spec.type;
    std::string digits = int_digits(value, type);
    if (spec.precision > static_cast<std::int64_t>(digits.size())) {
      if (!runtime_.reserve(static_cast<std::size_t>(spec.precision))) {
        return false;
      }
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    }
    const bool negative =
        value.kind() == Kind::BigInt ? as<BigObject>(value).value.negative() : value.as_int() < 0;
    std::string prefix = sign(spec, negative);
    if (spec.alternate && type != 'd') {
      prefix += std::string("0") + type;
    }
    lay_out_number(spec, prefix, digits);
    return true;
  }

  bool convert_float(FieldSpec& spec, const Value& value) {
    if (!is_number(value)) {
      runtime_.fail(value.is_undefined()
                        ? value.undefined_message()
                        : std::string("must be real number, not ") + type_name(value));
      return false;
    }
    const double number = to_double(value);
    lay_out_number(spec, sign(spec, std::signbit(number)),
                   float_digits(std::abs(number), spec.type, spec.precision, spec.alternate));
    return true;
  }

  void lay_out_number(FieldSpec& spec, const std::string& prefix, const std::string& digits) {
    if (spec.align == '<') {
      spec.fill = " ";
    } else {
      spec.align = spec.fill == "0" ? '=' : '>';
    }
    out_ += lay_out(spec, prefix, digits, '>');
  }

  bool convert_char(FieldSpec& spec, const Value& value) {
    std::string shown;
    if (value.is_string() && text::length(value.text()) == 1) {
      shown = value.text();
    } else if ((value.kind() == Kind::Int || value.kind() == Kind::Bool) && value.as_int() >= 0 &&
               value.as_int() < 0x110000) {
      utf8::append(shown, static_cast<char32_t>(value.as_int()));
    } else {
      runtime_.fail("%c requires int or char");
      return false;
    }
    spec.fill = " ";
    out_ += lay_out(spec, {}, shown, '>');
    return true;
  }

  Runtime& runtime_;
  std::string_view rest_;
  const bool markup_;
  const Value arguments_;
  std::size_t used_ = 0;
  std::string out_;
};

}  // namespace

Value percent_format(Runtime& runtime, const Value& format, const Value& arguments) {
  return runtime.charge(format.text().size()) ? PercentFormatter(runtime, format, arguments).run()
                                              : Value::missing();
}

}  // namespace fairlead::jinja
