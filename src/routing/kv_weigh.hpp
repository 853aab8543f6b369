#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "routing/cost.hpp"
#include "routing/kv_table.hpp"

// What the parts of KvTable share: the cost of one target in one choice, and the
// cheapest of several.

namespace fairlead::routing {

/// `more` reaches further on the device; lower tiers still end where they did.
inline void extend(CachedBlocks& cached, const kv::Overlap& more) {
  const std::uint32_t host = std::max(cached.device + cached.host, more.device + more.host);
  const std::uint32_t disk = std::max(cached.total(), more.device + more.host + more.disk);
  cached.device = std::max(cached.device, more.device);
  cached.host = host - cached.device;
  cached.disk = std::max(disk, host) - host;
}

[[gnu::always_inline]] inline KvTable::Known& KvTable::touch(TargetIndex target) {
  Known& known = known_[target];
  if (known.stamp != stamp_) {
    // Field by field: a copied temporary is read wider than it was written, which stalls.
    known.stamp = stamp_;
    known.cached.device = known.cached.host = known.cached.disk = 0;
    known.confirmed = 0;
    known.prefix = 0;
    known.live = !degraded_;
    touched_[touched_count_++] = target;
  }
  return known;
}

[[gnu::always_inline]] inline TargetLoad KvTable::load_of(TargetIndex index) const {
  const KvLoads::Target& target = loads_.targets()[index];
  const Known& known = known_[index];
  return {.prefill_tokens = target.prefill_tokens,
          .active_blocks = target.active_blocks(),
          .requests = target.requests,
          .active_prefix = known.stamp == stamp_ ? known.prefix : 0,
          .min_prefill_tokens = min_prefill_};
}

[[gnu::always_inline]] inline CostTerms KvTable::weigh(const KvRouterConfig& config,
                                                       const PromptShape& shape,
                                                       TargetIndex index) const {
  const Known& known = known_[index];
  return evaluate(config, shape, known.stamp == stamp_ ? known.cached : CachedBlocks{},
                  load_of(index));
}

// The cheapest so far; among equals each is as likely as any other (reservoir sampling).
struct KvTable::Best {
  TargetIndex target = 0;
  double cost = MinTree::kNone;
  std::uint32_t equals = 0;

  // `weight` targets of this cost, of which `candidate` was drawn.
  void consider(TargetIndex candidate, double value, std::uint32_t weight,
                std::mt19937_64& random) {
    if (value < cost || equals == 0) {
      *this = {.target = candidate, .cost = value, .equals = weight};
    } else if (value == cost) {
      equals += weight;
      if (random() % equals < weight) {
        target = candidate;
      }
    }
  }
};

}  // namespace fairlead::routing
