#include "jinja/string_layout.hpp"

#include "base/utf8.hpp"
#include "jinja/args.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

// True when there is a character and each has one of the classes.
bool all_have(std::string_view text, std::uint16_t mask) {
  for (std::size_t pos = 0; pos < text.size();) {
    if ((unicode::classes(utf8::decode(text, pos)) & mask) == 0) {
      return false;
    }
  }
  return !text.empty();
}

// `islower` and `isupper`: some cased character, and none of the other case.
bool one_case(std::string_view text, std::uint16_t wanted, std::uint16_t other) {
  bool seen = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint16_t mask = unicode::classes(utf8::decode(text, pos));
    if ((mask & (other | unicode::kTitle)) != 0) {
      return false;
    }
    seen = seen || (mask & wanted) != 0;
  }
  return seen;
}

bool is_title(std::string_view text) {
  bool seen = false;
  bool after_cased = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint16_t mask = unicode::classes(utf8::decode(text, pos));
    if ((mask & (unicode::kUpper | unicode::kTitle)) != 0) {
      if (after_cased) {
        return false;
      }
      seen = after_cased = true;
    } else if ((mask & unicode::kLower) != 0) {
      if (!after_cased) {
        return false;
      }
      seen = true;
    } else {
      after_cased = false;
    }
  }
  return seen;
}

bool is_identifier(std::string_view text) {
  std::size_t pos = 0;
  return !text.empty() && (unicode::classes(utf8::decode(text, pos)) & unicode::kIdStart) != 0 &&
         (pos == text.size() || all_have(text.substr(pos), unicode::kIdContinue));
}

}  // namespace

Value justify(Runtime& runtime, const Value& self, Method method, const CallArgs& args) {
  const Bound<2> bound(runtime, method_name(method), args, {"width", "fillchar"}, 1);
  const auto width = bound ? bound.integer(0, 0) : std::nullopt;
  const auto fill = bound ? bound.text(1, " ") : std::nullopt;
  if (!width || !fill || !runtime.charge(self.text().size())) {
    return Value::missing();
  }
  if (text::length(*fill) != 1) {
    return runtime.fail("The fill character must be exactly one character long");
  }
  const auto size = static_cast<std::int64_t>(text::length(self.text()));
  const std::int64_t missing = *width - size;
  if (missing <= 0) {
    return self;
  }
  constexpr std::int64_t kFar = std::int64_t{1} << 32;
  if (missing > kFar || !runtime.reserve(static_cast<std::size_t>(missing) * fill->size())) {
    return runtime.fail("the template uses too much memory");
  }
  // The odd space of `center` goes left exactly when Python puts it there.
  const std::int64_t left = method == Method::LJust   ? 0
                            : method == Method::RJust ? missing
                                                      : missing / 2 + (missing & *width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) {
    out += *fill;
  }
  out += self.text();
  for (std::int64_t i = left; i < missing; ++i) {
    out += *fill;
  }
  return runtime.string(out, self.is_markup());
}

Value zfill(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<1> bound(runtime, "zfill", args, {"width"}, 1);
  const auto width = bound ? bound.integer(0, 0) : std::nullopt;
  if (!width || !runtime.charge(self.text().size())) {
    return Value::missing();
  }
  const std::int64_t missing = *width - static_cast<std::int64_t>(text::length(self.text()));
  if (missing <= 0) {
    return self;
  }
  if (missing > (std::int64_t{1} << 32) || !runtime.reserve(static_cast<std::size_t>(missing))) {
    return runtime.fail("the template uses too much memory");
  }
  std::string_view rest = self.text();
  std::string out;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    out += rest[0];
    rest.remove_prefix(1);
  }
  out.append(static_cast<std::size_t>(missing), '0');
  out += rest;
  return runtime.string(out, self.is_markup());
}

Value expand_tabs(Runtime& runtime, const Value& self, const CallArgs& args) {
  const Bound<1> bound(runtime, "expandtabs", args, {"tabsize"});
  const auto size = bound ? bound.integer(0, 8) : std::nullopt;
  if (!size || !runtime.charge(self.text().size())) {
    return Value::missing();
  }
  std::string out;
  std::int64_t column = 0;
  for (std::size_t pos = 0; pos < self.text().size();) {
    const std::size_t start = pos;
    const char32_t c = utf8::decode(self.text(), pos);
    if (c == '\t') {
      const std::int64_t spaces = *size > 0 ? *size - column % *size : 0;
      if (static_cast<std::uint64_t>(spaces) + out.size() > runtime.text_room()) {
        return runtime.fail("the template uses too much memory");
      }
      out.append(static_cast<std::size_t>(spaces), ' ');
      column += spaces;
      continue;
    }
    out += self.text().substr(start, pos - start);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return runtime.string(out, self.is_markup());
}

bool has_property(std::string_view text, Method method) {
  switch (method) {
    case Method::IsAlnum:
      return all_have(text,
                      unicode::kAlpha | unicode::kDecimal | unicode::kDigit | unicode::kNumeric);
    case Method::IsAlpha: return all_have(text, unicode::kAlpha);
    case Method::IsAscii: return text::is_ascii(text);
    case Method::IsDecimal: return all_have(text, unicode::kDecimal);
    case Method::IsDigit: return all_have(text, unicode::kDigit);
    case Method::IsNumeric: return all_have(text, unicode::kNumeric);
    case Method::IsSpace: return all_have(text, unicode::kSpace);
    case Method::IsPrintable: return text.empty() || all_have(text, unicode::kPrintable);
    case Method::IsIdentifier: return is_identifier(text);
    case Method::IsLower: return one_case(text, unicode::kLower, unicode::kUpper);
    case Method::IsUpper: return one_case(text, unicode::kUpper, unicode::kLower);
    default: return is_title(text);
  }
}

std::string change_case(std::string_view text, Method method) {
  switch (method) {
    case Method::Upper: return unicode::upper(text);
    case Method::Lower: return unicode::lower(text);
    case Method::Title: return unicode::title(text);
    case Method::Capitalize: return unicode::capitalize(text);
    case Method::Casefold: return unicode::casefold(text);
    default: return unicode::swapcase(text);
  }
}

}  // namespace fairlead::jinja
