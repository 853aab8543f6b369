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

/// Sequence hash → set of targets: one flat hash table in shards, in buckets of one cache line, 16
/// bytes a slot.
///
/// Readers take no lock: they read a slot's key, its set, and its key again, under an epoch guard.
/// Writers take one shard's lock for one block. Invariants:
/// - Entries never move inside a table; a shard that grows, shrinks or sheds dead slots gets a new
///   table, and the old one is freed by epochs. So a reader that holds a table sees every block
///   that stays in the index while it reads.
/// - Between a block's own bucket and the one where it lies no bucket has a free slot. Hence a
///   slot whose set became empty becomes free only when its bucket has another free one; else it is
///   dead, and keeps its key until another block takes it.
/// - A slot taken over gets its key before its set; hence the second look at the key.
/// - At least 1/16 of a table's slots are free, so every search ends.
class BlockTable {
 public:
  /// Where a search for a block goes on in the table that was current when it began.
  struct Place {
    const void* data = nullptr;  ///< Table; null when its shard is empty.
    std::size_t buckets = 0;     ///< Of it.
    std::size_t bucket = 0;      ///< The next to look at.
    std::size_t step = 0;        ///< From one to the next.
    std::size_t seen = 0;        ///< Buckets looked at.
    std::uint64_t key = 0;       ///< What is searched.
  };

  /// An empty table whose bytes come from `memory`, which outlives it.
  explicit BlockTable(SetMemory memory) : memory_(memory) {}
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;
  /// No reader and no writer may be active.
  ~BlockTable();

  /// Begins a search and fetches where the block probably is into the cache. Under an epoch guard,
  /// or for the fetching's sake only.
  Place place(SequenceHash hash) const;
  /// Looks at what was fetched: true when the search has ended, with the block's `set_word`; else
  /// fetches where it goes on. Under the guard under which it began.
  static bool look(Place& place, std::uint64_t& set);
  /// Looks at what was fetched, for a writer to come, and fetches where its search may go on.
  static void prefetch_further(Place& place);
  /// The set word at a place: the search to its end.
  static std::uint64_t find(Place place);

  /// Adds a target to a block's set.
  set_word::Added add(SequenceHash hash, TargetId target);
  /// Removes a target from a block's set; false when it was not there.
  bool remove(SequenceHash hash, TargetId target);
  /// Gives back slots that the blocks do not need, shard by shard.
  void compact();

  /// Blocks held by at least one target. Takes every shard's mutex in turn.
  std::size_t blocks() const;

 private:
  struct alignas(kCacheLine) Bucket {
    std::array<std::atomic<std::uint64_t>, kBucketSlots> keys;  // 0 = free
    std::array<std::atomic<std::uint64_t>, kBucketSlots> sets;  // 0 = dead or free
  };
  struct alignas(kCacheLine) Table {
    std::size_t buckets;
    Bucket* data() { return reinterpret_cast<Bucket*>(this + 1); }
    const Bucket* data() const { return reinterpret_cast<const Bucket*>(this + 1); }
    std::size_t capacity() const { return buckets * kBucketSlots; }
    static std::size_t bytes(std::size_t buckets) {
      return sizeof(Table) + buckets * sizeof(Bucket);
    }
  };
  // Where a writer's search ended.
  struct Spot {
    Bucket* bucket;  // the block's, or else the first with a slot for it
    unsigned slot;   // in the bucket
    bool found;      // the block's
  };
  static constexpr std::size_t kShards = 64;
  static constexpr std::size_t kFetched = 2;  // buckets fetched at once

  struct alignas(kCacheLine) Shard {
    std::atomic<Table*> table{nullptr};
    mutable std::mutex mutex;
    std::size_t live = 0;  // slots with a set
    std::size_t dead = 0;  // slots with a key but no set
  };

  bool rebuild(Shard& shard, std::size_t capacity);
  bool make_room(Shard& shard);
  static void fetch(const Place& place);
  static Spot search(Table& table, std::uint64_t key);
  static void bury(Shard& shard, const Spot& spot);

  SetMemory memory_;
  std::array<Shard, kShards> shards_;
};

}  // namespace fairlead::kv
