#include <array>

#include "base/utf8.hpp"
#include "jinja/loop.hpp"
#include "jinja/macro.hpp"
#include "jinja/ops.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

void append_hex(std::string& out, std::uint32_t value, int digits) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out += kDigits[(value >> shift) & 0xF];
  }
}

void append_escaped(std::string& out, char32_t c, std::string_view bytes) {
  if ((unicode::classes(c) & unicode::kPrintable) != 0) {
    out += bytes;
  } else if (c < 0x100) {
    out += "\\x";
    append_hex(out, c, 2);
  } else if (c < 0x10000) {
    out += "\\u";
    append_hex(out, c, 4);
  } else {
    out += "\\U";
    append_hex(out, c, 8);
  }
}

class Printer {
 public:
  Printer(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}

  bool repr(const Value& value) {
    if (!runtime_.step() || !runtime_.check_stack() || !check_size()) {
      return false;
    }
    switch (value.kind()) {
      case Kind::Missing: return false;
      case Kind::Undefined: out_ += "Undefined"; return true;
      case Kind::String: return text(value);
      case Kind::List: return items("[", as<ListObject>(value).items(), "]");
      case Kind::Tuple: {
        const auto& elements = as<ListObject>(value).items();
        return items("(", elements, elements.size() == 1 ? ",)" : ")");
      }
      case Kind::Dict: return entries(as<DictObject>(value).store());
      case Kind::DictView: return view(value);
      case Kind::Namespace:
        out_ += "<Namespace ";
        if (!entries(as<NamespaceObject>(value).attributes)) {
          return false;
        }
        out_ += ">";
        return true;
      default: return scalar(value);
    }
  }

  bool scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::None: out_ += "None"; return true;
      case Kind::Bool: out_ += value.as_bool() ? "True" : "False"; return true;
      case Kind::Int: out_ += std::to_string(value.as_int()); return true;
      case Kind::BigInt: return big(as<BigObject>(value).value);
      case Kind::Float: out_ += repr_float(value.as_float()); return true;
      case Kind::Range: {
        const auto& range = as<RangeObject>(value);
        out_ += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
        out_ += range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")";
        return true;
      }
      case Kind::Macro: out_ += as<MacroObject>(value).describe(); return true;
      case Kind::Loop: return loop(as<LoopObject>(value));
      case Kind::Function:
        out_ += std::string("<function ") + as<FunctionObject>(value).name + ">";
        return true;
      default: out_ += std::string("<") + type_name(value) + " object>"; return true;
    }
  }

 private:
  bool check_size() {
    if (out_.size() <= runtime_.limits().max_output_bytes) {
      return true;
    }
    runtime_.fail("the rendered text is too large");
    return false;
  }

  bool text(const Value& value) {
    if (!runtime_.charge(value.text().size())) {
      return false;
    }
    if (value.is_markup()) {
      out_ += "Markup(";
    }
    append_repr(out_, value.text());
    if (value.is_markup()) {
      out_ += ")";
    }
    return true;
  }

  bool items(std::string_view open, const std::vector<Value>& elements, std::string_view close) {
    out_ += open;
    bool first = true;
    for (const Value& element : elements) {
      out_ += first ? "" : ", ";
      first = false;
      if (!repr(element)) {
        return false;
      }
    }
    out_ += close;
    return true;
  }

  bool entries(const DictStore& store) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, value] : store.entries()) {
      out_ += first ? "" : ", ";
      first = false;
      if (!repr(key)) {
        return false;
      }
      out_ += ": ";
      if (!repr(value)) {
        return false;
      }
    }
    out_ += "}";
    return true;
  }

  bool view(const Value& value) {
    out_ += type_name(value);
    out_ += "(";
    ListBuilder builder(runtime_);
    if (!builder.extend(value) || !items("[", builder.take(), "]")) {
      return false;
    }
    out_ += ")";
    return true;
  }

  bool big(const BigInt& value) {
    constexpr std::size_t kPythonLimit = 4300;
    if (!runtime_.step(1 + value.limbs())) {
      return false;
    }
    const std::string digits = value.text();
    if (digits.size() - (value.negative() ? 1 : 0) > kPythonLimit) {
      runtime_.fail("Exceeds the limit (4300 digits) for integer string conversion");
      return false;
    }
    out_ += digits;
    return true;
  }

  bool loop(LoopObject& object) {
    const auto length = object.length(runtime_);
    if (!length) {
      return false;
    }
    out_ +=
        "<LoopContext " + std::to_string(object.index0 + 1) + "/" + std::to_string(*length) + ">";
    return true;
  }

  Runtime& runtime_;
  std::string& out_;
};

}  // namespace

void append_repr(std::string& out, std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t pos = 0; pos < text.size();) {
    const char c = text[pos];
    const std::size_t start = pos;
    if (static_cast<unsigned char>(c) >= 0x7F) {
      const char32_t point = utf8::decode(text, pos);
      append_escaped(out, point, text.substr(start, pos - start));
      continue;
    }
    ++pos;
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (c == quote) {
          out += '\\';
          out += c;
        } else {
          append_escaped(out, static_cast<unsigned char>(c), text.substr(start, 1));
        }
    }
  }
  out += quote;
}

bool append_repr(Runtime& runtime, std::string& out, const Value& value) {
  return Printer(runtime, out).repr(value);
}

bool append_str(Runtime& runtime, std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return true;
    case Kind::String: out += value.text(); return runtime.charge(value.text().size());
    case Kind::None:
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float: return Printer(runtime, out).scalar(value);
    default: return append_repr(runtime, out, value);
  }
}

Value to_str(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    return value.is_markup() ? Runtime::part(value, value.text(), false) : value;
  }
  std::string out;
  return append_str(runtime, out, value) ? runtime.string(out) : Value::missing();
}

Value soft_str(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : to_str(runtime, value);
}

Value escape(Runtime& runtime, const Value& value) {
  if (value.is_markup()) {
    return value;
  }
  const Value plain = to_str(runtime, value);
  if (plain.is_missing() || !runtime.reserve(plain.text().size() * 6)) {
    return Value::missing();
  }
  return runtime.string(text::escape_html(plain.text()), true);
}

}  // namespace fairlead::jinja
