#include "base/json.hpp"

#include <fmt/compile.h>
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/utf8.hpp"

namespace fairlead::json {

// Out of line: Member is complete only here.
Object::Object() = default;
Object::Object(std::vector<Member> members) : members_(std::move(members)) {}
Object::Object(const Object& other) = default;
Object::Object(Object&& other) noexcept = default;
Object& Object::operator=(const Object& other) = default;
Object& Object::operator=(Object&& other) noexcept = default;
Object::~Object() = default;

std::size_t Object::size() const { return members_.size(); }

bool Object::empty() const { return members_.empty(); }

const Member* Object::begin() const { return members_.data(); }

const Member* Object::end() const { return members_.data() + members_.size(); }

const Value* Object::find(std::string_view key) const {
  for (const Member& member : members_) {
    if (member.key == key) {
      return &member.value;
    }
  }
  return nullptr;
}

Value* Object::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

void Object::set(std::string key, Value value) {
  for (Member& member : members_) {
    if (member.key == key) {
      member.value = std::move(value);
      return;
    }
  }
  members_.push_back({std::move(key), std::move(value)});
}

bool Object::erase(std::string_view key) {
  return std::erase_if(members_, [&](const Member& member) { return member.key == key; }) > 0;
}

bool Value::number(double& out) const {
  if (const auto* integer = as_int()) {
    out = static_cast<double>(*integer);
    return true;
  }
  if (const auto* real = as_double()) {
    out = *real;
    return true;
  }
  if (const auto* big = std::get_if<BigInt>(&storage_)) {
    return std::from_chars(big->digits.data(), big->digits.data() + big->digits.size(), out).ec ==
           std::errc();
  }
  return false;
}

const Value* Value::find(std::string_view key) const {
  const Object* object = as_object();
  return object ? object->find(key) : nullptr;
}

namespace {

namespace od = simdjson::ondemand;

class Builder {
 public:
  explicit Builder(int max_depth) : max_depth_(max_depth) {}

  template <class Source>
  simdjson::error_code build(Source& source, Value& out, int depth) {
    od::json_type type;
    if (auto error = source.type().get(type)) {
      return error;
    }
    switch (type) {
      case od::json_type::null: {
        bool is_null = false;
        if (auto error = source.is_null().get(is_null)) {
          return error;
        }
        out = Value();
        return is_null ? simdjson::SUCCESS : simdjson::N_ATOM_ERROR;
      }
      case od::json_type::boolean: {
        bool value = false;
        if (auto error = source.get_bool().get(value)) {
          return error;
        }
        out = value;
        return simdjson::SUCCESS;
      }
      case od::json_type::string: {
        std::string_view text;
        if (auto error = source.get_string().get(text)) {
          return error;
        }
        out = text;
        return simdjson::SUCCESS;
      }
      case od::json_type::number: return build_number(source, out);
      case od::json_type::array: return build_array(source, out, depth + 1);
      case od::json_type::object: return build_object(source, out, depth + 1);
    }
    return simdjson::TAPE_ERROR;
  }

 private:
  template <class Source>
  simdjson::error_code build_number(Source& source, Value& out) {
    std::string_view token;
    if (auto error = raw_token(source).get(token)) {
      return error;
    }
    while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' ||
                              token.back() == '\t')) {
      token.remove_suffix(1);
    }
    const bool integral = token.find_first_of(".eE") == std::string_view::npos;
    if (integral) {
      std::int64_t value = 0;
      const auto* end = token.data() + token.size();
      const auto parsed = std::from_chars(token.data(), end, value);
      if (parsed.ec == std::errc::result_out_of_range) {
        const std::size_t digits = token.starts_with('-') ? 1 : 0;
        if (token.size() <= digits || token[digits] == '0' ||
            !std::all_of(token.begin() + static_cast<std::ptrdiff_t>(digits), token.end(),
                         [](char c) { return c >= '0' && c <= '9'; })) {
          return simdjson::NUMBER_ERROR;
        }
        if constexpr (std::is_same_v<Source, od::document>) {
          return simdjson::NUMBER_ERROR;  // only children are skipped without being consumed
        }
        out = BigInt{std::string(token)};
        return simdjson::SUCCESS;
      }
      if (auto error = source.get_int64().get(value)) {
        return error;
      }
      out = value;
      return simdjson::SUCCESS;
    }
    double value = 0;
    if (auto error = source.get_double().get(value)) {
      return error;
    }
    out = value;
    return simdjson::SUCCESS;
  }

  static simdjson::simdjson_result<std::string_view> raw_token(od::value& value) {
    return value.raw_json_token();
  }
  static simdjson::simdjson_result<std::string_view> raw_token(od::document& document) {
    return document.raw_json_token();
  }

  template <class Source>
  simdjson::error_code build_array(Source& source, Value& out, int depth) {
    if (depth > max_depth_) {
      return simdjson::DEPTH_ERROR;
    }
    od::array array;
    if (auto error = source.get_array().get(array)) {
      return error;
    }
    Array elements;
    for (auto element : array) {
      od::value value;
      if (auto error = element.get(value)) {
        return error;
      }
      if (auto error = build(value, elements.emplace_back(), depth)) {
        return error;
      }
    }
    out = std::move(elements);
    return simdjson::SUCCESS;
  }

  template <class Source>
  simdjson::error_code build_object(Source& source, Value& out, int depth) {
    if (depth > max_depth_) {
      return simdjson::DEPTH_ERROR;
    }
    od::object object;
    if (auto error = source.get_object().get(object)) {
      return error;
    }
    std::vector<Member> members;
    for (auto field : object) {
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) {
        return error;
      }
      members.push_back({std::string(key), Value()});
      od::value value;
      if (auto error = field.value().get(value)) {
        return error;
      }
      if (auto error = build(value, members.back().value, depth)) {
        return error;
      }
    }
    out = Object(unique_members(std::move(members)));
    return simdjson::SUCCESS;
  }

  static std::vector<Member> unique_members(std::vector<Member> members) {
    if (members.size() < 2) {
      return members;
    }
    std::vector<std::size_t> order(members.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    const auto by_key = [&](std::size_t a, std::size_t b) {
      return members[a].key < members[b].key;
    };
    std::ranges::sort(order, by_key);
    std::vector<char> dropped(members.size(), 0);
    bool any = false;
    for (std::size_t i = 0; i < order.size();) {
      std::size_t j = i + 1;
      while (j < order.size() && members[order[j]].key == members[order[i]].key) {
        ++j;
      }
      if (j - i > 1) {
        any = true;
        const auto [first, last] =
            std::minmax_element(order.begin() + static_cast<std::ptrdiff_t>(i),
                                order.begin() + static_cast<std::ptrdiff_t>(j));
        const std::size_t keep = *first;
        const std::size_t value = *last;
        members[keep].value = std::move(members[value].value);
        for (std::size_t k = i; k < j; ++k) {
          dropped[order[k]] = order[k] != keep;
        }
      }
      i = j;
    }
    if (any) {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < members.size(); ++i) {
        if (!dropped[i]) {
          if (kept != i) {
            members[kept] = std::move(members[i]);
          }
          ++kept;
        }
      }
      members.resize(kept);
    }
    return members;
  }

  int max_depth_;
};

}  // namespace

Result<Value> parse(std::string_view text, int max_depth) {
  const simdjson::padded_string padded(text);
  od::parser parser;
  od::document document;
  Value out;
  simdjson::error_code error = parser.iterate(padded).get(document);
  if (!error) {
    error = Builder(max_depth).build(document, out, 0);
  }
  if (!error && document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    error = simdjson::TAPE_ERROR;  // something stands behind the document
  }
  if (error) {
    return fail(ErrorCode::InvalidRequest,
                error == simdjson::DEPTH_ERROR
                    ? fmt::format("JSON is nested deeper than {} levels", max_depth)
                    : fmt::format("invalid JSON: {}", simdjson::error_message(error)));
  }
  return out;
}

void append_string(std::string& out, std::string_view text) {
  out.push_back('"');
  append_escaped(out, text);
  out.push_back('"');
}

void append_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::size_t start = 0;
  std::size_t i = 0;
  while (i < text.size()) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c < 0x80) {
      ++i;
      continue;
    }
    if (c >= 0x80) {
      if (const int length = utf8::sequence_length(text.substr(i)); length > 0) {
        i += static_cast<std::size_t>(length);
        continue;
      }
    }
    out.append(text, start, i - start);
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        if (c < 0x20) {
          out += "\\u00";
          out.push_back(kHex[c >> 4]);
          out.push_back(kHex[c & 15]);
        } else {
          out += "\xEF\xBF\xBD";
        }
    }
    start = ++i;
  }
  out.append(text, start, text.size() - start);
}

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) {
    out += ".0";  // a double stays one when it is read back
  }
}

void append_number(std::string& out, std::int64_t value) {
  fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), value);
}

void append_number(std::string& out, std::uint64_t value) {
  fmt::format_to(std::back_inserter(out), FMT_COMPILE("{}"), value);
}

namespace {

struct Dumper {
  std::string& out;

  void operator()(std::monostate) const { out += "null"; }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { append_number(out, value); }
  void operator()(double value) const { append_number(out, value); }
  void operator()(const BigInt& value) const { out += value.digits; }
  void operator()(const std::string& value) const { append_string(out, value); }
  void operator()(const Array& elements) const {
    char separator = '[';
    for (const Value& element : elements) {
      out.push_back(separator);
      append(out, element);
      separator = ',';
    }
    out += elements.empty() ? "[]" : "]";
  }
  void operator()(const Object& members) const {
    char separator = '{';
    for (const auto& [key, value] : members) {
      out.push_back(separator);
      append_string(out, key);
      out.push_back(':');
      append(out, value);
      separator = ',';
    }
    out += members.empty() ? "{}" : "}";
  }
};

}  // namespace

void append(std::string& out, const Value& value) { std::visit(Dumper{out}, value.storage()); }

std::string dump(const Value& value) {
  std::string out;
  append(out, value);
  return out;
}

void Writer::separate() {
  if (comma_) {
    out_.push_back(',');
  }
  comma_ = true;
}

Writer& Writer::begin_object() {
  separate();
  out_.push_back('{');
  comma_ = false;
  return *this;
}

Writer& Writer::end_object() {
  out_.push_back('}');
  comma_ = true;
  return *this;
}

Writer& Writer::begin_array() {
  separate();
  out_.push_back('[');
  comma_ = false;
  return *this;
}

Writer& Writer::end_array() {
  out_.push_back(']');
  comma_ = true;
  return *this;
}

Writer& Writer::key(std::string_view name) {
  separate();
  out_.push_back('"');
  out_ += name;
  out_ += "\":";
  comma_ = false;
  return *this;
}

Writer& Writer::string(std::string_view text) {
  separate();
  append_string(out_, text);
  return *this;
}

Writer& Writer::integer(std::int64_t value) {
  separate();
  append_number(out_, value);
  return *this;
}

Writer& Writer::unsigned_integer(std::uint64_t value) {
  separate();
  append_number(out_, value);
  return *this;
}

Writer& Writer::number(double value) {
  separate();
  append_number(out_, value);
  return *this;
}

Writer& Writer::boolean(bool value) {
  separate();
  out_ += value ? "true" : "false";
  return *this;
}

Writer& Writer::null() {
  separate();
  out_ += "null";
  return *this;
}

Writer& Writer::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

Writer& Writer::value(const Value& document) {
  separate();
  append(out_, document);
  return *this;
}

}  // namespace fairlead::json
