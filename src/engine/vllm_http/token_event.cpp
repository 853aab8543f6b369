#include "engine/vllm_http/token_event.hpp"

#include <charconv>
#include <utility>

namespace fairlead::engine::vllm_http {
namespace {

/// Depth of nested usage details.
constexpr int kUsageDepth = 2;

/// Walks compact JSON in plain ASCII. After a failure everything fails.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

  bool done() const { return at_ == end_; }

  bool take(char c) {
    if (at_ == end_ || *at_ != c) {
      return false;
    }
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (!rest().starts_with(word)) {
      return false;
    }
    at_ += word.size();
    return true;
  }

  /// A string without escapes.
  bool string(std::string_view& out) {
    if (!take('"')) {
      return false;
    }
    const char* const start = at_;
    while (at_ != end_ && *at_ >= 0x20 && *at_ < 0x7f && *at_ != '"' && *at_ != '\\') {
      ++at_;
    }
    out = {start, static_cast<std::size_t>(at_ - start)};
    return take('"');
  }

  /// A number that fits 32 bits, without sign, fraction or leading zero.
  bool number(std::uint32_t& out) {
    const char* const start = at_;
    const auto read = std::from_chars(at_, end_, out);
    at_ = read.ptr;
    return read.ec == std::errc{} && (*start != '0' || at_ == start + 1);
  }

  /// Null, a boolean, a number as above or a string.
  bool scalar() {
    std::string_view text;
    std::uint32_t value = 0;
    return take("null") || take("true") || take("false") ||
           (at_ != end_ && *at_ == '"' ? string(text) : number(value));
  }

  /// An object; `member(key)` takes each value.
  template <class OnMember>
  bool object(OnMember&& member) {
    if (!take('{')) {
      return false;
    }
    if (take('}')) {
      return true;
    }
    do {
      std::string_view key;
      if (!string(key) || !take(':') || !member(key)) {
        return false;
      }
    } while (take(','));
    return take('}');
  }

 private:
  std::string_view rest() const { return {at_, static_cast<std::size_t>(end_ - at_)}; }

  const char* at_;
  const char* end_;
};

bool take_ids(Cursor& cursor, std::vector<TokenId>& ids) {
  ids.clear();
  if (!cursor.take('[')) {
    return false;
  }
  do {
    TokenId id = 0;
    if (!cursor.number(id)) {
      return false;
    }
    ids.push_back(id);
  } while (cursor.take(','));
  return cursor.take(']');
}

bool take_details(Cursor& cursor, int depth) {
  return cursor.scalar() || (depth > 0 && cursor.object([&](std::string_view) {
           return take_details(cursor, depth - 1);
         }));
}

bool take_usage(Cursor& cursor, std::optional<std::uint32_t>& total) {
  if (cursor.take("null")) {
    return true;
  }
  return cursor.object([&](std::string_view key) {
    if (key != "completion_tokens") {
      return take_details(cursor, kUsageDepth);
    }
    std::uint32_t value = 0;
    if (total || !cursor.number(value)) {
      return false;
    }
    total = value;
    return true;
  });
}

bool take_choice(Cursor& cursor, std::vector<TokenId>& ids) {
  bool has_ids = false;
  const bool read = cursor.object([&](std::string_view key) {
    if (key == "token_ids") {
      return !std::exchange(has_ids, true) && take_ids(cursor, ids);
    }
    if (key == "index") {
      return cursor.take('0');
    }
    if (key == "finish_reason" || key == "logprobs") {
      return cursor.take("null");
    }
    return cursor.scalar();
  });
  return read && has_ids;
}

}  // namespace

bool decode_token_event(std::string_view event, std::vector<TokenId>& ids,
                        std::optional<std::uint32_t>& total) {
  Cursor cursor(event);
  bool has_choice = false;
  bool has_usage = false;
  total.reset();
  const bool read = cursor.object([&](std::string_view key) {
    if (key == "choices") {
      return !std::exchange(has_choice, true) && cursor.take('[') && take_choice(cursor, ids) &&
             cursor.take(']');
    }
    if (key == "usage") {
      return !std::exchange(has_usage, true) && take_usage(cursor, total);
    }
    return key != "error" && cursor.scalar();
  });
  return read && has_choice && cursor.done();
}

}  // namespace fairlead::engine::vllm_http
