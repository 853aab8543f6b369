#include "engine/sglang_grpc/lenient_json.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>

namespace fairlead::engine::sglang_grpc {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
/// What ends a number or a word.
constexpr std::string_view kEnds = " \t\r\n,:[]{}()\"'";

}  // namespace

LenientJson::LenientJson(std::string_view text) : rest_(text) {
  skip_spaces();
  // A value that could not be encoded: its text, as a string.
  if (rest_.starts_with("\"[")) {
    rest_.remove_prefix(1);
    if (rest_.ends_with('"')) {
      rest_.remove_suffix(1);
    }
  }
}

void LenientJson::skip_spaces() {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(kSpaces), rest_.size()));
}

bool LenientJson::take(char c) {
  skip_spaces();
  if (!rest_.starts_with(c)) {
    return false;
  }
  rest_.remove_prefix(1);
  return true;
}

bool LenientJson::take(std::string_view word) {
  skip_spaces();
  if (!rest_.starts_with(word)) {
    return false;
  }
  const std::string_view behind = rest_.substr(word.size());
  if (!behind.empty() && !kEnds.contains(behind.front())) {
    return false;
  }
  rest_ = behind;
  return true;
}

std::optional<double> LenientJson::number() {
  skip_spaces();
  double value = 0;
  const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (read.ec != std::errc{} || !std::isfinite(value)) {
    return std::nullopt;
  }
  rest_.remove_prefix(static_cast<std::size_t>(read.ptr - rest_.data()));
  return value;
}

std::optional<std::int64_t> LenientJson::integer() {
  skip_spaces();
  std::int64_t value = 0;
  const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (read.ec != std::errc{}) {
    return std::nullopt;
  }
  const std::string_view behind = rest_.substr(static_cast<std::size_t>(read.ptr - rest_.data()));
  if (!behind.empty() && !kEnds.contains(behind.front())) {
    return std::nullopt;
  }
  rest_ = behind;
  return value;
}

bool LenientJson::skip_string() {
  const char quote = rest_.front();
  for (std::size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i] == '\\') {
      ++i;
    } else if (rest_[i] == quote) {
      rest_.remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

bool LenientJson::skip() {
  std::size_t depth = 0;
  do {
    skip_spaces();
    if (rest_.empty()) {
      return false;
    }
    const char c = rest_.front();
    if (c == '"' || c == '\'') {
      if (!skip_string()) {
        return false;
      }
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth;
      rest_.remove_prefix(1);
    } else if (c == ']' || c == '}' || c == ')') {
      if (depth == 0) {
        return false;
      }
      --depth;
      rest_.remove_prefix(1);
    } else if (c == ',' || c == ':') {
      if (depth == 0) {
        return false;
      }
      rest_.remove_prefix(1);
    } else {
      rest_.remove_prefix(std::min(rest_.find_first_of(kEnds), rest_.size()));
    }
  } while (depth > 0);
  return true;
}

bool LenientJson::at_end() {
  skip_spaces();
  return rest_.empty();
}

std::optional<std::size_t> list_size(std::string_view text) {
  LenientJson json(text);
  if (!json.take('[')) {
    return std::nullopt;
  }
  if (json.take(']')) {
    return 0;
  }
  std::size_t count = 0;
  do {
    if (!json.skip()) {
      return std::nullopt;
    }
    ++count;
  } while (json.take(','));
  return json.take(']') ? std::optional(count) : std::nullopt;
}

std::optional<std::uint32_t> to_count(std::string_view text) {
  LenientJson json(text);
  const std::optional<std::int64_t> value = json.integer();
  if (!value || !json.at_end() || *value < 0 ||
      *value > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(*value);
}

}  // namespace fairlead::engine::sglang_grpc
