#include "routing/policy_classes.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "routing/kv_loads.hpp"

namespace fairlead::routing {

std::optional<QueuePolicy> parse_queue_policy(std::string_view text) {
  if (text == "fcfs") {
    return QueuePolicy::Fcfs;
  }
  if (text == "lcfs") {
    return QueuePolicy::Lcfs;
  }
  if (text == "wspt") {
    return QueuePolicy::Wspt;
  }
  return std::nullopt;
}

bool target_busy(const PolicyClass& policy_class, std::int64_t prefill_tokens,
                 std::uint64_t max_batched_tokens) {
  const auto booked = static_cast<std::uint64_t>(std::max<std::int64_t>(prefill_tokens, 0));
  if (policy_class.prefill_busy_threshold && booked > *policy_class.prefill_busy_threshold) {
    return true;
  }
  return policy_class.prefill_busy_threshold_frac &&
         static_cast<double>(booked) >
             *policy_class.prefill_busy_threshold_frac * batch_tokens(max_batched_tokens);
}

bool pool_busy(const PolicyClass& policy_class, std::size_t busy, std::size_t eligible) {
  if (eligible == 0 || !policy_class.queues()) {
    return false;
  }
  // The product of a decimal share and a count may be a little above the whole number it means.
  constexpr double kRounding = 1e-9;
  const double share = policy_class.busy_worker_ratio.value_or(1.0);
  return static_cast<double>(busy) + kRounding >= share * static_cast<double>(eligible);
}

Result<> validate(const QueueOptions& options) {
  if (options.threshold && !(std::isfinite(*options.threshold) && *options.threshold >= 0)) {
    return fail(ErrorCode::InvalidRequest,
                "--router-queue-threshold: expected a finite number from 0",
                "router-queue-threshold");
  }
  if (options.limit == 0) {
    return fail(ErrorCode::InvalidRequest, "--router-queue-limit: expected at least 1",
                "router-queue-limit");
  }
  return {};
}

PolicyProfile PolicyProfile::single(const QueueOptions& options) {
  PolicyProfile out;
  PolicyClass& only = out.classes_.emplace_back();
  only.name = "default";
  only.policy = options.policy;
  only.prefill_busy_threshold_frac = options.threshold;
  out.table_.push_back(0);
  return out;
}

std::size_t PolicyProfile::classify(std::string_view requested,
                                    std::uint32_t uncached_tokens) const {
  if (const auto found = explicit_.find(requested); found != explicit_.end()) {
    return found->second;
  }
  const auto family = families_.find(requested);
  const std::size_t row = family == families_.end() ? default_family_ : family->second;
  const auto above = std::ranges::upper_bound(floors_, uncached_tokens);  // the first floor is 0
  const auto column = static_cast<std::size_t>(above - floors_.begin()) - 1;
  return table_[row * floors_.size() + column];
}

PolicyConfig::PolicyConfig(const QueueOptions& options)
    : others_(std::make_shared<const PolicyProfile>(PolicyProfile::single(options))) {}

const std::shared_ptr<const PolicyProfile>& PolicyConfig::profile(std::string_view model) const {
  const auto own = models_.find(model);
  return own == models_.end() ? others_ : own->second;
}

}  // namespace fairlead::routing
