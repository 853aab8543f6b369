#include "serving/conditional_disaggregation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.hpp"

namespace fairlead::serving {
namespace {

using Policy = ConditionalDisaggregation::Policy;

constexpr std::array<std::pair<std::string_view, Policy>, 3> kPolicies{{
    {"isl_bounding", Policy::IslBounding},
    {"prefill_load", Policy::PrefillLoad},
    {"isl_or_load", Policy::IslOrLoad},
}};

std::unexpected<Error> invalid(std::string_view key, std::string_view rule) {
  return fail(ErrorCode::InvalidRequest, fmt::format("`{}` {}", key, rule));
}

Result<double> number(const json::Member& member, double most) {
  double value = 0;
  if (!member.value.number(value) || !(value >= 0) || !(value <= most)) {
    return invalid(member.key, fmt::format("must be a number from 0 to {}", most));
  }
  return value;
}

}  // namespace

Result<> ConditionalDisaggregation::apply(std::string_view json) {
  const Result<json::Value> parsed = json::parse(json);
  const json::Object* const object = parsed ? parsed->as_object() : nullptr;
  if (!object) {
    return fail(ErrorCode::InvalidRequest,
                parsed ? "it must be a JSON object" : parsed.error().message);
  }
  constexpr double kMost = 1e9;
  for (const json::Member& member : *object) {
    if (member.key == "policy") {
      const std::string* const name = member.value.as_string();
      const auto found = std::ranges::find_if(
          kPolicies, [&](const auto& policy) { return name && policy.first == *name; });
      if (found == kPolicies.end()) {
        return invalid(member.key, "must be isl_bounding, prefill_load or isl_or_load");
      }
      policy = found->second;
      continue;
    }
    const Result<double> value =
        number(member, member.key == "eff_isl_ratio_threshold" ? 1 : kMost);
    if (!value) {
      return std::unexpected(value.error());
    }
    if (member.key == "eff_isl_threshold") {
      eff_isl_threshold = *value;
    } else if (member.key == "eff_isl_ratio_threshold") {
      eff_isl_ratio_threshold = *value;
    } else if (member.key == "prefill_busy_threshold") {
      prefill_busy_threshold = *value;
    } else if (member.key == "decode_busy_threshold") {
      decode_busy_threshold = *value;
    } else {
      return invalid(member.key, "is not a key of it");
    }
  }
  return {};
}

bool bypasses_prefill(const ConditionalDisaggregation& config, std::uint32_t prompt_tokens,
                      std::uint32_t cached_tokens, const PromptLoad& decode,
                      const std::optional<PromptLoad>& prefill) {
  if (!config.enabled) {
    return false;
  }
  if (config.decode_busy_threshold &&
      (decode.max_batched_tokens == 0 || decode.beyond(*config.decode_busy_threshold))) {
    return false;
  }
  const double fresh = prompt_tokens - std::min(cached_tokens, prompt_tokens);
  const bool small = fresh < config.eff_isl_threshold &&
                     fresh / std::max<double>(prompt_tokens, 1) < config.eff_isl_ratio_threshold;
  const bool busy =
      prefill && config.prefill_busy_threshold && prefill->beyond(*config.prefill_busy_threshold);
  switch (config.policy) {
    case Policy::IslBounding: return small;
    case Policy::PrefillLoad: return busy;
    case Policy::IslOrLoad: return small || busy;
  }
  return false;
}

}  // namespace fairlead::serving
