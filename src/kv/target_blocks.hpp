#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/block_map.hpp"
#include "kv/block_table.hpp"
#include "kv/epochs.hpp"
#include "kv/hashes.hpp"
#include "kv/memory_budget.hpp"
#include "kv/target_set.hpp"
#include "kv/tier.hpp"

namespace fairlead::kv {

/// Tiers that answers are about. An external copy is nobody's own: it is only held so that it can
/// be a parent and be removed.
inline constexpr std::size_t kIndexedTiers = 3;

/// Copies of one block by tier.
using TierCopies = std::array<std::uint32_t, kTierCount>;

/// A block of a target, as it is handed to a peer.
struct HeldBlock {
  EngineHash engine = 0;      ///< The engine's name of it.
  SequenceHash sequence = 0;  ///< What it holds; its parent need not be known.
  TierCopies copies{};        ///< At least one is not 0.
  /// Equality of all.
  bool operator==(const HeldBlock&) const = default;
};

/// What happened to the blocks of events.
struct IndexCounts {
  std::uint64_t stored = 0;   ///< Blocks stored that their target did not hold in the tier.
  std::uint64_t copies = 0;   ///< Blocks stored once more.
  std::uint64_t removed = 0;  ///< Copies removed one by one.
  std::uint64_t unknown_removals = 0;  ///< Removals of blocks not held: skipped.
  std::uint64_t unknown_parents = 0;   ///< Stores dropped whole for want of their parent.
  std::uint64_t orphans = 0;           ///< Blocks in these.
  std::uint64_t renamed = 0;  ///< Engine hashes that came with other content; the old one went.
  std::uint64_t full = 0;     ///< Stores cut short for want of memory.
  std::uint64_t refused = 0;  ///< Blocks in these that were not stored.
  std::uint64_t clears = 0;   ///< Targets cleared.
};

/// What targets share: the tables of the index and where memory comes from.
struct SharedTables {
  std::array<BlockTable*, kIndexedTiers> tables;  ///< By tier.
  MemoryBudget& budget;                           ///< Bytes.
  Epochs& epochs;                                 ///< Guards the tables.
};

/// The blocks of one target, by the engine's own hashes, and the keeping of the shared tables in
/// step with them. One thread at a time.
///
/// Invariants: an engine hash is in the map exactly while it has a copy in some tier. The target is
/// in the set of (tier, sequence hash) exactly while some engine hash of that content has a copy in
/// the tier; `aliases_` counts the engine hashes beyond the first.
class TargetBlocks {
 public:
  /// No blocks. `id` is the target in the tables.
  TargetBlocks(TargetId id, SharedTables shared)
      : id_(id), shared_(shared), blocks_(shared.budget) {}

  /// Stores a chain. Returns the blocks stored: fewer than all when memory ran out; nothing when
  /// the parent is unknown.
  std::optional<std::size_t> store(Tier tier, std::optional<EngineHash> parent,
                                   std::span<const StoredBlock> blocks);
  /// Adds blocks as they are. Returns how many there was memory for.
  std::size_t restore(std::span<const HeldBlock> blocks);
  /// Removes one copy of each; returns the copies removed.
  std::size_t remove(Tier tier, std::span<const EngineHash> blocks);
  /// Removes everything and gives the memory back.
  void clear();
  /// Appends every block held.
  void snapshot(std::vector<HeldBlock>& out) const;

  /// Engine hashes held.
  std::size_t size() const { return blocks_.size(); }
  /// What happened so far.
  const IndexCounts& counts() const { return counts_; }
  /// Sets of a tier that gained this target minus those that lost it, since the last call.
  std::ptrdiff_t take_change(Tier tier);

 private:
  bool put(EngineHash engine, SequenceHash sequence, Tier tier, std::uint32_t copies);
  bool gain(SequenceHash sequence, Tier tier);
  void lose(SequenceHash sequence, Tier tier);
  void lose_all(std::size_t position);
  TierCopies copies_of(std::size_t position) const;
  bool set_copies(std::size_t position, const TierCopies& copies);
  void forget_copies(std::size_t position);
  BlockTable::Place place_in_table(SequenceHash sequence, Tier tier) const;

  TargetId id_;
  SharedTables shared_;
  BlockMap blocks_;  // engine hash → sequence hash; the mark says how many copies
  std::unordered_map<std::uint64_t, TierCopies> many_copies_;  // what a mark cannot say
  std::array<std::unordered_map<SequenceHash, std::uint32_t>, kIndexedTiers> aliases_;
  std::array<std::ptrdiff_t, kIndexedTiers> changes_{};
  IndexCounts counts_;
};

}  // namespace fairlead::kv
