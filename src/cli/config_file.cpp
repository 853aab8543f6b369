#include "cli/config_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.hpp"
#include "cli/option_spec.hpp"

namespace fairlead::cli {
namespace {

bool is_key_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view command, std::span<const std::string> commands)
      : text_(text), command_(command), commands_(commands) {}

  Result<std::vector<ConfigEntry>> run() {
    while (skip_blank_lines()) {
      const Result<> line = text_[pos_] == '[' ? table_header() : entry();
      if (!line) {
        return std::unexpected(line.error());
      }
    }
    return std::move(entries_);
  }

 private:
  std::unexpected<Error> error(std::string_view what) const {
    return fail(ErrorCode::InvalidRequest, fmt::format("line {}: {}", line_, what));
  }

  bool at_end() const { return pos_ >= text_.size(); }
  char peek() const { return at_end() ? '\n' : text_[pos_]; }

  void skip_blanks() {
    while (!at_end() && (text_[pos_] == ' ' || text_[pos_] == '\t' || text_[pos_] == '\r')) {
      ++pos_;
    }
  }

  void skip_comment() {
    if (peek() == '#') {
      while (!at_end() && text_[pos_] != '\n') {
        ++pos_;
      }
    }
  }

  /// Moves to the next line that holds something; false at the end.
  bool skip_blank_lines() {
    while (true) {
      skip_blanks();
      skip_comment();
      if (at_end()) {
        return false;
      }
      if (text_[pos_] != '\n') {
        return true;
      }
      ++pos_;
      ++line_;
    }
  }

  Result<> end_of_line() {
    skip_blanks();
    skip_comment();
    if (!at_end() && text_[pos_] != '\n') {
      return error("unexpected text after the value");
    }
    return {};
  }

  Result<> table_header() {
    const std::size_t close = text_.find_first_of("]\n", pos_);
    if (close == std::string_view::npos || text_[close] != ']') {
      return error("`[` without `]`");
    }
    std::string_view name = text_.substr(pos_ + 1, close - pos_ - 1);
    while (name.starts_with(' ')) {
      name.remove_prefix(1);
    }
    while (name.ends_with(' ')) {
      name.remove_suffix(1);
    }
    if (name.empty() || !std::ranges::all_of(name, is_key_char)) {
      return error("a table name holds letters, digits, `-` and `_` only");
    }
    if (std::ranges::find(commands_, name) == commands_.end()) {
      const std::string hint = closest_name(commands_, name);
      return error(
          fmt::format("`[{}]` is the table of no command{}", name,
                      hint.empty() ? std::string() : fmt::format("; did you mean `[{}]`?", hint)));
    }
    table_ = name;
    wanted_ = name == command_;
    pos_ = close + 1;
    return end_of_line();
  }

  Result<> entry() {
    ConfigEntry found;
    found.line = line_;
    found.table = table_;
    while (is_key_char(peek())) {
      const char c = text_[pos_++];
      found.key.push_back(c == '_' ? '-' : c);
    }
    if (found.key.empty()) {
      return error("expected `key = value`");
    }
    skip_blanks();
    if (peek() != '=') {
      return error(fmt::format("expected `=` after `{}`", found.key));
    }
    ++pos_;
    skip_blanks();
    const Result<> values = peek() == '[' ? array(found.values) : scalar(found.values, false);
    if (!values) {
      return values;
    }
    if (wanted_) {
      entries_.push_back(std::move(found));
    }
    return end_of_line();
  }

  Result<> array(std::vector<std::string>& values) {
    ++pos_;
    while (true) {
      if (!skip_blank_lines()) {
        return error("`[` without `]`");
      }
      if (peek() == ']') {
        ++pos_;
        return {};
      }
      if (Result<> item = scalar(values, true); !item) {
        return item;
      }
      if (!skip_blank_lines()) {
        return error("`[` without `]`");
      }
      if (peek() == ',') {
        ++pos_;
      } else if (peek() != ']') {
        return error("expected `,` or `]`");
      }
    }
  }

  Result<> scalar(std::vector<std::string>& values, bool in_array) {
    const char first = peek();
    if (first == '"') {
      return quoted(values);
    }
    if (first == '\'') {
      const std::size_t close = text_.find_first_of("'\n", pos_ + 1);
      if (close == std::string_view::npos || text_[close] != '\'') {
        return error("a text without its closing quote");
      }
      values.emplace_back(text_.substr(pos_ + 1, close - pos_ - 1));
      pos_ = close + 1;
      return {};
    }
    const std::string_view stops = in_array ? "#\n,]" : "#\n";
    const std::size_t end = std::min(text_.find_first_of(stops, pos_), text_.size());
    std::string_view bare = text_.substr(pos_, end - pos_);
    while (!bare.empty() && (bare.back() == ' ' || bare.back() == '\t' || bare.back() == '\r')) {
      bare.remove_suffix(1);
    }
    if (bare.empty()) {
      return error("a value is missing");
    }
    values.emplace_back(bare);
    pos_ = end;
    return {};
  }

  Result<> quoted(std::vector<std::string>& values) {
    std::string out;
    for (++pos_; !at_end() && text_[pos_] != '\n'; ++pos_) {
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        values.push_back(std::move(out));
        return {};
      }
      if (c != '\\') {
        out.push_back(c);
        continue;
      }
      ++pos_;
      switch (peek()) {
        case 'n': out.push_back('\n'); break;
        case 't': out.push_back('\t'); break;
        case '"': out.push_back('"'); break;
        case '\\': out.push_back('\\'); break;
        default: return error("an unknown escape; known are \\n \\t \\\" \\\\");
      }
    }
    return error("a text without its closing quote");
  }

  std::string_view text_;
  std::string_view command_;
  std::span<const std::string> commands_;
  std::string table_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool wanted_ = true;
  std::vector<ConfigEntry> entries_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text, std::string_view command,
                                              std::span<const std::string> commands) {
  if (!utf8::valid(text)) {
    return fail(ErrorCode::InvalidRequest, "the file is not UTF-8 text");
  }
  return Parser(text, command, commands).run();
}

}  // namespace fairlead::cli
