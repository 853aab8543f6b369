#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "kv/hashes.hpp"
#include "kv/slots.hpp"
#include "kv/target_set.hpp"

namespace fairlead::kv {

/// Sequence hash → set of targets: one flat hash table in shards, linear probing, 16 bytes a slot.
///
/// Readers take no lock: they read a slot's key, its set, and its key again, under an epoch guard.
/// Writers take one shard's mutex for one block. Invariants:
/// - Entries never move inside a table; a shard that grows, shrinks or sheds dead slots gets a new
///   table, and the old one is freed by epochs. So a reader that holds a table sees every block
///   that stays in the index while it reads.
/// - A slot whose set became empty is dead: it keeps its key until another block takes the slot, or
///   becomes free at once when the slot behind it is free.
/// - A slot taken over gets its key before its set; hence the second look at the key.
/// - At least 1/16 of a table's slots are free, so every search ends.
class BlockTable {
 public:
  /// A block's first slot in the table that was current when it was looked up.
  struct Place {
    const void* slots;     ///< Table; null when its shard is empty.
    std::size_t capacity;  ///< Slots.
    std::size_t first;     ///< Where the search starts.
    std::uint64_t key;     ///< What is searched.
  };

  /// An empty table whose bytes come from `memory`, which outlives it.
  explicit BlockTable(SetMemory memory) : memory_(memory) {}
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  /// No reader and no writer may be active.
  ~BlockTable();

  /// Finds a block's place and fetches it into the cache. Under an epoch guard, or for `prefetch`'s
  /// sake only.
  Place place(SequenceHash hash) const;
  /// The set word at a place: `set_word`. Under the guard under which the place was found.
  std::uint64_t find(const Place& place) const;

  /// Adds a target to a block's set.
  set_word::Added add(SequenceHash hash, TargetId target);
  /// Removes a target from a block's set; false when it was not there.
  bool remove(SequenceHash hash, TargetId target);
  /// Gives back slots that the blocks do not need, shard by shard.
  void compact();

  /// Blocks held by at least one target. Takes every shard's mutex in turn.
  std::size_t blocks() const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> key;  // 0 = free
    std::atomic<std::uint64_t> set;  // 0 = dead or free
  };
  struct Table {
    std::size_t capacity;
    Slot* slots() { return reinterpret_cast<Slot*>(this + 1); }
    const Slot* slots() const { return reinterpret_cast<const Slot*>(this + 1); }
    static std::size_t bytes(std::size_t capacity) {
      return sizeof(Table) + capacity * sizeof(Slot);
    }
    std::size_t padding = 0;  // the slots are aligned like malloc's memory
  };
  struct alignas(64) Shard {
    std::atomic<Table*> table{nullptr};
    mutable std::mutex mutex;
    std::size_t live = 0;  // slots with a set
    std::size_t dead = 0;  // slots with a key but no set
  };

  static constexpr unsigned kShardBits = 6;

  static std::size_t shard_of(std::uint64_t spread) { return spread >> (64U - kShardBits); }

  bool rebuild(Shard& shard, std::size_t capacity);
  bool make_room(Shard& shard);
  static Slot* search(const Shard& shard, std::uint64_t key, Slot** vacant);
  static void bury(Shard& shard, Slot* slot);

  SetMemory memory_;
  std::array<Shard, std::size_t{1} << kShardBits> shards_;
};

}  // namespace fairlead::kv
