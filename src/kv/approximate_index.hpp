#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kv/hashes.hpp"
#include "kv/index.hpp"
#include "kv/lease_trie.hpp"
#include "kv/target_set.hpp"

namespace fairlead::kv {

/// For how long and how much an approximate index believes.
struct ApproximateIndexOptions {
  std::chrono::milliseconds ttl{0};  ///< From a prompt's last routing on; 0 or less = never. At
                                     ///< most a year.
  /// Blocks, once for every target that holds them. One block costs 30 bytes or less in prompts of
  /// hundreds of blocks; 250 when every prompt adds a single block.
  std::size_t max_blocks = std::size_t{1} << 20U;
  double prune_ratio = 0.8;  ///< Part of `max_blocks` that is kept when there are more.
};

/// State of an approximate index. What has expired is in it until it is freed.
struct ApproximateIndexStats {
  std::size_t blocks = 0;           ///< Held, once for every target.
  std::size_t distinct_blocks = 0;  ///< Held by anyone.
  std::size_t leases = 0;           ///< Routed prompts that some block is held for.
  std::size_t nodes = 0;            ///< Of the trie; fewer than two per lease.
  std::size_t bytes = 0;            ///< Memory in use.
  std::uint64_t pruned = 0;         ///< Blocks given up before their time, ever.
};

/// Which target should have which prefix cached because a prompt with it was routed there lately:
/// for targets that send no events, and for what their events have not told yet.
///
/// Invariants:
/// 1. A target has a block exactly from the insertion of a prompt with it until `ttl` after the
///    last such insertion, or until the target is removed or the block is pruned. Freeing what
///    expired changes no answer.
/// 2. A target that has a block has the blocks before it: what goes early goes oldest insertion
///    first and, within one, deepest block first.
/// 3. Time does not run backwards: an insertion with an earlier time than one before it counts as
///    made at that one's. So what was inserted first expires first.
/// 4. No call holds the lock for more than the work of its own prompt and a bounded share of
///    expiring, pruning and removing. Shares are larger than what an insertion adds, so there are
///    never more than `max_blocks` and the blocks of one prompt, for a moment.
///
/// Any thread may call anything. Times are the caller's; the clock is never read.
class ApproximateIndex {
 public:
  /// Of all calls.
  using TimePoint = std::chrono::steady_clock::time_point;

  /// An empty index.
  explicit ApproximateIndex(const ApproximateIndexOptions& options);

  /// A prompt was routed to a target: it has all its blocks, until `ttl` from now. `prompt` are
  /// the hashes of its chain from position 0.
  void insert(TargetId target, std::span<const SequenceHash> prompt, TimePoint now);
  /// Appends the overlap of every target that has one to `out`: all of it as `device`, in no
  /// particular order. Takes no lock while the index is empty.
  void find(std::span<const SequenceHash> prompt, TimePoint now, std::vector<Overlap>& out) const;
  /// Forgets a target. When it returns, nothing is left of what was inserted before the call, and
  /// the id may be given to another target.
  void remove_target(TargetId target);
  /// Frees what has expired. Insertions do as well, so this is for times without any.
  void expire(TimePoint now);
  /// State.
  ApproximateIndexStats stats() const;

 private:
  bool expire_share(TimePoint now, std::size_t share);
  void prune_share(std::size_t share);
  void note_leases() { leases_.store(trie_.leases(), std::memory_order_relaxed); }

  const std::chrono::milliseconds ttl_;
  const std::size_t max_blocks_;
  const std::size_t kept_blocks_;

  mutable std::mutex mutex_;  // of what follows
  LeaseTrie trie_;
  TimePoint latest_ = TimePoint::min();
  bool pruning_ = false;  // until there are no more than kept_blocks_
  std::uint64_t pruned_ = 0;
  std::atomic<std::size_t> leases_{0};  // read without the mutex
};

}  // namespace fairlead::kv
