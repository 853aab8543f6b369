#include "engine/request_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "engine/extra_args.hpp"

namespace fairlead::engine {
namespace {

std::unexpected<Error> invalid(std::string_view field, std::string_view why) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` {}", field, why), std::string(field));
}

/// Counts above the signed range would be read as negative ones.
bool bad_count(const std::optional<std::uint32_t>& count) {
  return count && *count != kAllCandidates &&
         *count > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
}

bool is_object_or_null(const json::Value& value) { return value.is_null() || value.as_object(); }

}  // namespace

Result<> check_request(const GenerateRequest& request) {
  if (request.prompt.empty()) {
    return invalid("prompt", "must have at least one token");
  }
  if (request.stop.max_tokens == 0) {
    return invalid("max_tokens", "must be at least 1");
  }
  if (bad_count(request.output.logprobs)) {
    return invalid("logprobs", "is out of range");
  }
  if (bad_count(request.output.prompt_logprobs)) {
    return invalid("prompt_logprobs", "is out of range");
  }
  if (!is_object_or_null(request.kv_transfer_params)) {
    return invalid("kv_transfer_params", "must be an object");
  }
  if (!is_object_or_null(request.ec_transfer_params)) {
    return invalid("ec_transfer_params", "must be an object");
  }
  if (!is_object_or_null(request.extra_args)) {
    return invalid("vllm_xargs", "must be an object");
  }
  // They have their own fields; here they could only be a client's.
  if (const json::Object* args = request.extra_args.as_object()) {
    const auto found = std::ranges::find_if(
        *args, [](const json::Member& member) { return is_connector_argument(member.key); });
    if (found != args->end()) {
      return invalid(fmt::format("vllm_xargs.{}", found->key), "is not allowed");
    }
  }
  return {};
}

}  // namespace fairlead::engine
