// links: fl_base

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/yaml.hpp"

namespace {

using fairlead::json::Value;

// True when the value has a form in JSON: infinities and not-a-numbers do not.
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
      if (!has_json_form(member.value)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

// Arbitrary text: an error has one line that names the line; what is read, written as JSON, is read
// the same again, by this reader and by that of JSON.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
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
  const Result<Value> again = yaml::parse(written);
  if (!again || json::dump(*again) != written) {
    std::abort();
  }
  // The JSON reader takes integers beyond 64 bits only within something.
  const std::string list = "[" + written + "]";
  const Result<Value> json = json::parse(list);
  if (!json || json::dump(*json) != list) {
    std::abort();
  }
  return 0;
}
