#include "engine/sglang_grpc/info_json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <system_error>
#include <utility>

namespace fairlead::engine::sglang_grpc {
namespace {

/// `text` with null for the words that are no JSON.
std::string without_nan(std::string_view text) {
  constexpr std::array<std::string_view, 3> kWords{"-Infinity", "Infinity", "NaN"};
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    if (in_string) {
      if (rest.starts_with('\\') && rest.size() > 1) {
        out += text[i++];
      }
      in_string = rest.front() != '"';
    } else {
      in_string = rest.front() == '"';
      const auto* word = std::ranges::find_if(
          kWords, [&](std::string_view name) { return rest.starts_with(name); });
      if (word != kWords.end()) {
        out += "null";
        i += word->size() - 1;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

}  // namespace

Result<json::Value> parse_python_json(std::string_view text, int max_depth) {
  Result<json::Value> parsed = json::parse(text, max_depth);
  return parsed ? std::move(parsed) : json::parse(without_nan(text), max_depth);
}

std::optional<std::uint64_t> find_count(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  if (!value) {
    return std::nullopt;
  }
  if (const std::int64_t* number = value->as_int()) {
    return *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
  }
  std::uint64_t number = 0;
  const std::string* text = value->as_string();
  if (!text) {
    return std::nullopt;
  }
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, number);
  return read.ec == std::errc{} && read.ptr == end ? std::optional(number) : std::nullopt;
}

std::string find_text(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const std::string* text = value ? value->as_string() : nullptr;
  const bool blank = !text || text->find_first_not_of(" \t\r\n") == std::string::npos;
  return blank ? std::string() : *text;
}

bool find_flag(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  const bool* flag = value ? value->as_bool() : nullptr;
  return flag && *flag;
}

}  // namespace fairlead::engine::sglang_grpc
