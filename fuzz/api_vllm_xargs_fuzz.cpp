// links: fl_api
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>

#include "api/openai/request.hpp"
#include "engine/extra_args.hpp"
#include "request_body.hpp"

namespace {

using fairlead::json::Value;

bool legal_scalar(const Value& value) {
  double number = 0;
  // An integer is handed on digit by digit, also beyond what a double can hold.
  return value.as_bool() || value.as_string() || value.number(number) ||
         std::holds_alternative<fairlead::json::BigInt>(value.storage());
}

bool legal(const Value& value) {
  const fairlead::json::Array* elements = value.as_array();
  return elements ? std::ranges::all_of(*elements, legal_scalar) : legal_scalar(value);
}

bool same(const Value& a, const Value& b) {
  if (a.storage().index() != b.storage().index()) {
    return false;
  }
  if (const auto* array = a.as_array()) {
    return std::ranges::equal(*array, *b.as_array(), same);
  }
  if (const auto* object = a.as_object()) {
    return std::ranges::equal(*object, *b.as_object(), [](const auto& x, const auto& y) {
      return x.key == y.key && same(x.value, y.value);
    });
  }
  return fairlead::json::dump(a) == fairlead::json::dump(b);
}

}  // namespace

// The bytes stand as `vllm_xargs` in a completions body: refused as the client's mistake, or every
// value obeys the rules, and what goes to the engine reads back equal.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace openai = fairlead::api::openai;
  namespace engine = fairlead::engine;
  std::string body = R"({"model":"m","prompt":[1],"vllm_xargs":)";
  body.append(reinterpret_cast<const char*>(data), size);
  body.push_back('}');
  const auto parsed =
      fairlead::fuzz::parse_body(fairlead::observe::Endpoint::Completions,
                                 reinterpret_cast<const std::uint8_t*>(body.data()), body.size());
  if (!parsed) {
    return 0;
  }
  std::size_t values = 0;
  for (const auto& member : parsed->vllm_xargs) {
    if (!legal(member.value) || engine::is_connector_argument(member.key)) {
      std::abort();
    }
    values += member.value.as_array() ? member.value.as_array()->size() : 1;
  }
  if (values > openai::kMaxXargsValues ||
      fairlead::json::dump(parsed->vllm_xargs).size() > openai::kMaxXargsBytes) {
    std::abort();
  }
  static const Value defaults =
      *fairlead::json::parse(R"({"a":{"b":[null]},"kv_transfer_params":{},"c":1})");
  const Value merged = engine::merge_extra_args(defaults, parsed->vllm_xargs);
  const auto again = fairlead::json::parse(fairlead::json::dump(merged));
  if (!again || !same(merged, *again) || merged.find("kv_transfer_params") || !merged.find("a") ||
      !merged.find("c")) {
    std::abort();
  }
  return 0;
}
