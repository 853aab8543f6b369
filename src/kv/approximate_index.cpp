#include "kv/approximate_index.hpp"

#include <algorithm>
#include <cmath>

namespace fairlead::kv {
namespace {

constexpr std::chrono::hours kLongestTtl{24 * 365};

// Blocks that a call frees before it lets others have the lock: those it may add itself, twice, and
// some, or a fixed number when it adds none.
constexpr std::size_t kShare = 4096;
constexpr std::size_t share_of(std::size_t added) { return 2 * added + 256; }

std::size_t part(std::size_t whole, double ratio) {
  return static_cast<std::size_t>(
      std::floor(static_cast<double>(whole) * (ratio > 0 ? std::min(ratio, 1.0) : 0.0)));
}

}  // namespace

ApproximateIndex::ApproximateIndex(const ApproximateIndexOptions& options)
    : ttl_(std::min<std::chrono::milliseconds>(options.ttl, kLongestTtl)),
      max_blocks_(options.max_blocks),
      kept_blocks_(part(options.max_blocks, options.prune_ratio)) {}

void ApproximateIndex::insert(TargetId target, std::span<const SequenceHash> prompt,
                              TimePoint now) {
  if (prompt.empty() || ttl_ <= ttl_.zero()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  latest_ = std::max(latest_, now);
  expire_share(latest_, share_of(prompt.size()));
  trie_.insert(target, prompt, latest_ + ttl_);
  prune_share(share_of(prompt.size()));
  note_leases();
}

void ApproximateIndex::find(std::span<const SequenceHash> prompt, TimePoint now,
                            std::vector<Overlap>& out) const {
  if (prompt.empty() || leases_.load(std::memory_order_relaxed) == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  trie_.find(prompt, now, out);
}

// True when nothing expired is left.
bool ApproximateIndex::expire_share(TimePoint now, std::size_t share) {
  std::size_t freed = 0;
  while (true) {
    const auto oldest = trie_.oldest_expiry();
    if (!oldest || *oldest > now) {
      return true;
    }
    if (freed >= share) {
      return false;
    }
    freed += trie_.shrink_oldest(SIZE_MAX);
  }
}

void ApproximateIndex::prune_share(std::size_t share) {
  pruning_ = pruning_ || trie_.blocks() > max_blocks_;
  std::size_t freed = 0;
  while (pruning_ && trie_.blocks() > kept_blocks_ && freed < share) {
    const bool early = trie_.oldest_expiry() > latest_;
    const std::size_t blocks = trie_.shrink_oldest(trie_.blocks() - kept_blocks_);
    freed += blocks;
    pruned_ += early ? blocks : 0;
  }
  pruning_ = pruning_ && trie_.blocks() > kept_blocks_;
}

void ApproximateIndex::remove_target(TargetId target) {
  // They leave it one by one, here or wherever else they end.
  LeaseTrie::Leases leaving;
  bool left = true;
  for (bool first = true; left; first = false) {
    const std::lock_guard lock(mutex_);
    if (first) {
      trie_.take(target, leaving);
    }
    for (std::size_t freed = 0; freed < kShare && !leaving.empty();) {
      freed += trie_.end_first(leaving);
    }
    left = !leaving.empty();
    note_leases();
  }
}

void ApproximateIndex::expire(TimePoint now) {
  bool done = false;
  while (!done) {
    const std::lock_guard lock(mutex_);
    done = expire_share(now, kShare);
    note_leases();
  }
}

ApproximateIndexStats ApproximateIndex::stats() const {
  const std::lock_guard lock(mutex_);
  return {.blocks = trie_.blocks(),
          .distinct_blocks = trie_.distinct_blocks(),
          .leases = trie_.leases(),
          .nodes = trie_.nodes(),
          .bytes = trie_.bytes(),
          .pruned = pruned_};
}

}  // namespace fairlead::kv
