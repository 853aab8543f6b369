#include "base/yaml.hpp"

#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace fairlead::yaml {
namespace {

using json::Value;

constexpr std::size_t kMaxKeys = 4096;
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// An integer of the core schema without its sign: decimal, or 0o and 0x where there is no sign.
std::optional<Value> integer(std::string_view digits, bool sign, bool negative) {
  int base = 10;
  if (!sign && (digits.starts_with("0o") || digits.starts_with("0x"))) {
    base = digits[1] == 'o' ? 8 : 16;
    digits.remove_prefix(2);
  }
  if (digits.starts_with('-')) {
    return std::nullopt;
  }
  // With its minus, because the least integer has no counterpart.
  const char* begin = digits.data() - (negative ? 1 : 0);
  const char* end = digits.data() + digits.size();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value, base);
  if (stop != end || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (error == std::errc()) {
    return Value(value);
  }
  if (base != 10) {
    return std::nullopt;
  }
  json::BigInt big{negative ? "-" : ""};
  big.digits += digits.substr(digits.find_first_not_of('0'));
  return Value(std::move(big));
}

// What a plain scalar means by the core schema.
Value resolve(std::string_view text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") {
    return {};
  }
  if (text == "true" || text == "True" || text == "TRUE") {
    return true;
  }
  if (text == "false" || text == "False" || text == "FALSE") {
    return false;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const bool negative = text[0] == '-';
  const bool sign = negative || text[0] == '+';
  const std::string_view digits = text.substr(sign ? 1 : 0);
  double value = std::numeric_limits<double>::infinity();
  if (digits != ".inf" && digits != ".Inf" && digits != ".INF") {
    const std::string_view first = digits.starts_with('.') ? digits.substr(1) : digits;
    if (first.empty() || !is_digit(first[0])) {
      return text;
    }
    if (auto found = integer(digits, sign, negative)) {
      return std::move(*found);
    }
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (stop != end || error != std::errc()) {
      return text;
    }
  }
  return negative ? -value : value;
}

// `text` with a tag; nothing when the tag is unknown or the text is not of that kind.
std::optional<Value> resolve_tagged(std::string_view tag, std::string_view text) {
  if (!tag.starts_with(kCoreTag)) {
    return std::nullopt;
  }
  tag.remove_prefix(kCoreTag.size());
  if (tag == "str") {
    return Value(text);
  }
  Value value = resolve(text);
  double number = 0;
  if (tag == "float" && value.number(number)) {
    return Value(number);
  }
  const bool fits =
      (tag == "null" && value.is_null()) || (tag == "bool" && value.as_bool() != nullptr) ||
      (tag == "int" &&
       (value.as_int() != nullptr || std::holds_alternative<json::BigInt>(value.storage())));
  return fits ? std::optional(std::move(value)) : std::nullopt;
}

std::string_view view(const yaml_char_t* text) {
  return text == nullptr ? std::string_view() : reinterpret_cast<const char*>(text);
}

std::unexpected<Error> error(std::size_t line, std::string_view what) {
  return fail(ErrorCode::InvalidRequest, fmt::format("line {}: {}", line + 1, what));
}

// The value so far: what is open, innermost last.
class Builder {
 public:
  // Takes one event of a node.
  Result<> take(const yaml_event_t& event) {
    line_ = event.start_mark.line;
    switch (event.type) {
      case YAML_SCALAR_EVENT: return scalar(event);
      case YAML_SEQUENCE_START_EVENT:
        return open(Value(json::Array()), event.data.sequence_start.anchor,
                    view(event.data.sequence_start.tag), "seq");
      case YAML_MAPPING_START_EVENT:
        return open(Value(json::Object()), event.data.mapping_start.anchor,
                    view(event.data.mapping_start.tag), "map");
      case YAML_SEQUENCE_END_EVENT:
      case YAML_MAPPING_END_EVENT: {
        Value value = std::move(open_.back().value);
        open_.pop_back();
        add(std::move(value));
        return {};
      }
      case YAML_ALIAS_EVENT: return no_anchors();
      default: return {};
    }
  }

  Value finish() { return std::move(root_); }

 private:
  struct Open {
    Value value;  // array or object
    std::optional<std::string> key = {};
  };

  std::unexpected<Error> no_anchors() const {
    return error(line_, "anchors and aliases are not read; quote text that begins so");
  }
  std::unexpected<Error> bad_tag() const {
    return error(line_, "a tag that is not of the core schema or does not fit its value");
  }
  bool at_key() const {
    return !open_.empty() && open_.back().value.as_object() != nullptr && !open_.back().key;
  }

  Result<> open(Value value, const yaml_char_t* anchor, std::string_view tag,
                std::string_view kind) {
    if (anchor != nullptr) {
      return no_anchors();
    }
    if (!tag.empty() && !(tag.starts_with(kCoreTag) && tag.substr(kCoreTag.size()) == kind)) {
      return bad_tag();
    }
    if (at_key()) {
      return error(line_, "a key is text, not a list or mapping");
    }
    if (open_.size() >= kMaxDepth) {
      return error(line_, "nested too deeply");
    }
    open_.push_back({.value = std::move(value)});
    return {};
  }

  Result<> scalar(const yaml_event_t& event) {
    const auto& found = event.data.scalar;
    const std::string_view text(reinterpret_cast<const char*>(found.value), found.length);
    if (found.anchor != nullptr) {
      return no_anchors();
    }
    Value value(text);
    if (found.tag != nullptr) {
      std::optional<Value> tagged = resolve_tagged(view(found.tag), text);
      if (!tagged) {
        return bad_tag();
      }
      value = std::move(*tagged);
    } else if (found.style == YAML_PLAIN_SCALAR_STYLE) {
      value = resolve(text);
    }
    if (at_key()) {
      return key(text);
    }
    add(std::move(value));
    return {};
  }

  // Keys are looked up one by one, hence the bound.
  Result<> key(std::string_view text) {
    const json::Object& object = *open_.back().value.as_object();
    if (object.size() >= kMaxKeys) {
      return error(line_, fmt::format("more than {} keys in one mapping", kMaxKeys));
    }
    if (object.find(text) != nullptr) {
      std::string shown;
      json::append_escaped(shown, text.substr(0, 64));
      return error(line_, fmt::format("the key `{}` is repeated", shown));
    }
    open_.back().key = text;
    return {};
  }

  void add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& into = open_.back();
    if (json::Array* array = into.value.as_array()) {
      array->push_back(std::move(value));
    } else {
      into.value.as_object()->set(*std::exchange(into.key, std::nullopt), std::move(value));
    }
  }

  Value root_;
  std::vector<Open> open_;
  std::size_t line_ = 0;
};

// Why the library stopped.
std::unexpected<Error> syntax_error(const yaml_parser_t& parser, std::string_view text) {
  if (parser.problem == nullptr) {
    return fail(ErrorCode::Internal, "no memory to read the text");
  }
  if (parser.error == YAML_READER_ERROR) {  // It knows the byte only.
    const std::string_view before = text.substr(0, parser.problem_offset);
    return error(static_cast<std::size_t>(std::ranges::count(before, '\n')), parser.problem);
  }
  std::string what = parser.problem;
  if (parser.context != nullptr) {
    what += fmt::format(" {}", parser.context);
    if (parser.context_mark.line != parser.problem_mark.line) {
      what += fmt::format(" that begins on line {}", parser.context_mark.line + 1);
    }
  }
  return error(parser.problem_mark.line, what);
}

}  // namespace

Result<Value> parse(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return fail(ErrorCode::InvalidRequest, fmt::format("more than {} bytes", kMaxBytes));
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  yaml_parser_t parser;
  if (yaml_parser_initialize(&parser) == 0) {
    return syntax_error(parser, text);
  }
  const std::unique_ptr<yaml_parser_t, decltype(&yaml_parser_delete)> parser_owner(
      &parser, &yaml_parser_delete);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  Builder builder;
  for (bool begun = false;;) {
    yaml_event_t event;
    if (yaml_parser_parse(&parser, &event) == 0) {
      return syntax_error(parser, text);
    }
    const std::unique_ptr<yaml_event_t, decltype(&yaml_event_delete)> event_owner(
        &event, &yaml_event_delete);
    if (event.type == YAML_STREAM_END_EVENT) {
      return builder.finish();
    }
    if (event.type == YAML_DOCUMENT_START_EVENT && std::exchange(begun, true)) {
      return error(event.start_mark.line, "more than one document");
    }
    if (Result<> taken = builder.take(event); !taken) {
      return std::unexpected(std::move(taken.error()));
    }
  }
}

}  // namespace fairlead::yaml
