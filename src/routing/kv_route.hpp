#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/hashes.hpp"
#include "kv/index.hpp"
#include "routing/cost.hpp"

// What goes into a choice by KV cache beside the RouteRequest, and what comes out of it.

namespace fairlead::routing {

/// Which worker and rank a target of the KV index stands for.
struct TargetPlace {
  std::uint64_t worker_id = 0;  ///< Must be the slot's worker now; else the target is passed over.
  std::uint32_t slot = 0;       ///< The worker's place in its set.
  std::uint32_t rank = 0;       ///< Data-parallel rank.
  bool live = true;  ///< The view of its cache follows the engine. If not, what the index
                     ///< says of it counts as nothing.
};

/// One rank of one worker.
struct TargetRef {
  std::uint64_t worker_id = 0;  ///< The worker.
  std::uint32_t rank = 0;       ///< Its rank.
  bool operator==(const TargetRef&) const = default;
};

/// A label of workers that a request likes.
struct PreferredTaint {
  std::string name;   ///< As the worker has it.
  double weight = 0;  ///< Positive attracts, negative repels.
  bool operator==(const PreferredTaint&) const = default;
};

/// Which labels of workers a request goes by.
struct RoutingConstraints {
  std::vector<std::string> required_taints;      ///< Only workers that have all of them.
  std::vector<PreferredTaint> preferred_taints;  ///< Each once.
  bool operator==(const RoutingConstraints&) const = default;
};

/// Why a target was taken. Every pick has exactly one.
enum class PickReason : std::uint8_t {
  Mode,         ///< The router mode's turn, lot or count.
  Pinned,       ///< The request names the worker.
  Affinity,     ///< Its session is bound there.
  Overlap,      ///< The cheapest, and it has a part of the prompt.
  LeastLoaded,  ///< The cheapest, with nothing of the prompt.
  Sampled,      ///< By lot, temperature above 0.
  StaleView,    ///< The cheapest by load; what it has cached is not known.
  kCount,
};

/// Label of a reason; `Mode` has none of its own.
std::string_view reason_name(PickReason reason);

/// One target as it was weighed.
struct CandidateCost {
  TargetRef target;         ///< Which.
  CachedBlocks cached;      ///< What it has of the prompt.
  TargetLoad load;          ///< What it is busy with.
  CostTerms terms;          ///< Its cost. With preferred taints, `cost` is scaled by them.
  bool overloaded = false;  ///< Beyond the thresholds: not to be taken.
  bool stale = false;       ///< Its view is not live.
};

/// The prompt, what is known of it, and what the request asks of the choice. Spans are read during
/// the call only. Default: nothing is known, so load decides.
struct KvRoute {
  std::span<const kv::SequenceHash> prompt = {};  ///< Of its complete blocks.
  std::uint32_t prompt_tokens = 0;                ///< All of them.
  std::uint32_t block_size = 0;                   ///< Of the worker set; 0 = unknown.
  std::span<const kv::Overlap> overlaps = {};     ///< From the index of the engines' events.
  /// From the indexes of what was routed lately. A target is in either list at most once. The
  /// router takes the longer one of both per target, so callers do not merge; it counts for targets
  /// without a live view, too.
  std::span<const kv::Overlap> predicted = {};
  std::span<const TargetPlace> places = {};  ///< By TargetId of both.
  /// Some worker's view is not live: a target is, then, when `places` says so. Else all are.
  bool degraded = false;
  std::uint32_t shared_prefix = 0;                    ///< Leading blocks in a cache that all share.
  std::optional<std::uint32_t> expected_output = {};  ///< Tokens it will generate; a guess.
  const KvRouterOverrides* overrides = nullptr;       ///< What it changes in the configuration.
  std::optional<TargetRef> preferred = {};      ///< Where its session is bound. Taken unless it is
                                                ///< gone or overloaded; beats a named worker.
  std::span<const std::uint64_t> allowed = {};  ///< Only these workers; empty = all.
  std::span<const PreferredTaint> preferred_taints = {};  ///< Scale the cost, pins apart.
  std::vector<CandidateCost>* explain = nullptr;  ///< Gets every target that would do if no worker
                                                  ///< were named or bound, when given.
};

/// What was decided, for the log, metrics and the comparison with what the engine reports.
struct KvDecision {
  TargetRef target;                             ///< Where to.
  PickReason reason = PickReason::LeastLoaded;  ///< Why.
  CachedBlocks cached;                          ///< Leading blocks it has, predicted ones included.
  std::uint32_t confirmed_blocks = 0;           ///< On its device by its events.
  std::uint32_t total_blocks = 0;               ///< Of the prompt, the last one perhaps not full.
  std::uint32_t cached_tokens = 0;              ///< That need not be computed, by tier weights.
  std::uint32_t prefill_tokens = 0;             ///< That were booked to be computed.
  CostTerms terms;                              ///< Its cost.
};

}  // namespace fairlead::routing
