#include "base/yaml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/utf8.hpp"
#include "base/yaml_scalar.hpp"

namespace fairlead::yaml {
namespace {

using json::Value;

constexpr std::size_t kMaxKeys = 4096;

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_flow_mark(char c) { return c == ',' || c == '[' || c == ']' || c == '{' || c == '}'; }

/// Stands at the first character of some content, `column_` being its distance from the line's
/// start, or at the end of the text.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Value> run() {
    if (Result<> begun = begin(); !begun) {
      return std::unexpected(std::move(begun.error()));
    }
    if (at_end()) {
      return Value();
    }
    Result<Value> value = node(0);
    if (value && !at_end()) {
      return error("unexpected indentation or text");
    }
    return value;
  }

 private:
  std::unexpected<Error> error(std::string_view what) const {
    return fail(ErrorCode::InvalidRequest, fmt::format("line {}: {}", line_, what));
  }

  bool at_end() const { return pos_ >= text_.size(); }
  char at(std::size_t pos) const { return pos < text_.size() ? text_[pos] : '\n'; }
  char peek() const { return at(pos_); }
  // Whether a character ends a mark like `-` or `:`.
  bool ends_mark(std::size_t pos) const { return is_blank(at(pos)) || at_line_end(pos); }
  bool at_line_end(std::size_t pos) const {
    return at(pos) == '\n' || (at(pos) == '\r' && at(pos + 1) == '\n');
  }
  std::size_t column() const { return pos_ - line_start_; }
  bool at_entry() const { return peek() == '-' && ends_mark(pos_ + 1); }

  Result<> begin() {
    if (Result<> moved = next_content(); !moved) {
      return moved;
    }
    if (column() == 0 && text_.substr(pos_).starts_with("---") && ends_mark(pos_ + 3)) {
      pos_ += 3;
      return next_content();
    }
    return {};
  }

  void skip_blanks() {
    while (!at_end() && is_blank(peek())) {
      ++pos_;
    }
  }

  // Skips blanks and a comment; true when the line ends then.
  bool rest_is_empty() {
    const std::size_t start = pos_;
    skip_blanks();
    if (peek() == '#' && (pos_ > start || pos_ == line_start_)) {
      while (!at_end() && peek() != '\n') {
        ++pos_;
      }
    }
    return at_line_end(pos_);
  }

  // From the end of a line's content to the content of the next line that has some.
  Result<> next_content() {
    while (rest_is_empty()) {
      if (at_end()) {
        return {};
      }
      pos_ += peek() == '\r' ? 2 : 1;
      if (at_end()) {
        line_start_ = pos_;
        return {};
      }
      ++line_;
      line_start_ = pos_;
    }
    if (text_.substr(line_start_, pos_ - line_start_).contains('\t') && at_first_content()) {
      return error("a tab in the indentation");
    }
    if (column() == 0 && ends_mark(pos_ + 3) &&
        (text_.substr(pos_).starts_with("...") ||
         (begun_ && text_.substr(pos_).starts_with("---")))) {
      return error("more than one document");
    }
    begun_ = true;
    return {};
  }

  bool at_first_content() const {
    return std::ranges::all_of(text_.substr(line_start_, pos_ - line_start_), is_blank);
  }

  Result<> end_of_line() {
    if (!rest_is_empty()) {
      return error("unexpected text after the value");
    }
    return next_content();
  }

  // Whatever begins here; ends at the next content.
  Result<Value> node(int depth) {
    if (depth >= kMaxDepth) {
      return error("nested too deeply");
    }
    if (at_entry()) {
      return list(depth);
    }
    if (const Result<bool> key = at_key(); !key) {
      return std::unexpected(key.error());
    } else if (*key) {
      return mapping(depth);
    }
    return inline_value(depth);
  }

  // A value that is neither a block list nor a block mapping, and the end of its line.
  Result<Value> inline_value(int depth) {
    Result<Value> value = peek() == '[' || peek() == '{' ? flow(depth) : scalar(false);
    if (value) {
      if (Result<> ended = end_of_line(); !ended) {
        return std::unexpected(std::move(ended.error()));
      }
    }
    return value;
  }

  // Whether the line goes on as `key:`.
  Result<bool> at_key() {
    const std::size_t start = pos_;
    if (peek() == '[' || peek() == '{') {
      return false;
    }
    const Result<std::string> key = scalar_text(false);
    if (!key) {
      return std::unexpected(key.error());
    }
    skip_blanks();
    const bool found = peek() == ':' && ends_mark(pos_ + 1);
    pos_ = start;
    return found;
  }

  Result<Value> mapping(int depth) {
    const std::size_t indent = column();
    json::Object object;
    while (!at_end() && column() == indent && !at_entry()) {
      Result<std::string> key = scalar_text(false);
      if (!key) {
        return std::unexpected(std::move(key.error()));
      }
      skip_blanks();
      if (peek() != ':' || !ends_mark(pos_ + 1)) {
        return error("expected `key: value`");
      }
      ++pos_;
      if (Result<> fresh = new_key(object, *key); !fresh) {
        return std::unexpected(std::move(fresh.error()));
      }
      Result<Value> value = member(indent, depth);
      if (!value) {
        return value;
      }
      object.set(std::move(*key), std::move(*value));
    }
    if (!at_end() && column() > indent) {
      return error("unexpected indentation");
    }
    return Value(std::move(object));
  }

  // The value after `key:`.
  Result<Value> member(std::size_t indent, int depth) {
    if (!rest_is_empty()) {
      return inline_value(depth + 1);
    }
    if (Result<> moved = next_content(); !moved) {
      return std::unexpected(std::move(moved.error()));
    }
    if (!at_end() && (column() > indent || (column() == indent && at_entry()))) {
      return node(depth + 1);
    }
    return Value();
  }

  Result<Value> list(int depth) {
    const std::size_t indent = column();
    json::Array array;
    while (!at_end() && column() == indent && at_entry()) {
      ++pos_;
      Value element;
      bool present = !rest_is_empty();
      if (!present) {
        if (Result<> moved = next_content(); !moved) {
          return std::unexpected(std::move(moved.error()));
        }
        present = !at_end() && column() > indent;
      }
      if (present) {
        Result<Value> found = node(depth + 1);
        if (!found) {
          return found;
        }
        element = std::move(*found);
      }
      array.push_back(std::move(element));
    }
    if (!at_end() && column() > indent) {
      return error("unexpected indentation");
    }
    return Value(std::move(array));
  }

  // Blanks, line ends and comments between the parts of a flow collection.
  Result<> skip_flow_space() {
    while (rest_is_empty()) {
      if (at_end()) {
        return error("`[` or `{` without its end");
      }
      pos_ += peek() == '\r' ? 2 : 1;
      ++line_;
      line_start_ = pos_;
    }
    return {};
  }

  Result<Value> flow(int depth) {
    if (depth >= kMaxDepth) {
      return error("nested too deeply");
    }
    const bool object = peek() == '{';
    const char close = object ? '}' : ']';
    json::Array array;
    json::Object members;
    ++pos_;
    while (true) {
      if (Result<> skipped = skip_flow_space(); !skipped) {
        return std::unexpected(std::move(skipped.error()));
      }
      if (peek() == close) {
        ++pos_;
        return object ? Value(std::move(members)) : Value(std::move(array));
      }
      Result<> item = object ? flow_member(members, depth) : flow_element(array, depth);
      if (item) {
        item = skip_flow_space();
      }
      if (!item) {
        return std::unexpected(std::move(item.error()));
      }
      if (peek() == ',') {
        ++pos_;
      } else if (peek() != close) {
        return error(fmt::format("expected `,` or `{}`", close));
      }
    }
  }

  Result<> flow_element(json::Array& array, int depth) {
    Result<Value> value = flow_value(depth);
    if (!value) {
      return std::unexpected(std::move(value.error()));
    }
    array.push_back(std::move(*value));
    return {};
  }

  Result<> flow_member(json::Object& members, int depth) {
    const bool quoted = peek() == '"' || peek() == '\'';
    Result<std::string> key = scalar_text(true);
    if (!key) {
      return std::unexpected(std::move(key.error()));
    }
    if (Result<> skipped = skip_flow_space(); !skipped) {
      return skipped;
    }
    if (peek() != ':' || !(quoted || ends_mark(pos_ + 1) || is_flow_mark(at(pos_ + 1)))) {
      return error("expected `key: value`");
    }
    ++pos_;
    if (Result<> fresh = new_key(members, *key); !fresh) {
      return fresh;
    }
    if (Result<> skipped = skip_flow_space(); !skipped) {
      return skipped;
    }
    Value value;
    if (peek() != ',' && peek() != '}') {
      Result<Value> found = flow_value(depth);
      if (!found) {
        return std::unexpected(std::move(found.error()));
      }
      value = std::move(*found);
    }
    members.set(std::move(*key), std::move(value));
    return {};
  }

  Result<Value> flow_value(int depth) {
    return peek() == '[' || peek() == '{' ? flow(depth + 1) : scalar(true);
  }

  Result<Value> scalar(bool in_flow) {
    const bool quoted = peek() == '"' || peek() == '\'';
    Result<std::string> text = scalar_text(in_flow);
    if (!text) {
      return std::unexpected(std::move(text.error()));
    }
    return quoted ? Value(std::move(*text)) : resolve_scalar(*text);
  }

  // A quoted or plain scalar, as text.
  Result<std::string> scalar_text(bool in_flow) {
    switch (peek()) {
      case '"': return double_quoted();
      case '\'': return single_quoted();
      case '&':
      case '*': return error("anchors and aliases are not read; quote text that begins so");
      case '!': return error("tags are not read; quote text that begins so");
      case '|':
      case '>': return error("block scalars are not read; quote text that begins so");
      case '%':
      case '@':
      case '`':
      case '#':
      case ',':
      case '[':
      case ']':
      case '{':
      case '}': return error(fmt::format("unexpected `{}`; quote text that begins so", peek()));
      case '-':
      case '?':
      case ':':
        if (ends_mark(pos_ + 1) || (in_flow && is_flow_mark(at(pos_ + 1)))) {
          return error(fmt::format("unexpected `{}`", peek()));
        }
        break;
      default: break;
    }
    const std::size_t start = pos_;
    std::size_t end = pos_;
    while (!at_line_end(pos_)) {
      const char c = peek();
      if ((c == ':' && (ends_mark(pos_ + 1) || (in_flow && is_flow_mark(at(pos_ + 1))))) ||
          (c == '#' && is_blank(text_[pos_ - 1])) || (in_flow && is_flow_mark(c))) {
        break;
      }
      ++pos_;
      end = is_blank(c) ? end : pos_;
    }
    pos_ = end;
    return std::string(text_.substr(start, end - start));
  }

  // YAML's escapes that JSON has.
  Result<std::string> double_quoted() {
    const std::size_t start = pos_++;
    while (peek() != '"') {
      if (at_line_end(pos_)) {
        return error("a text without its closing quote");
      }
      pos_ += peek() == '\\' && !at_line_end(pos_ + 1) ? 2 : 1;
    }
    ++pos_;
    // A tab is the one control character that YAML allows here and JSON does not.
    std::string token;
    for (const char c : text_.substr(start, pos_ - start)) {
      if (c == '\t') {
        token += "\\t";
      } else {
        token += c;
      }
    }
    const Result<Value> value = json::parse(token);
    if (!value || !value->as_string()) {
      return error("an unknown escape in a quoted text; known are those of JSON");
    }
    return *value->as_string();
  }

  Result<std::string> single_quoted() {
    std::string out;
    for (++pos_; !at_line_end(pos_); ++pos_) {
      if (peek() == '\'') {
        if (at(pos_ + 1) != '\'') {
          ++pos_;
          return out;
        }
        ++pos_;
      }
      out += peek();
    }
    return error("a text without its closing quote");
  }

  // Keys are looked up one by one, hence the bound.
  Result<> new_key(const json::Object& object, std::string_view key) const {
    if (object.size() >= kMaxKeys) {
      return error(fmt::format("more than {} keys in one mapping", kMaxKeys));
    }
    if (object.find(key)) {
      std::string shown;
      json::append_escaped(shown, key.substr(0, 64));
      return error(fmt::format("the key `{}` is repeated", shown));
    }
    return {};
  }

  std::string_view text_;
  std::size_t pos_ = 0;
  std::size_t line_start_ = 0;
  int line_ = 1;
  bool begun_ = false;  // some content was met
};

}  // namespace

Result<Value> parse(std::string_view text) {
  if (!utf8::valid(text)) {
    return fail(ErrorCode::InvalidRequest, "the text is not UTF-8");
  }
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    const bool line_end = byte == '\n' || (byte == '\r' && text.substr(pos + 1).starts_with('\n'));
    if (byte == 0x7f || (byte < 0x20 && byte != '\t' && !line_end)) {
      return fail(ErrorCode::InvalidRequest, "the text holds control characters");
    }
  }
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  return Parser(text).run();
}

}  // namespace fairlead::yaml
