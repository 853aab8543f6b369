#include <algorithm>

#include "base/utf8.hpp"
#include "jinja/args.hpp"
#include "jinja/builtins.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

// A filter that turns its input into text and calls a method of it.
template <Method kMethod>
Value text_method(Runtime& runtime, const Value& input, const CallArgs& args) {
  Value text = soft_str(runtime, input);
  return text.is_missing() ? text : call_string_method(runtime, text, kMethod, args);
}

Value filter_string(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "string", args, {});
  return none ? soft_str(runtime, input) : Value::missing();
}

Value filter_escape(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "escape", args, {});
  return none ? escape(runtime, input) : Value::missing();
}

Value filter_forceescape(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "forceescape", args, {});
  Value plain = none ? to_str(runtime, input) : Value::missing();
  return plain.is_missing() ? plain : escape(runtime, plain);
}

Value filter_safe(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "safe", args, {});
  Value plain = none ? to_str(runtime, input) : Value::missing();
  return plain.is_missing() ? plain : Runtime::part(plain, plain.text(), true);
}

Value filter_replace(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<3> bound(runtime, "replace", args, {"old", "new", "count"}, 2);
  if (!bound) {
    return Value::missing();
  }
  Value whole = to_str(runtime, input);
  Value from = to_str(runtime, *bound[0]);
  Value to = to_str(runtime, *bound[1]);
  const auto limit = bound.given(2) ? bound.integer(2, -1) : std::optional<std::int64_t>(-1);
  if (runtime.failed() || !limit) {
    return Value::missing();
  }
  const std::array<Value, 3> values = {from, to, Value::integer(*limit)};
  return call_string_method(runtime, whole, Method::Replace, CallArgs{values, {}});
}

bool breaks_word(char32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || unicode::is_space(c);
}

// Jinja's own rule: words begin after whitespace, dashes and opening brackets.
Value filter_title(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "title", args, {});
  Value text = none ? soft_str(runtime, input) : Value::missing();
  if (text.is_missing() || !runtime.charge_slow(text.text().size())) {
    return Value::missing();
  }
  std::string out;
  const std::string_view whole = text.text();
  for (std::size_t pos = 0; pos < whole.size();) {
    std::size_t end = pos;
    const bool breaking = breaks_word(utf8::decode(whole, end));
    const std::size_t first = end;
    while (end < whole.size()) {
      std::size_t next = end;
      if (breaks_word(utf8::decode(whole, next)) != breaking) {
        break;
      }
      end = next;
    }
    out += unicode::upper(whole.substr(pos, first - pos));
    out += unicode::lower(whole.substr(first, end - first));
    pos = end;
  }
  return runtime.string(out);
}

Value filter_indent(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<3> bound(runtime, "indent", args, {"width", "first", "blank"});
  if (!bound) {
    return Value::missing();
  }
  if (!input.is_string()) {
    return runtime.fail(input.is_undefined()
                            ? input.undefined_message()
                            : std::string("unsupported operand type(s) for +=: '") +
                                  type_name(input) + "' and 'str'");
  }
  std::string indentation;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indentation = bound[0]->text();
  } else {
    const auto width = bound.integer(0, 4);
    if (!width || !runtime.reserve(static_cast<std::size_t>(
                      std::clamp<std::int64_t>(*width, 0, std::int64_t{1} << 40)))) {
      return Value::missing();
    }
    indentation.assign(static_cast<std::size_t>(std::max<std::int64_t>(*width, 0)), ' ');
  }
  const bool first = bound.flag(1, false);
  const bool blank = bound.flag(2, false);
  const std::string whole = std::string(input.text()) + "\n";
  const auto lines = text::split_lines(whole, false);
  if (!runtime.reserve(whole.size() +
                       lines.size() * (indentation.size() + sizeof(std::string_view)))) {
    return Value::missing();
  }
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (blank || !lines[i].empty()) {
        out += indentation;
      }
    } else if (first) {
      out += indentation;
    }
    out += lines[i];
  }
  return runtime.string(out, input.is_markup());
}

Value filter_format(Runtime& runtime, const Value& input, const CallArgs& args) {
  if (!args.positional.empty() && !args.named.empty()) {
    return runtime.fail("can't handle positional and keyword arguments at the same time");
  }
  Value format = soft_str(runtime, input);
  if (format.is_missing()) {
    return format;
  }
  if (args.named.empty()) {
    return percent_format(runtime, format,
                          runtime.tuple({args.positional.begin(), args.positional.end()}));
  }
  DictStore store;
  for (const NamedArg& named : args.named) {
    store.set(runtime.string(named.name), named.value);
  }
  return percent_format(runtime, format, runtime.dict(std::move(store)));
}

Value filter_center(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "center", args, {"width"});
  Value text = bound ? soft_str(runtime, input) : Value::missing();
  if (text.is_missing()) {
    return text;
  }
  const std::array<Value, 1> width = {bound[0] != nullptr ? *bound[0] : Value::integer(80)};
  return call_string_method(runtime, text, Method::Center, CallArgs{width, {}});
}

Value filter_truncate(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<4> bound(runtime, "truncate", args, {"length", "killwords", "end", "leeway"});
  const auto limit = bound ? bound.integer(0, 255) : std::nullopt;
  const auto leeway = bound
                          ? (bound.given(3) ? bound.integer(3, 5) : std::optional<std::int64_t>(5))
                          : std::nullopt;
  // Anything with a length may be the end as long as it is not needed.
  const Value ending = bound && bound[2] != nullptr ? *bound[2] : Value::borrowed("...");
  const auto ending_size = length(runtime, ending);
  if (!limit || !ending_size || !leeway) {
    return Value::missing();
  }
  const auto end_size = static_cast<std::int64_t>(*ending_size);
  if (*limit < end_size || *leeway < 0) {
    return runtime.fail("expected length >= " + std::to_string(end_size) + ", got " +
                        std::to_string(*limit));
  }
  const auto size = length(runtime, input);
  if (!size || static_cast<std::int64_t>(*size) <= *limit + *leeway) {
    return size ? input : Value::missing();
  }
  if (!input.is_string()) {
    return runtime.fail(std::string("truncate expects a string, not ") + type_name(input));
  }
  std::string_view kept = input.text().substr(
      0, text::offset(input.text(), static_cast<std::size_t>(*limit - end_size)));
  if (!bound.flag(1, false)) {
    kept = kept.substr(0, std::min(kept.rfind(' '), kept.size()));
  }
  return arithmetic(runtime, Arithmetic::Add, Runtime::part(input, kept, input.is_markup()),
                    ending);
}

Value filter_wordcount(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "wordcount", args, {});
  Value text = none ? soft_str(runtime, input) : Value::missing();
  if (text.is_missing() || !runtime.charge_slow(text.text().size())) {
    return Value::missing();
  }
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t pos = 0; pos < text.text().size();) {
    const char32_t c = utf8::decode(text.text(), pos);
    constexpr std::uint16_t kWord =
        unicode::kAlpha | unicode::kDecimal | unicode::kDigit | unicode::kNumeric;
    const bool word = c == '_' || (unicode::classes(c) & kWord) != 0;
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(words);
}

void append_quoted(std::string& out, std::string_view text, bool query) {
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool keep = byte < 0x80 && (std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' ||
                                      c == '~' || (c == '/' && !query));
    if (keep) {
      out += c;
    } else if (query && c == ' ') {
      out += '+';
    } else {
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 0xF];
    }
  }
}

Value filter_urlencode(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<0> none(runtime, "urlencode", args, {});
  if (!none) {
    return Value::missing();
  }
  std::string out;
  const bool pairs = input.kind() == Kind::Dict || input.kind() == Kind::List ||
                     input.kind() == Kind::Tuple || input.kind() == Kind::DictView ||
                     input.kind() == Kind::Iterator || input.is_undefined();
  if (!pairs) {
    Value text = to_str(runtime, input);
    if (text.is_missing() || !runtime.reserve(text.text().size() * 3)) {
      return Value::missing();
    }
    append_quoted(out, text.text(), false);
    return runtime.string(out);
  }
  const Value view =
      input.kind() == Kind::Dict ? make<ViewObject>(Kind::DictView, input, ViewKind::Items) : input;
  Cursor cursor(runtime, view);
  for (Value pair; cursor.next(pair);) {
    Value list = to_list(runtime, pair);
    if (list.is_missing()) {
      return list;
    }
    const auto& items = as<ListObject>(list).items();
    if (items.size() != 2) {
      return runtime.fail("urlencode expects pairs");
    }
    out += out.empty() ? "" : "&";
    for (std::size_t i = 0; i < 2; ++i) {
      Value text = to_str(runtime, items[i]);
      if (text.is_missing() || !runtime.reserve(out.size() + text.text().size() * 3)) {
        return Value::missing();
      }
      append_quoted(out, text.text(), true);
      out += i == 0 ? "=" : "";
    }
  }
  return runtime.failed() ? Value::missing() : runtime.string(out);
}

Value filter_xmlattr(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<1> bound(runtime, "xmlattr", args, {"autospace"});
  if (!bound) {
    return Value::missing();
  }
  if (input.kind() != Kind::Dict) {
    return runtime.fail(std::string("'") + type_name(input) + "' object has no attribute 'items'");
  }
  std::string out;
  for (const auto& [key, value] : as<DictObject>(input).store().entries()) {
    if (value.is_none() || value.is_undefined()) {
      continue;
    }
    if (!key.is_string()) {
      return runtime.fail(std::string("expected string or bytes-like object, got '") +
                          type_name(key) + "'");
    }
    if (key.text().find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      return runtime.fail("Invalid character in attribute name: '" + std::string(key.text()) + "'");
    }
    const Value name = escape(runtime, key);
    const Value content = escape(runtime, value);
    if (runtime.failed() || !runtime.reserve(out.size())) {
      return Value::missing();
    }
    out += out.empty() && !bound.flag(0, true) ? "" : " ";
    out.append(name.text()).append("=\"").append(content.text()).append("\"");
  }
  return runtime.string(out);
}

constexpr std::array kFilters = {
    BuiltinRow{"trim", text_method<Method::Strip>},
    BuiltinRow{"upper", text_method<Method::Upper>},
    BuiltinRow{"lower", text_method<Method::Lower>},
    BuiltinRow{"capitalize", text_method<Method::Capitalize>},
    BuiltinRow{"title", filter_title},
    BuiltinRow{"string", filter_string},
    BuiltinRow{"escape", filter_escape},
    BuiltinRow{"e", filter_escape},
    BuiltinRow{"forceescape", filter_forceescape},
    BuiltinRow{"safe", filter_safe},
    BuiltinRow{"replace", filter_replace},
    BuiltinRow{"indent", filter_indent},
    BuiltinRow{"format", filter_format},
    BuiltinRow{"center", filter_center},
    BuiltinRow{"truncate", filter_truncate},
    BuiltinRow{"wordcount", filter_wordcount},
    BuiltinRow{"urlencode", filter_urlencode},
    BuiltinRow{"xmlattr", filter_xmlattr},
    BuiltinRow{"tojson", filter_tojson},
};

}  // namespace

std::span<const BuiltinRow> text_filters() { return kFilters; }

}  // namespace fairlead::jinja
