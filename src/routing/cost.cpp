#include "routing/cost.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fairlead::routing {
namespace {

Result<> in_range(std::string_view name, double value, double most) {
  if (std::isfinite(value) && value >= 0 && value <= most) {
    return {};
  }
  return fail(ErrorCode::InvalidRequest,
              most == std::numeric_limits<double>::max()
                  ? fmt::format("{} must be a finite number of at least 0, not {}", name, value)
                  : fmt::format("{} must lie between 0 and {}, not {}", name, most, value),
              std::string(name));
}

}  // namespace

std::optional<SelectionPolicy> parse_selection_policy(std::string_view text) {
  if (text == "sum") {
    return SelectionPolicy::Sum;
  }
  if (text == "lmetric") {
    return SelectionPolicy::LMetric;
  }
  return std::nullopt;
}

Result<> validate(const KvRouterConfig& config) {
  constexpr double kAny = std::numeric_limits<double>::max();
  struct Limit {
    std::string_view name;
    double value;
    double most;
  };
  for (const Limit& limit : {
           Limit{"overlap_score_credit", config.overlap_score_credit, kAny},
           Limit{"overlap_score_credit_decay", config.overlap_score_credit_decay, kAny},
           Limit{"prefill_load_scale", config.prefill_load_scale, kAny},
           Limit{"host_cache_hit_weight", config.host_cache_hit_weight, 1},
           Limit{"disk_cache_hit_weight", config.disk_cache_hit_weight, 1},
           Limit{"shared_cache_multiplier", config.shared_cache_multiplier, 1},
           Limit{"router_temperature", config.router_temperature, kAny},
           Limit{"decode_active_request_weight", config.decode_active_request_weight, kAny},
           Limit{"recompute_weight", config.recompute_weight, kAny},
       }) {
    if (auto checked = in_range(limit.name, limit.value, limit.most); !checked) {
      return checked;
    }
  }
  return {};
}

Result<KvRouterConfig> apply(const KvRouterConfig& config, const KvRouterOverrides& overrides) {
  KvRouterConfig out = config;
  out.overlap_score_credit = overrides.overlap_score_credit.value_or(out.overlap_score_credit);
  out.prefill_load_scale = overrides.prefill_load_scale.value_or(out.prefill_load_scale);
  out.router_temperature = overrides.router_temperature.value_or(out.router_temperature);
  out.shared_cache_multiplier =
      overrides.shared_cache_multiplier.value_or(out.shared_cache_multiplier);
  out.assume_kv_reuse = overrides.assume_kv_reuse.value_or(out.assume_kv_reuse);
  out.track_prefill_tokens = overrides.track_prefill_tokens.value_or(out.track_prefill_tokens);
  if (overrides.overlap_score_weight) {
    if (auto checked = in_range("overlap_score_weight", *overrides.overlap_score_weight,
                                std::numeric_limits<double>::max());
        !checked) {
      return std::unexpected(checked.error());
    }
    out.prefill_load_scale = *overrides.overlap_score_weight;
    if (*overrides.overlap_score_weight == 0) {
      out.overlap_score_credit = 0;
    }
  }
  if (auto checked = validate(out); !checked) {
    return std::unexpected(checked.error());
  }
  return out;
}

double taint_factor(double matched_weight) { return std::exp(-std::tanh(matched_weight)); }

}  // namespace fairlead::routing
