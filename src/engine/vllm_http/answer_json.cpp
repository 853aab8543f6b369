#include "engine/vllm_http/answer_json.hpp"

#include <array>
#include <string>

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::array<std::string_view, 3> kWords{"NaN", "Infinity", "-Infinity"};

/// The text with the words outside of strings replaced; empty when there is none.
std::string without_words(std::string_view text) {
  std::string out;
  bool in_string = false;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
      continue;
    }
    for (const std::string_view word : kWords) {
      if (text.substr(i).starts_with(word)) {
        out.append(text.substr(copied, i - copied)).append("null");
        i += word.size() - 1;
        copied = i + 1;
        break;
      }
    }
  }
  return out.empty() ? out : out.append(text.substr(copied));
}

}  // namespace

Result<json::Value> parse_answer(std::string_view text) {
  Result<json::Value> parsed = json::parse(text);
  if (!parsed) {
    if (const std::string replaced = without_words(text); !replaced.empty()) {
      return json::parse(replaced);
    }
  }
  return parsed;
}

}  // namespace fairlead::engine::vllm_http
