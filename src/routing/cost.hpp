#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "base/error.hpp"

// The cost of giving a prompt to a target, one data-parallel rank of one worker. Lower is better;
// the unit is one KV block of work. Pure arithmetic: what a target has cached and what it is busy
// with comes in, every term comes out, so that a choice can be explained.

namespace fairlead::routing {

/// How the terms become one figure.
enum class SelectionPolicy : std::uint8_t {
  Sum,      ///< Prefill + decode + requests.
  LMetric,  ///< Prefill × (decode + 1).
};

/// What the choice by KV cache depends on. Every weight is finite and not negative.
struct KvRouterConfig {
  double overlap_score_credit = 1.0;        ///< Worth of a block cached on the device; 0 = caches
                                            ///< do not matter.
  double overlap_score_credit_decay = 0.0;  ///< How fast that worth falls with a target's backlog.
  double prefill_load_scale = 1.0;          ///< Worth of a block to prefill against one to decode.
  double host_cache_hit_weight = 0.75;      ///< Worth of a block cached in host memory, 0 to 1.
  double disk_cache_hit_weight = 0.25;      ///< Worth of a block cached on disk, 0 to 1.
  double shared_cache_multiplier = 0.0;     ///< Worth of a block in a cache that all share.
  double router_temperature = 0.0;          ///< 0 = the cheapest; larger = more by lot.
  /// Worth of a running request. One: every sequence keeps a last block that is not full yet, which
  /// no count of full blocks sees. Without it prompts shorter than a block would not spread at all.
  double decode_active_request_weight = 1.0;
  /// Worth of a block that has to be computed and was cached elsewhere, on top of its load. A
  /// target that is still computing the very prompt is not faster than an idle one, but it saves
  /// the work; without this every burst of one prompt is computed by all workers. 0 = the plain
  /// sum.
  double recompute_weight = 0.1;
  bool track_active_blocks = true;   ///< Count what running requests occupy.
  bool track_output_blocks = false;  ///< Count what they generate, too.
  bool assume_kv_reuse = true;       ///< Equal prefixes of running requests occupy once.
  bool track_prefill_tokens = true;  ///< Count prompts that are not computed yet.
  SelectionPolicy policy = SelectionPolicy::Sum;  ///< How terms are put together.
};

/// What one request changes in it.
struct KvRouterOverrides {
  std::optional<double> overlap_score_credit;     ///< See KvRouterConfig.
  std::optional<double> prefill_load_scale;       ///< Likewise.
  std::optional<double> router_temperature;       ///< Likewise.
  std::optional<double> shared_cache_multiplier;  ///< Likewise.
  std::optional<bool> assume_kv_reuse;            ///< Likewise.
  std::optional<bool> track_prefill_tokens;       ///< Likewise.
  /// Deprecated: not 0 = `prefill_load_scale`; 0 = neither prefill nor caches matter. Wins over
  /// both.
  std::optional<double> overlap_score_weight;
};

/// The name of a policy on the command line: `sum` or `lmetric`.
std::optional<SelectionPolicy> parse_selection_policy(std::string_view text);

/// InvalidRequest, naming the option as `param`, when a value is out of range.
Result<> validate(const KvRouterConfig& config);
/// `config` with a request's changes. InvalidRequest when one is out of range.
Result<KvRouterConfig> apply(const KvRouterConfig& config, const KvRouterOverrides& overrides);

/// The prompt's part of a cost.
struct PromptShape {
  std::uint32_t tokens = 0;         ///< Of the prompt.
  std::uint32_t full_blocks = 0;    ///< Complete ones.
  std::uint32_t block_size = 16;    ///< Tokens per block, not 0.
  std::uint32_t shared_prefix = 0;  ///< Leading blocks that a cache shared by all targets holds.
};

/// Leading blocks of a prompt that a target has, by tier; each tier goes on where the one before
/// ends.
struct CachedBlocks {
  std::uint32_t device = 0;  ///< On the device.
  std::uint32_t host = 0;    ///< Further ones in host memory.
  std::uint32_t disk = 0;    ///< Further ones on disk.
  /// All of them.
  std::uint32_t total() const { return device + host + disk; }
  bool operator==(const CachedBlocks&) const = default;
};

/// What a target is busy with.
struct TargetLoad {
  std::int64_t prefill_tokens = 0;      ///< Of prompts not computed yet.
  std::int64_t active_blocks = 0;       ///< Occupied by running requests.
  std::uint32_t requests = 0;           ///< Running.
  std::uint32_t active_prefix = 0;      ///< Leading prompt blocks among the active ones.
  std::int64_t min_prefill_tokens = 0;  ///< The least of all eligible targets; only read when the
                                        ///< credit decays.
};

/// A cost and how it came about.
struct CostTerms {
  double effective_blocks = 0;  ///< Cached blocks, weighted by tier.
  double raw_prefill = 0;       ///< Blocks queued for prefill, this prompt in full.
  double credit = 0;            ///< What caches take off it.
  double adjusted_prefill = 0;  ///< The rest, not below 0.
  double decode = 0;            ///< Blocks active then.
  double requests = 0;          ///< Weighted running requests.
  double recompute = 0;         ///< Weighted blocks of the prompt to compute.
  double cost = 0;              ///< The sum, prefill scaled; or what the policy makes of it.
};

/// Tokens of the prompt that need not be computed, by tier weights.
inline double cached_tokens(const CostTerms& terms, const PromptShape& prompt) {
  return std::min(terms.effective_blocks * prompt.block_size, static_cast<double>(prompt.tokens));
}

/// The cost of one prompt at one target. Without prefill tracking the credit is taken off the
/// decode term, so that caches still count. Inlined: a scan of a fleet reads only the sum, and then
/// the other terms cost nothing.
[[gnu::always_inline]] inline CostTerms evaluate(const KvRouterConfig& config,
                                                 const PromptShape& prompt,
                                                 const CachedBlocks& cached,
                                                 const TargetLoad& load) {
  CostTerms out;
  const double size = prompt.block_size;
  const double shared =
      prompt.shared_prefix > cached.device ? prompt.shared_prefix - cached.device : 0;
  const double lower = config.host_cache_hit_weight * cached.host +
                       config.disk_cache_hit_weight * cached.disk +
                       config.shared_cache_multiplier * shared;
  out.effective_blocks = cached.device + lower;
  const double blocks = prompt.tokens / size;
  const double uncached = std::max(blocks - out.effective_blocks, 0.0);
  double factor = 1;
  if (config.overlap_score_credit_decay > 0 && config.track_prefill_tokens && blocks > 0) {
    const double ahead =
        static_cast<double>(load.prefill_tokens - load.min_prefill_tokens) / size / blocks;
    factor = 1 / (1 + config.overlap_score_credit_decay * ahead);
  }
  // A credit of 0 means that caches do not matter, whichever tier.
  out.credit = config.overlap_score_credit > 0
                   ? config.overlap_score_credit * factor * cached.device + lower
                   : 0.0;
  if (config.track_active_blocks) {
    const std::uint32_t reused =
        config.assume_kv_reuse ? std::min(load.active_prefix, prompt.full_blocks) : 0;
    out.decode = static_cast<double>(load.active_blocks + prompt.full_blocks - reused);
  }
  out.requests = config.decode_active_request_weight * load.requests;
  if (!config.track_prefill_tokens) {
    out.decode = std::max(out.decode - out.credit, 0.0);
    out.cost = config.policy == SelectionPolicy::LMetric ? out.decode : out.decode + out.requests;
    return out;
  }
  out.raw_prefill =
      static_cast<double>(load.prefill_tokens) / size + std::max(blocks, out.effective_blocks);
  out.adjusted_prefill = std::max(out.raw_prefill - out.credit, 0.0);
  if (config.policy == SelectionPolicy::LMetric) {
    out.cost = out.adjusted_prefill * (out.decode + 1);
    return out;
  }
  out.recompute = config.recompute_weight * std::min(config.overlap_score_credit, 1.0) * uncached;
  out.cost =
      config.prefill_load_scale * out.adjusted_prefill + out.decode + out.requests + out.recompute;
  return out;
}

/// What is left of a cost for a target with as much weight of preferred taints: between e⁻¹ and e.
double taint_factor(double matched_weight);

}  // namespace fairlead::routing
