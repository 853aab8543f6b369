#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kv/memory_budget.hpp"
#include "kv/slots.hpp"

namespace fairlead::kv {

/// Hash → a 64-bit value and a small mark, for one target: a flat table in buckets of one cache
/// line, 17 bytes a slot. Not thread-safe. Memory comes from a budget; entries move when others
/// come or go.
///
/// Invariants: the used slots of a bucket come first, and every bucket between an entry's own and
/// the one where it lies is full.
class BlockMap {
 public:
  /// No position.
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  /// An empty map; takes nothing from `budget`, which outlives it, before the first entry.
  explicit BlockMap(MemoryBudget& budget) : budget_(budget) {}
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;
  ~BlockMap() { release(); }

  /// Entries.
  std::size_t size() const { return size_; }
  /// Slots; entries are in some of them, by position.
  std::size_t capacity() const { return buckets_ * kBucketSlots; }

  /// Fetches the place of `hash` into the cache.
  void prefetch(std::uint64_t hash) const {
    if (buckets_ > 0) {
      const std::size_t bucket = home(slot_key(hash));
      __builtin_prefetch(data_ + bucket, 1);
      __builtin_prefetch(data_ + next(bucket), 1);
      if (marked_ > 0) {
        __builtin_prefetch(marks_ + bucket * kBucketSlots);
      }
    }
  }
  /// Looks at what was fetched and fetches what comes behind it, if a search goes on there.
  void prefetch_further(std::uint64_t hash) const {
    if (buckets_ > 0) {
      const std::size_t second = next(home(slot_key(hash)));
      if (full(data_[second])) {
        const std::size_t third = next(second);
        __builtin_prefetch(data_ + third, 1);
        __builtin_prefetch(data_ + next(third), 1);
      }
    }
  }
  /// The position of the entry of `hash`, or `kNone`.
  std::size_t find(std::uint64_t hash) const;
  /// The same, looking first where it was before others came or went.
  std::size_t find_near(std::uint64_t hash, std::size_t position) const {
    return position < capacity() && key(position) == slot_key(hash) ? position : find(hash);
  }
  /// The position of the entry of `hash`, made with value 0 and mark 0 when there is none; `kNone`
  /// without memory.
  std::size_t find_or_add(std::uint64_t hash, bool& added);
  /// Removes an entry. Other entries may move.
  void erase(std::size_t position);

  /// The key at a position, as `slot_key` gives it; 0 when the slot is free.
  std::uint64_t key(std::size_t position) const {
    return data_[position / kBucketSlots].keys[position % kBucketSlots];
  }
  /// An entry's value.
  std::uint64_t value(std::size_t position) const {
    return data_[position / kBucketSlots].values[position % kBucketSlots];
  }
  /// Sets an entry's value.
  void set_value(std::size_t position, std::uint64_t value) {
    data_[position / kBucketSlots].values[position % kBucketSlots] = value;
  }
  /// An entry's mark.
  std::uint8_t mark(std::size_t position) const {
    return marked_ > 0 ? marks_[position] : std::uint8_t{0};
  }
  /// Sets an entry's mark.
  void set_mark(std::size_t position, std::uint8_t mark);

  /// Removes everything and gives the memory back.
  void release();

 private:
  struct alignas(kCacheLine) Bucket {
    std::array<std::uint64_t, kBucketSlots> keys;
    std::array<std::uint64_t, kBucketSlots> values;
  };

  static std::size_t bytes(std::size_t buckets) {
    const std::size_t exact = buckets * (sizeof(Bucket) + kBucketSlots);
    return (exact + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  static bool full(const Bucket& bucket) { return bucket.keys.back() != 0; }
  std::size_t home(std::uint64_t key) const { return bucket_of(mix_hash(key), buckets_); }
  std::size_t next(std::size_t bucket) const { return bucket + 1 == buckets_ ? 0 : bucket + 1; }
  std::size_t overflowed(std::size_t bucket) const;
  void copy(std::size_t from, std::size_t to);
  bool resize(std::size_t capacity);

  MemoryBudget& budget_;
  Bucket* data_ = nullptr;
  std::uint8_t* marks_ = nullptr;  // behind the buckets
  std::size_t buckets_ = 0;
  std::size_t size_ = 0;
  std::size_t marked_ = 0;  // entries with a mark; with none the marks are not touched
};

}  // namespace fairlead::kv
