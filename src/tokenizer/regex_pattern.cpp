#include "tokenizer/regex_pattern.hpp"

#include <fmt/format.h>

#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Nesting of groups and classes; the regex library recurses on both.
constexpr std::size_t kMaxDepth = 64;

std::string class_text(const CodePointSet& set, bool negated) {
  const CodePointSet scalars = set.without_surrogates();
  if (scalars.ranges().empty()) {
    return negated ? "[\\x{0}-\\x{10FFFF}]" : "[^\\x{0}-\\x{10FFFF}]";
  }
  std::string out = negated ? "[^" : "[";
  for (const data::Range& range : scalars.ranges()) {
    fmt::format_to(std::back_inserter(out), "\\x{{{:X}}}", range.first);
    if (range.last != range.first) {
      fmt::format_to(std::back_inserter(out), "-\\x{{{:X}}}", range.last);
    }
  }
  return out + "]";
}

class Expander {
 public:
  explicit Expander(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (!at_end()) {
      if (Result<> step = next(); !step) {
        return std::unexpected(step.error());
      }
    }
    return std::move(out_);
  }

 private:
  bool at_end() const { return pos_ >= pattern_.size(); }
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0';
  }

  std::unexpected<Error> unsupported(std::string_view what) const {
    return fail(ErrorCode::UnsupportedField,
                fmt::format("regex: {} is not supported (at byte {})", what, pos_));
  }

  Result<> next() {
    switch (peek()) {
      case '\\': return escape(false);
      case '[': return char_class(1);
      case '(': return group();
      case ')':
        if (!outer_.empty()) {
          ignore_case_ = outer_.back();
          outer_.pop_back();
        }
        out_ += pattern_[pos_++];
        return {};
      default: return literal();
    }
  }

  // One character that stands for itself or is an operator.
  Result<> literal() {
    const auto lead = static_cast<unsigned char>(peek());
    if (ignore_case_ && lead >= 0x80) {
      return unsupported("a case-insensitive character outside ASCII");
    }
    const std::size_t length = character_length(lead);
    out_.append(pattern_, pos_, length);
    pos_ += length;
    return {};
  }

  Result<> set(const CodePointSet& points, bool negated) {
    if (ignore_case_) {
      return unsupported("a case-insensitive character class outside ASCII");
    }
    out_ += class_text(points, negated);
    return {};
  }

  Result<> escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case 'p':
      case 'P': return property_escape(in_class);
      case 's':
      case 'S': pos_ += 2; return set(space_class(), c == 'S');
      case 'd':
      case 'D': pos_ += 2; return set(digit_class(), c == 'D');
      case 'w':
      case 'W': pos_ += 2; return set(word_class(in_class), c == 'W');
      case 'b':
      case 'B':
        if (!in_class) {
          return word_boundary(c == 'B');
        }
        break;
      case 'R':
      case 'X':
      case 'y':
      case 'Y':
      case 'c':
      case 'C':
      case 'M': return unsupported(fmt::format("\\{}", c));
      case 'x':
      case 'u':
        if (ignore_case_) {
          return unsupported(fmt::format("\\{} inside (?i)", c));
        }
        break;
      case '\0':
        if (pos_ + 1 >= pattern_.size()) {
          return unsupported("a backslash at the end");
        }
        break;
      default: break;
    }
    out_ += pattern_[pos_++];
    return literal();
  }

  Result<> property_escape(bool in_class) {
    bool negated = peek(1) == 'P';
    if (peek(2) != '{') {
      return unsupported("\\p without braces");
    }
    std::size_t begin = pos_ + 3;
    const std::size_t end = pattern_.find('}', begin);
    if (end == std::string_view::npos) {
      return unsupported("an unclosed \\p{");
    }
    if (pattern_[begin] == '^') {
      negated = !negated;
      ++begin;
    }
    const std::string_view name = pattern_.substr(begin, end - begin);
    const std::optional<CodePointSet> points = property(name, in_class);
    if (!points) {
      return unsupported(fmt::format("the property \\p{{{}}}", name));
    }
    pos_ = end + 1;
    return set(*points, negated);
  }

  Result<> word_boundary(bool negated) {
    pos_ += 2;
    const std::string word = class_text(word_class(), false);
    out_ += negated ? fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word)
                    : fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
    return {};
  }

  Result<> group() {
    if (outer_.size() >= kMaxDepth) {
      return unsupported("nesting this deep");
    }
    if (peek(1) == '*') {
      return unsupported("(*");
    }
    if (peek(1) != '?') {
      return open_group(1, ignore_case_);
    }
    switch (peek(2)) {
      case ':':
      case '=':
      case '!':
      case '>': return open_group(3, ignore_case_);
      case '<':
        if (peek(3) == '=' || peek(3) == '!') {
          return open_group(4, ignore_case_);
        }
        return named_group();
      case '#': return comment();
      default: return options();
    }
  }

  Result<> open_group(std::size_t length, bool ignore_case) {
    outer_.push_back(ignore_case_);
    ignore_case_ = ignore_case;
    out_.append(pattern_, pos_, length);
    pos_ += length;
    return {};
  }

  Result<> named_group() {
    const std::size_t end = pattern_.find('>', pos_);
    if (end == std::string_view::npos) {
      return unsupported("an unclosed group name");
    }
    return open_group(end + 1 - pos_, ignore_case_);
  }

  Result<> comment() {
    const std::size_t end = pattern_.find(')', pos_);
    if (end == std::string_view::npos) {
      return unsupported("an unclosed comment");
    }
    pos_ = end + 1;
    return {};
  }

  // (?im-im) and (?im-im:…)
  Result<> options() {
    bool ignore_case = ignore_case_;
    bool on = true;
    std::size_t length = 2;
    for (;; ++length) {
      const char c = peek(length);
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        ignore_case = on;
      } else if (c != 'm') {
        break;
      }
    }
    const char end = peek(length);
    if (end == ':') {
      return open_group(length + 1, ignore_case);
    }
    if (end != ')') {
      return unsupported(fmt::format("(?{})", end));
    }
    ignore_case_ = ignore_case;
    out_.append(pattern_, pos_, length + 1);
    pos_ += length + 1;
    return {};
  }

  Result<> char_class(std::size_t depth) {
    if (depth > kMaxDepth) {
      return unsupported("nesting this deep");
    }
    out_ += pattern_[pos_++];
    if (peek() == '^') {
      out_ += pattern_[pos_++];
    }
    if (peek() == ']') {
      return unsupported("a class that starts with ]");
    }
    while (!at_end() && peek() != ']') {
      Result<> step;
      if (peek() == '\\') {
        step = escape(true);
      } else if (peek() == '[' && peek(1) == ':') {
        step = posix_bracket();
      } else if (peek() == '[') {
        step = char_class(depth + 1);
      } else {
        step = literal();
      }
      if (!step) {
        return step;
      }
    }
    if (at_end()) {
      return unsupported("an unclosed class");
    }
    out_ += pattern_[pos_++];
    return {};
  }

  Result<> posix_bracket() {
    const std::size_t end = pattern_.find(":]", pos_ + 2);
    if (end == std::string_view::npos) {
      return unsupported("[:");
    }
    std::string_view name = pattern_.substr(pos_ + 2, end - pos_ - 2);
    const bool negated = name.starts_with('^');
    name.remove_prefix(negated ? 1 : 0);
    const std::optional<CodePointSet> points = posix_class(name);
    if (!points) {
      return unsupported(fmt::format("[:{}:]", name));
    }
    pos_ = end + 2;
    return set(*points, negated);
  }

  std::string_view pattern_;
  std::size_t pos_ = 0;
  std::string out_;
  bool ignore_case_ = false;
  std::vector<bool> outer_;  // the flag outside each open group
};

}  // namespace

Result<std::string> expand_pattern(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::UnsupportedField,
                fmt::format("regex: longer than {} bytes", kMaxPatternBytes));
  }
  if (!utf8::valid(pattern)) {
    return fail(ErrorCode::InvalidRequest, "regex: not valid UTF-8");
  }
  return Expander(pattern).run();
}

}  // namespace fairlead::tokenizer
