#include "engine/vllm_http/answer_split.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

/// Finds where values begin and end. Whether they are JSON is not looked at.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::size_t at() const { return at_; }
  std::string_view since(std::size_t begin) const { return text_.substr(begin, at_ - begin); }

  /// Skips space, then takes `c` if it is next.
  bool take(char c) {
    skip_space();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found ? 1 : 0;
    return found;
  }
  bool next_is(char c) {
    skip_space();
    return at_ < text_.size() && text_[at_] == c;
  }

  /// The next value; empty when there is none.
  std::string_view value() {
    skip_space();
    const std::size_t begin = at_;
    std::size_t depth = 0;
    do {
      const std::size_t before = at_;
      if (at_ == text_.size()) {
        return {};
      }
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if ((c == '}' || c == ']') && depth > 0) {
        --depth;
        ++at_;
      } else if (depth > 0) {
        at_ = std::min(text_.find_first_of("\"{}[]", at_), text_.size());
      } else {
        at_ = std::min(text_.find_first_of(",:\"{}[] \t\r\n", at_), text_.size());
      }
      if (at_ == before) {
        return {};
      }
    } while (depth > 0);
    return since(begin);
  }

  /// Calls `member(key)` for each member of the object that is next, at its value, which it takes.
  template <class Member>
  bool object(Member member) {
    if (!take('{')) {
      return false;
    }
    if (take('}')) {
      return true;
    }
    do {
      if (!next_is('"')) {
        return false;
      }
      const std::string_view key = value();
      if (key.size() < 2 || !take(':') || !member(key.substr(1, key.size() - 2))) {
        return false;
      }
    } while (take(','));
    return take('}');
  }

  /// The array that is next.
  std::optional<ArrayText> array() {
    take('[');
    const std::size_t begin = at_;
    std::size_t count = 0;
    if (take(']')) {
      return ArrayText();
    }
    do {
      if (value().empty()) {
        return std::nullopt;
      }
      ++count;
    } while (take(','));
    const std::string_view inside = since(begin);
    return take(']') ? std::optional(ArrayText(inside, count)) : std::nullopt;
  }

 private:
  void skip_space() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  /// At its quote. One that does not end is what is left.
  void skip_string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + 1, text_.size());
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text), scanner_(text) {}

  std::optional<SplitAnswer> run() {
    const bool whole = scanner_.object([this](std::string_view key) {
      if (key == "prompt_logprobs") {
        return cut(answer_.prompt_logprobs);
      }
      return key == "choices" && scanner_.next_is('[') ? choices() : skip();
    });
    if (!whole) {
      return std::nullopt;
    }
    answer_.rest += text_.substr(copied_);
    return std::move(answer_);
  }

 private:
  bool skip() { return !scanner_.value().empty(); }

  bool choices() {
    scanner_.take('[');
    if (scanner_.next_is('{') && !choice()) {
      return false;
    }
    // What is left of the array: at its end, or at the comma before another element.
    while (!scanner_.take(']')) {
      scanner_.take(',');
      if (!skip()) {
        return false;
      }
    }
    return true;
  }

  bool choice() {
    return scanner_.object([this](std::string_view key) {
      if (key != "logprobs" || !scanner_.next_is('{')) {
        return skip();
      }
      return scanner_.object([this](std::string_view inner) {
        return inner == "content" ? cut(answer_.token_logprobs) : skip();
      });
    });
  }

  /// Leaves an array's elements out of the rest; what is no array stays.
  bool cut(std::optional<ArrayText>& out) {
    out.reset();
    if (!scanner_.next_is('[')) {
      return skip();
    }
    const std::size_t inside = scanner_.at() + 1;
    out = scanner_.array();
    if (!out) {
      return false;
    }
    answer_.rest += text_.substr(copied_, inside - copied_);
    copied_ = scanner_.at() - 1;
    return true;
  }

  std::string_view text_;
  Scanner scanner_;
  SplitAnswer answer_;
  std::size_t copied_ = 0;  // of the text into the rest
};

}  // namespace

std::string_view ArrayText::next() {
  Scanner scanner(rest_);
  const std::string_view element = scanner.value();
  scanner.take(',');
  rest_.remove_prefix(scanner.at());
  return element;
}

std::optional<SplitAnswer> split_answer(std::string_view text) { return Splitter(text).run(); }

}  // namespace fairlead::engine::vllm_http
