#include "routing/kv_truth.hpp"

#include <algorithm>

namespace fairlead::routing {

bool CacheScore::wrong() const { return recent == kRecentSamples && error > kWrongShare; }

void KvTruth::note(kv::TargetId target, const CacheSample& sample) {
  if (sample.prompt == 0) {
    return;
  }
  const std::uint32_t missed = sample.actual - std::min(sample.actual, sample.believed);
  const std::uint32_t phantom = sample.confirmed - std::min(sample.confirmed, sample.actual);
  const double wrong = static_cast<double>(missed + phantom) / sample.prompt;
  const std::lock_guard lock(mutex_);
  if (scores_.size() <= target) {
    scores_.resize(target + std::size_t{1});
  }
  CacheScore& score = scores_[target];
  ++score.requests;
  score.prompt_tokens += sample.prompt;
  score.believed_tokens += sample.believed;
  score.actual_tokens += sample.actual;
  score.recent = std::min(score.recent + 1, kRecentSamples);
  score.error += (wrong - score.error) / score.recent;
}

CacheScore KvTruth::score(kv::TargetId target) const {
  const std::lock_guard lock(mutex_);
  return target < scores_.size() ? scores_[target] : CacheScore();
}

void KvTruth::forget(kv::TargetId target) {
  const std::lock_guard lock(mutex_);
  if (target < scores_.size()) {
    scores_[target] = {};
  }
}

void KvTruth::forgive(kv::TargetId target) {
  const std::lock_guard lock(mutex_);
  if (target < scores_.size()) {
    scores_[target].error = 0;
    scores_[target].recent = 0;
  }
}

}  // namespace fairlead::routing
