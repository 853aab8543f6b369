#include "routing/kv_query.hpp"

#include <algorithm>

namespace fairlead::routing {

KvQuery::Times KvQuery::look_up(const KvSetView& view, std::span<const std::uint32_t> prompt,
                                std::uint64_t seed, TimePoint now, KvRoute& route) {
  using Clock = std::chrono::steady_clock;
  KvCaches& caches = *view.caches;
  Times times;
  times.begun = Clock::now();
  prompt_.clear();
  overlaps_.clear();
  predicted_.clear();
  kv::prompt_hashes(prompt, caches.params, seed, prompt_);
  times.hashed = Clock::now();
  caches.index.find(prompt_, overlaps_);
  caches.routed.find(prompt_, now, predicted_);
  // A choice by the view before may have added to it after the target's events took over.
  std::erase_if(predicted_, [&](const kv::Overlap& each) {
    return each.target < view.states.size() && view.follows_events(each.target);
  });
  const std::size_t routed = predicted_.size();
  caches.predicted.find(prompt_, now, predicted_);
  merge_predicted(routed);
  times.found = Clock::now();
  route.prompt = prompt_;
  route.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  route.block_size = caches.params.block_size;
  route.overlaps = overlaps_;
  route.predicted = predicted_;
  route.places = view.places;
  route.degraded = view.degraded;
  return times;
}

// A target whose events came or went meanwhile may be in both indexes: the longer one counts.
void KvQuery::merge_predicted(std::size_t first) {
  if (first == 0 || first == predicted_.size()) {
    return;
  }
  former_.reset(std::span(predicted_).first(first));
  std::size_t kept = first;
  for (std::size_t i = first; i < predicted_.size(); ++i) {
    const kv::Overlap later = predicted_[i];
    if (const std::size_t at = former_.find(later.target); at < first) {
      predicted_[at].device = std::max(predicted_[at].device, later.device);
    } else {
      predicted_[kept++] = later;
    }
  }
  predicted_.resize(kept);
}

void KvQuery::routed(const KvSetView& view, TargetRef target, TimePoint now) const {
  const auto id = view.find(target);
  if (!id || prompt_.empty()) {
    return;
  }
  KvCaches& caches = *view.caches;
  if (!view.follows_events(*id)) {
    caches.routed.insert(*id, prompt_, now);
  } else if (caches.predicts) {
    caches.predicted.insert(*id, prompt_, now);
  }
}

std::uint32_t expected_cached_tokens(std::uint32_t blocks, std::uint32_t prompt_tokens,
                                     std::uint32_t block_size) {
  const std::uint32_t most = prompt_tokens == 0 ? 0 : (prompt_tokens - 1) / block_size;
  return std::min(blocks, most) * block_size;
}

void note_truth(const KvSetView& view, const KvDecision& decision, std::uint32_t prompt_tokens,
                std::uint32_t actual_cached_tokens) {
  const auto id = view.find(decision.target);
  if (!id) {
    return;
  }
  const std::uint32_t block_size = view.caches->params.block_size;
  const auto expected = [&](std::uint32_t blocks) {
    return expected_cached_tokens(blocks, prompt_tokens, block_size);
  };
  const std::uint32_t believed = expected(decision.cached.total());
  view.caches->truth.note(
      *id, {.prompt = prompt_tokens,
            .confirmed = view.follows_events(*id) ? expected(decision.confirmed_blocks) : believed,
            .believed = believed,
            .actual = actual_cached_tokens});
}

}  // namespace fairlead::routing
