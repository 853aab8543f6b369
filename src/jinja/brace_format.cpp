#include <algorithm>

#include "jinja/format_spec.hpp"
#include "jinja/methods.hpp"
#include "jinja/ops.hpp"

namespace fairlead::jinja {
namespace {

// One `format.format(...)`.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArgs& args, const Value* mapping, bool markup)
      : runtime_(runtime), args_(args), mapping_(mapping), markup_(markup) {}

  bool run(std::string_view format, std::string& out, int depth) {
    if (depth < 0) {
      return fail("Max string recursion exceeded");
    }
    for (std::size_t pos = 0; pos < format.size();) {
      const char c = format[pos];
      if (c != '{' && c != '}') {
        const std::size_t next = std::min(format.find_first_of("{}", pos), format.size());
        out += format.substr(pos, next - pos);
        pos = next;
        continue;
      }
      if (pos + 1 < format.size() && format[pos + 1] == c) {
        out += c;
        pos += 2;
        continue;
      }
      if (c == '}') {
        return fail("Single '}' encountered in format string");
      }
      const std::size_t end = closing(format, pos + 1);
      if (end == std::string_view::npos) {
        return fail(pos + 1 == format.size() ? "Single '{' encountered in format string"
                                             : "expected '}' before end of string");
      }
      if (!field(format.substr(pos + 1, end - pos - 1), out, depth)) {
        return false;
      }
      pos = end + 1;
    }
    return true;
  }

 private:
  bool fail(std::string message) {
    runtime_.fail(std::move(message));
    return false;
  }

  static std::size_t closing(std::string_view format, std::size_t pos) {
    int depth = 1;
    bool bracket = false;
    for (; pos < format.size(); ++pos) {
      const char c = format[pos];
      if (c == '[') {
        bracket = true;
      } else if (c == ']') {
        bracket = false;
      }
      if (bracket) {
        continue;
      }
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (depth == 0) {
        return pos;
      }
    }
    return std::string_view::npos;
  }

  bool field(std::string_view body, std::string& out, int depth) {
    // The name ends at the first ! or : outside brackets.
    std::size_t end = 0;
    for (bool bracket = false; end < body.size(); ++end) {
      if (body[end] == '[') {
        bracket = true;
      } else if (body[end] == ']') {
        bracket = false;
      } else if (!bracket && (body[end] == '!' || body[end] == ':')) {
        break;
      }
    }
    const std::string_view name = body.substr(0, end);
    char conversion = 0;
    if (end < body.size() && body[end] == '!') {
      if (end + 1 >= body.size()) {
        return fail("end of string while looking for conversion specifier");
      }
      conversion = body[end + 1];
      end += 2;
      if (end < body.size() && body[end] != ':') {
        return fail("expected ':' after conversion specifier");
      }
    }
    Value value;
    std::string spec;
    return lookup(name, value) && convert(conversion, value) &&
           run(end < body.size() ? body.substr(end + 1) : std::string_view(), spec, depth - 1) &&
           emit(value, spec, out);
  }

  bool emit(const Value& value, const std::string& spec, std::string& out) {
    Value shown;
    if (markup_ && value.is_markup()) {
      if (!spec.empty()) {
        return fail("Unsupported format specification for Markup.");
      }
      shown = value;
    } else {
      shown = format_value(runtime_, value, spec);
    }
    if (markup_ && !shown.is_missing()) {
      shown = escape(runtime_, shown);
    }
    if (shown.is_missing() || !runtime_.reserve(shown.text().size())) {
      return false;
    }
    out += shown.text();
    return out.size() <= runtime_.text_room() || fail("the template uses too much memory");
  }

  bool convert(char conversion, Value& value) {
    if (conversion == 0) {
      return true;
    }
    if (conversion == 's') {
      value = to_str(runtime_, value);
    } else if (conversion == 'r' || conversion == 'a') {
      std::string repr;
      if (!append_repr(runtime_, repr, value)) {
        return false;
      }
      value = runtime_.string(conversion == 'a' ? ascii_only(repr) : repr);
    } else {
      return fail(std::string("Unknown conversion specifier ") + conversion);
    }
    return !value.is_missing();
  }

  // An empty name stands for the next number. Numbers by hand exclude that; those with an attribute
  // or item behind them do not count.
  bool number(std::string_view& name, std::string& next) {
    if (!name.empty() && !is_number(name)) {
      return true;
    }
    const Numbering wanted = name.empty() ? Numbering::Automatic : Numbering::Manual;
    if (numbering_ != Numbering::None && numbering_ != wanted) {
      return fail("cannot switch from manual field specification to automatic field numbering");
    }
    numbering_ = wanted;
    if (name.empty()) {
      next = std::to_string(automatic_++);
      name = next;
    }
    return true;
  }

  // `first` then any of `.attribute` and `[item]`.
  bool lookup(std::string_view name, Value& out) {
    std::string numbered;
    if (!number(name, numbered)) {
      return false;
    }
    std::size_t end = std::min(name.find_first_of(".["), name.size());
    if (!first(name.substr(0, end), out)) {
      return false;
    }
    while (end < name.size()) {
      if (name[end] == '.') {
        const std::size_t next = std::min(name.find_first_of(".[", end + 1), name.size());
        const std::string_view attribute = name.substr(end + 1, next - end - 1);
        if (attribute.empty()) {
          return fail("Empty attribute in format string");
        }
        out = get_attribute(runtime_, out, attribute);
        end = next;
      } else {
        const std::size_t close = name.find(']', end);
        if (close == std::string_view::npos) {
          return fail("Missing ']' in format string");
        }
        const std::string_view key = name.substr(end + 1, close - end - 1);
        out = get_item(runtime_, out, as_key(key));
        end = close + 1;
        if (end < name.size() && name[end] != '.' && name[end] != '[') {
          return fail("Only '.' or '[' may follow ']' in format field specifier");
        }
      }
      if (out.is_missing()) {
        return false;
      }
    }
    return true;
  }

  static bool is_number(std::string_view key) {
    return !key.empty() && key.size() < 18 &&
           std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
  }

  Value as_key(std::string_view key) {
    return is_number(key) ? Value::integer(std::stoll(std::string(key))) : runtime_.string(key);
  }

  bool first(std::string_view name, Value& out) {
    const Value key = as_key(name);
    if (key.kind() == Kind::Int) {
      const auto index = static_cast<std::size_t>(key.as_int());
      if (mapping_ != nullptr || index >= args_.positional.size()) {
        return fail("Replacement index " + std::to_string(index) +
                    " out of range for positional args tuple");
      }
      out = args_.positional[index];
      return true;
    }
    if (mapping_ != nullptr) {
      if (mapping_->kind() == Kind::Dict) {
        if (const Value* found = as<DictObject>(*mapping_).store().find(name)) {
          out = *found;
          return true;
        }
      }
    } else {
      for (const NamedArg& named : args_.named) {
        if (named.name == name) {
          out = named.value;
          return true;
        }
      }
    }
    std::string message;
    append_repr(message, name);
    return fail(std::move(message));
  }

  enum class Numbering { None, Automatic, Manual };

  Runtime& runtime_;
  const CallArgs& args_;
  const Value* mapping_;
  const bool markup_;
  Numbering numbering_ = Numbering::None;
  std::size_t automatic_ = 0;
};

}  // namespace

Value string_format(Runtime& runtime, const Value& self, const CallArgs& args, bool mapping) {
  constexpr int kNesting = 2;
  std::string out;
  const Value* map = mapping ? &args.positional[0] : nullptr;
  BraceFormatter formatter(runtime, args, map, self.is_markup());
  if (!runtime.charge(self.text().size()) || !formatter.run(self.text(), out, kNesting)) {
    return Value::missing();
  }
  return runtime.string(out, self.is_markup());
}

}  // namespace fairlead::jinja
