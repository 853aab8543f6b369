#include "engine/vllm_http/answer_json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::array<std::string_view, 3> kWords{"NaN", "Infinity", "-Infinity"};

/// True for a number as JSON writes one.
bool is_number(std::string_view text) {
  const auto take_digits = [&] {
    const std::size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count > 0;
  };
  const auto take_any = [&](std::string_view set) {
    const bool found = !text.empty() && set.contains(text.front());
    text.remove_prefix(found ? 1 : 0);
    return found;
  };
  take_any("-");
  if (!take_any("0") && !take_digits()) {
    return false;
  }
  if (take_any(".") && !take_digits()) {
    return false;
  }
  if (take_any("eE")) {
    take_any("+-");
    if (!take_digits()) {
      return false;
    }
  }
  return text.empty();
}

/// A number with a fraction or an exponent that no double can hold. One that is too small is 0.
bool is_beyond_double(std::string_view text) {
  double value = 0;
  return text.find_first_of(".eE") != std::string_view::npos &&
         std::from_chars(text.data(), text.data() + text.size(), value).ec ==
             std::errc::result_out_of_range &&
         is_number(text) && !json::parse(text);
}

/// What a text begins with.
struct Lead {
  std::size_t length = 1;
  bool non_finite = false;  ///< A number that is not finite.
};

Lead lead_of(std::string_view text) {
  for (const std::string_view word : kWords) {
    if (text.starts_with(word)) {
      return {word.size(), true};
    }
  }
  const std::string_view number = text.substr(0, text.find_first_not_of("+-.0123456789Ee"));
  return number.empty() ? Lead{} : Lead{number.size(), is_beyond_double(number)};
}

/// The text with such numbers outside of strings replaced; empty when there is none.
std::string without_non_finite(std::string_view text) {
  std::string out;
  bool in_string = false;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 2 : 1;
      in_string = c != '"';
      continue;
    }
    if (c == '"') {
      in_string = true;
      ++i;
      continue;
    }
    const Lead lead = lead_of(text.substr(i));
    if (lead.non_finite) {
      out.append(text.substr(copied, i - copied)).append("null");
      copied = i + lead.length;
    }
    i += lead.length;
  }
  return out.empty() ? out : out.append(text.substr(copied));
}

}  // namespace

Result<json::Value> parse_answer(std::string_view text) {
  Result<json::Value> parsed = json::parse(text);
  if (!parsed) {
    if (const std::string replaced = without_non_finite(text); !replaced.empty()) {
      return json::parse(replaced);
    }
  }
  return parsed;
}

}  // namespace fairlead::engine::vllm_http
