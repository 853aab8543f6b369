#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.hpp"

namespace fairlead::serving {

/// When a prompt is not worth a prefill worker (direct-mode.md 3.6): the decode worker computes the
/// little that it lacks by itself.
struct ConditionalDisaggregation {
  /// What speaks for it.
  enum class Policy : std::uint8_t {
    IslBounding,  ///< Few tokens are new on the decode worker.
    PrefillLoad,  ///< The prefill worker that would be taken is busy.
    IslOrLoad,    ///< Either.
  };
  bool enabled = false;                          ///< Else every prompt goes to a prefill worker.
  Policy policy = Policy::IslBounding;           ///< Which.
  double eff_isl_threshold = 2048;               ///< New tokens must be below it, and
  double eff_isl_ratio_threshold = 0.7;          ///< their share of the prompt below this.
  std::optional<double> prefill_busy_threshold;  ///< Busy: more active tokens than this many times
                                                 ///< what the engine batches.
  std::optional<double> decode_busy_threshold;   ///< Likewise; a busy decode worker is spared.

  /// Sets what the JSON object says. Errors are InvalidRequest, of keys, types and ranges.
  Result<> apply(std::string_view json);
  /// True when the load of prefill workers matters.
  bool looks_at_prefill_load() const { return enabled && policy != Policy::IslBounding; }
};

/// How busy a worker is with prompts.
struct PromptLoad {
  std::int64_t active_tokens = 0;        ///< Booked and not computed.
  std::uint64_t max_batched_tokens = 0;  ///< Of the engine; 0 = unknown.

  /// True when it is known to be beyond `threshold`.
  bool beyond(double threshold) const {
    return max_batched_tokens > 0 &&
           static_cast<double>(active_tokens) > threshold * static_cast<double>(max_batched_tokens);
  }
};

/// Whether the prompt stays with the decode worker, of whose prompt tokens so many are cached.
bool bypasses_prefill(const ConditionalDisaggregation& config, std::uint32_t prompt_tokens,
                      std::uint32_t cached_tokens, const PromptLoad& decode,
                      const std::optional<PromptLoad>& prefill);

}  // namespace fairlead::serving
