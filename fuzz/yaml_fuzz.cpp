// links: fl_base

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.hpp"
#include "base/yaml.hpp"

namespace {

using fairlead::json::Value;

// Longest key that is looked for again: YAML bounds what stands before a colon.
constexpr std::size_t kMaxKey = 100;

// True when the value has a form in JSON that is YAML: infinities and not-a-numbers have none.
bool has_json_form(const Value& value) {
  if (const double* number = value.as_double()) {
    return std::isfinite(*number);
  }
  if (const auto* array = value.as_array()) {
    for (const Value& element : *array) {
      if (!has_json_form(element)) {
        return false;
      }
    }
  }
  if (const auto* object = value.as_object()) {
    for (const auto& member : *object) {
      if (member.key.size() > kMaxKey || !has_json_form(member.value)) {
        return false;
      }
    }
  }
  return true;
}

// JSON with YAML's escapes for what YAML takes for ends of lines or does not allow.
std::string ascii(std::string_view json) {
  std::string out;
  for (std::size_t pos = 0; pos < json.size();) {
    const char32_t code_point = fairlead::utf8::decode(json, pos);
    if (code_point < 0x7f) {
      out += static_cast<char>(code_point);
    } else {
      out += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(code_point));
    }
  }
  return out;
}

}  // namespace

// Arbitrary text: an error has one line that names the line; what is read, written as JSON, is read
// the same again, by this reader and by that of JSON.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace json = fairlead::json;
  namespace yaml = fairlead::yaml;
  using fairlead::ErrorCode;
  using fairlead::Result;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<Value> value = yaml::parse(text);
  if (!value) {
    if (value.error().code != ErrorCode::InvalidRequest || value.error().message.empty() ||
        value.error().message.contains('\n')) {
      std::abort();
    }
    return 0;
  }
  if (!has_json_form(*value)) {
    return 0;
  }
  const std::string written = json::dump(*value);
  const std::string escaped = ascii(written);
  if (escaped.size() <= yaml::kMaxBytes) {
    const Result<Value> again = yaml::parse(escaped);
    if (!again || json::dump(*again) != written) {
      std::abort();
    }
  }
  // The JSON reader takes integers beyond 64 bits only within something.
  const std::string list = "[" + written + "]";
  const Result<Value> strict = json::parse(list);
  if (!strict || json::dump(*strict) != list) {
    std::abort();
  }
  return 0;
}
