#pragma once

#include "routing/cost.hpp"
#include "routing/kv_table.hpp"

// What the parts of KvTable share: the cost of one target in one choice.

namespace fairlead::routing {

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

}  // namespace fairlead::routing
