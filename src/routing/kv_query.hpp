#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/hashes.hpp"
#include "kv/index.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_set_view.hpp"
#include "routing/overlap_list.hpp"

namespace fairlead::routing {

/// Looks prompts up in the caches of worker sets. One per thread: it keeps its memory between
/// calls.
class KvQuery {
 public:
  /// Of the caller's clock.
  using TimePoint = kv::ApproximateIndex::TimePoint;
  /// Moments of one look-up.
  struct Times {
    std::chrono::steady_clock::time_point begun;   ///< Hashing began.
    std::chrono::steady_clock::time_point hashed;  ///< It ended.
    std::chrono::steady_clock::time_point found;   ///< All indexes were asked.
  };

  /// Hashes the prompt and fills `route` with what is known of it. `route` refers to this object
  /// and to `view` until the next call. `seed` is kv::hash_seed of the request's adapter and salt.
  Times look_up(const KvSetView& view, std::span<const std::uint32_t> prompt, std::uint64_t seed,
                TimePoint now, KvRoute& route);
  /// The prompt of the last `look_up` was routed to a target: requests that come before its events
  /// shall know.
  void routed(const KvSetView& view, TargetRef target, TimePoint now) const;

 private:
  void merge_predicted(std::size_t first);

  std::vector<kv::SequenceHash> prompt_;
  std::vector<kv::Overlap> overlaps_;
  std::vector<kv::Overlap> predicted_;
  OverlapList former_;
};

/// What the engine should report as cached, if the decision was right: the last token of a prompt
/// is always computed, so a prompt that is cached whole counts without its last block.
std::uint32_t expected_cached_tokens(std::uint32_t blocks, std::uint32_t prompt_tokens,
                                     std::uint32_t block_size);

/// Tells the truth about a finished request's target.
void note_truth(const KvSetView& view, const KvDecision& decision, std::uint32_t prompt_tokens,
                std::uint32_t actual_cached_tokens);

}  // namespace fairlead::routing
