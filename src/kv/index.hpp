#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kv/block_table.hpp"
#include "kv/epochs.hpp"
#include "kv/hashes.hpp"
#include "kv/memory_budget.hpp"
#include "kv/prefix_walk.hpp"
#include "kv/target_blocks.hpp"
#include "kv/target_mask.hpp"
#include "kv/target_set.hpp"
#include "kv/tier.hpp"

namespace fairlead::kv {

/// Bounds of an index.
struct IndexOptions {
  std::size_t max_bytes = std::size_t{4} << 30U;  ///< For all of it; then stores are refused.
  std::size_t max_targets = 4096;                 ///< Targets at once, at most `kMaxTargets`.
};

/// How a store ended.
enum class StoreOutcome : std::uint8_t {
  Stored,         ///< All blocks are there.
  UnknownParent,  ///< The target does not hold the parent: nothing was stored.
  Full,           ///< Out of memory: the blocks before some point are there, the others are not.
  UnknownTarget,  ///< The target was removed: nothing was stored.
};

/// State of an index.
struct IndexStats {
  std::size_t bytes = 0;            ///< Memory in use, `retired_bytes` included.
  std::size_t max_bytes = 0;        ///< Its limit.
  std::size_t retired_bytes = 0;    ///< Replaced, to be freed when no reader holds it.
  std::size_t targets = 0;          ///< Targets now.
  std::size_t distinct_blocks = 0;  ///< Different blocks held on a device by anyone.
  std::size_t held_blocks = 0;      ///< Engine hashes held, summed over targets.
  IndexCounts counts;               ///< What happened to blocks.
};

/// Which target holds which prefix: exact, by the content of blocks, for one worker set (one block
/// size, one way of hashing). A target is one (worker, rank).
///
/// Invariants, which docs/kv-index.md explains:
/// 1. A target is in the set of (tier, sequence hash) exactly when it holds, in that tier, at least
///    one copy of at least one engine hash with that content.
/// 2. Every engine hash a target holds has its sequence hash, fixed when it was stored from its
///    parent's. Removing a block touches no other one.
/// 3. `find` reports for each target the longest run of leading blocks it holds. Blocks that change
///    while it runs count as before or after the change.
/// 4. Every byte of tables, sets and maps is taken from the budget before it is allocated and given
///    back after it is freed; what readers may still see stays counted.
///
/// Any thread may call anything. Calls for one target take turns, so events of a target are applied
/// in order when one thread applies them; `find` takes no lock and never waits for writers.
class KvIndex {
 public:
  /// An empty index.
  explicit KvIndex(IndexOptions options);
  KvIndex(const KvIndex&) = delete;
  KvIndex& operator=(const KvIndex&) = delete;
  /// No call may be running.
  ~KvIndex();

  /// A new target without blocks. Fails with `Overloaded` at `max_targets`.
  Result<TargetId> add_target();
  /// Removes a target: answers leave it out at once, then its blocks go one by one; neither readers
  /// nor the writers of other targets wait for it. Its id is given out again only when that is done
  /// and no reader that could have seen it is left. Nothing happens for an unknown target.
  void remove_target(TargetId target);

  /// Stores a chain of blocks in a tier: behind `parent`, which the target must hold in some tier,
  /// or from position 0. Each store of a block the target has already in the tier counts as a copy.
  StoreOutcome store(TargetId target, Tier tier, std::optional<EngineHash> parent,
                     std::span<const StoredBlock> blocks);
  /// Removes one copy of each block in a tier. Blocks not held there are skipped and counted.
  /// Returns the copies removed.
  std::size_t remove(TargetId target, Tier tier, std::span<const EngineHash> blocks);
  /// Removes all blocks of a target from all tiers.
  void clear(TargetId target);

  /// Puts the overlap of every target that has one into `out`, in no particular order.
  void find(std::span<const SequenceHash> prompt, std::vector<Overlap>& out) const;

  /// Appends everything a target holds: one moment's state, in no particular order.
  void snapshot(TargetId target, std::vector<HeldBlock>& out) const;
  /// Adds what a peer's `snapshot` says to a target.
  StoreOutcome restore(TargetId target, std::span<const HeldBlock> blocks);

  /// Engine hashes a target holds.
  std::size_t blocks(TargetId target) const;
  /// State and counts.
  IndexStats stats() const;

 private:
  struct Target;

  Target* target(TargetId id) const;
  void note_changes(Target& of);

  IndexOptions options_;
  MemoryBudget budget_;
  mutable Epochs epochs_;
  SetMemory memory_;
  std::array<BlockTable, kIndexedTiers> tables_;
  std::array<std::atomic<std::ptrdiff_t>, kIndexedTiers> held_{};  // members of all a tier's sets
  TargetMask mask_;
  std::unique_ptr<std::atomic<Target*>[]> targets_;  // made once, kept for the next of the id

  mutable std::mutex ids_mutex_;
  std::vector<TargetId> free_ids_;                               // a heap, lowest first
  std::vector<std::pair<TargetId, std::uint64_t>> leaving_ids_;  // and the epoch they left in
  std::size_t known_ids_ = 0;
  std::size_t target_count_ = 0;
};

}  // namespace fairlead::kv
