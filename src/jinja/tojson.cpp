#include <algorithm>
#include <cmath>

#include "base/utf8.hpp"
#include "jinja/args.hpp"
#include "jinja/builtins.hpp"
#include "jinja/ops.hpp"
#include "jinja/sorting.hpp"

namespace fairlead::jinja {
namespace {

void append_unit(std::string& out, std::uint32_t unit) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(unit >> shift) & 0xF];
  }
}

bool plain(char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\'; }

void append_string(std::string& out, std::string_view text, bool ascii) {
  out += '"';
  std::size_t pos = 0;
  while (pos < text.size()) {
    const std::size_t start = pos;
    while (pos < text.size() && plain(text[pos]) &&
           (!ascii || (static_cast<unsigned char>(text[pos]) < 0x7F))) {
      ++pos;
    }
    out += text.substr(start, pos - start);
    if (pos == text.size()) {
      break;
    }
    const char c = text[pos];
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default: {
        const char32_t point = utf8::decode(text, pos);
        if (point >= 0x10000) {
          append_unit(out, 0xD800 + ((point - 0x10000) >> 10));
          append_unit(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
        } else {
          append_unit(out, point);
        }
        continue;
      }
    }
    ++pos;
  }
  out += '"';
}

// Python's encoder, over values and over JSON that was never unpacked.
class Encoder {
 public:
  bool ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";

  Encoder(Runtime& runtime, std::string& out) : runtime_(runtime), out_(out) {}

  bool encode(const Value& value) {
    if (!begin()) {
      return false;
    }
    switch (value.kind()) {
      case Kind::None: out_ += "null"; return true;
      case Kind::Bool: out_ += value.as_bool() ? "true" : "false"; return true;
      case Kind::Int: append_integer(value.as_int()); return true;
      case Kind::Float: append_float(value.as_float()); return true;
      case Kind::BigInt: return append_str(runtime_, out_, value);
      case Kind::String: return encode_text(value.text());
      case Kind::List:
      case Kind::Tuple: {
        const auto& list = as<ListObject>(value);
        return list.source() != nullptr ? encode_items(*list.source()) : encode_items(list.items());
      }
      case Kind::Dict: return encode_dict(as<DictObject>(value));
      default:
        runtime_.fail(std::string("Object of type ") + type_name(value) +
                      " is not JSON serializable");
        return false;
    }
  }

  // Escapes take up to three times the bytes, so these are counted first.
  bool encode_text(std::string_view text) {
    if (ascii ? !runtime_.charge_slow(text.size()) : !runtime_.charge(text.size())) {
      return false;
    }
    append_string(out_, text, ascii);
    return true;
  }

  bool encode(const json::Value& value) {
    if (!begin()) {
      return false;
    }
    if (const std::string* text = value.as_string()) {
      return encode_text(*text);
    }
    if (const json::Array* array = value.as_array()) {
      return encode_items(*array);
    }
    if (const json::Object* object = value.as_object(); object != nullptr && !sort_keys) {
      return encode_members(*object);
    }
    return encode(from_json(value));
  }

 private:
  // Counts the element.
  bool begin() {
    if (!runtime_.step() || !runtime_.check_stack()) {
      return false;
    }
    if (out_.size() > runtime_.limits().max_output_bytes) {
      runtime_.fail("the rendered text is too large");
      return false;
    }
    return true;
  }

  void append_integer(std::int64_t value) { json::append_number(out_, value); }

  void append_float(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += repr_float(value);
    }
  }

  void new_line() {
    if (indent) {
      out_ += '\n';
      for (int i = 0; i < level_; ++i) {
        out_ += *indent;
      }
    }
  }

  template <class Items>
  bool encode_items(const Items& items) {
    if (items.empty()) {
      out_ += "[]";
      return true;
    }
    out_ += '[';
    ++level_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) {
        out_ += item_separator;
      }
      first = false;
      new_line();
      if (!encode(item)) {
        return false;
      }
    }
    --level_;
    new_line();
    out_ += ']';
    return true;
  }

  bool encode_members(const json::Object& object) {
    if (object.empty()) {
      out_ += "{}";
      return true;
    }
    out_ += '{';
    ++level_;
    bool first = true;
    for (const json::Member& member : object) {
      if (!first) {
        out_ += item_separator;
      }
      first = false;
      new_line();
      append_string(out_, member.key, ascii);
      out_ += key_separator;
      if (!encode(member.value)) {
        return false;
      }
    }
    --level_;
    new_line();
    out_ += '}';
    return true;
  }

  bool encode_dict(const DictObject& dict) {
    if (dict.source() != nullptr && !sort_keys) {
      return encode_members(*dict.source());
    }
    const auto& entries = dict.store().entries();
    if (entries.empty()) {
      out_ += "{}";
      return true;
    }
    std::vector<const Pair*> order;
    order.reserve(entries.size());
    for (const Pair& entry : entries) {
      order.push_back(&entry);
    }
    if (sort_keys) {
      merge_sort(order, [this](const Pair* a, const Pair* b) {
        return !runtime_.failed() && runtime_.step() &&
               ordered(runtime_, Order::Less, a->first, b->first).value_or(false);
      });
    }
    out_ += '{';
    ++level_;
    bool first = true;
    for (const Pair* entry : order) {
      if (!first) {
        out_ += item_separator;
      }
      first = false;
      new_line();
      if (!append_key(entry->first)) {
        return false;
      }
      out_ += key_separator;
      if (!encode(entry->second)) {
        return false;
      }
    }
    --level_;
    new_line();
    out_ += '}';
    return !runtime_.failed();
  }

  bool append_key(const Value& key) {
    switch (key.kind()) {
      case Kind::String: append_string(out_, key.text(), ascii); return true;
      case Kind::None:
      case Kind::Bool:
      case Kind::Int:
      case Kind::BigInt:
      case Kind::Float: {
        out_ += '"';
        const bool done = encode(key);
        out_ += '"';
        return done;
      }
      default:
        runtime_.fail(std::string("keys must be str, int, float, bool or None, not ") +
                      type_name(key));
        return false;
    }
  }

  Runtime& runtime_;
  std::string& out_;
  int level_ = 0;
};

bool set_indent(Runtime& runtime, const Value& value, Encoder& encoder) {
  if (value.is_string()) {
    encoder.indent = std::string(value.text());
  } else if (value.kind() == Kind::Int || value.kind() == Kind::Bool) {
    const std::int64_t width = std::max<std::int64_t>(value.as_int(), 0);
    if (!runtime.reserve(
            static_cast<std::size_t>(std::min<std::int64_t>(width, std::int64_t{1} << 40)))) {
      return false;
    }
    encoder.indent = std::string(static_cast<std::size_t>(width), ' ');
  } else {
    runtime.fail(std::string("can't multiply sequence by non-int of type '") + type_name(value) +
                 "'");
    return false;
  }
  encoder.item_separator = ",";
  return true;
}

bool set_separators(Runtime& runtime, const Value& value, Encoder& encoder) {
  ListBuilder builder(runtime);
  if (!builder.extend(value)) {
    return false;
  }
  const std::vector<Value> parts = builder.take();
  if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
    runtime.fail("separators must be two strings");
    return false;
  }
  encoder.item_separator = parts[0].text();
  encoder.key_separator = parts[1].text();
  return true;
}

}  // namespace

Value filter_tojson(Runtime& runtime, const Value& input, const CallArgs& args) {
  const Bound<4> bound(runtime, "tojson", args,
                       {"ensure_ascii", "indent", "separators", "sort_keys"});
  if (!bound) {
    return Value::missing();
  }
  std::string out;
  Encoder encoder(runtime, out);
  encoder.ascii = bound.flag(0, false);
  encoder.sort_keys = bound.flag(3, false);
  if ((bound.given(1) && !set_indent(runtime, *bound[1], encoder)) ||
      (bound.given(2) && !set_separators(runtime, *bound[2], encoder)) || !encoder.encode(input)) {
    return Value::missing();
  }
  return runtime.string(out);
}

}  // namespace fairlead::jinja
