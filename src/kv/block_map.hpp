#pragma once

#include <cstddef>
#include <cstdint>

#include "kv/memory_budget.hpp"
#include "kv/slots.hpp"

namespace fairlead::kv {

/// Hash → a 64-bit value and a small mark, for one target: a flat table with linear probing, 17
/// bytes a slot. Not thread-safe. Memory comes from a budget; entries move when others come or go.
class BlockMap {
 public:
  /// One entry's key and value.
  struct Slot {
    std::uint64_t key;    ///< As `slot_key` gives it; 0 when the slot is free.
    std::uint64_t value;  ///< The user's.
  };

  /// An empty map; takes nothing from `budget`, which outlives it, before the first entry.
  explicit BlockMap(MemoryBudget& budget) : budget_(budget) {}
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;
  ~BlockMap() { release(); }

  /// Entries.
  std::size_t size() const { return size_; }
  /// Slots; entries are in some of them.
  std::size_t capacity() const { return capacity_; }
  /// A slot by its position.
  const Slot& slot(std::size_t i) const { return slots_[i]; }

  /// Fetches the place of `hash` into the cache.
  void prefetch(std::uint64_t hash) const {
    if (capacity_ > 0) {
      const std::size_t i = slot_of(mix_hash(slot_key(hash)), capacity_);
      __builtin_prefetch(slots_ + i, 1);
      __builtin_prefetch(slots_ + i + 4, 1);
      if (marked_ > 0) {
        __builtin_prefetch(marks_ + i);
      }
    }
  }

  /// The entry of `hash`, or null.
  Slot* find(std::uint64_t hash);
  /// The same, looking first at the position where it was before others came or went.
  Slot* find_near(std::uint64_t hash, std::size_t position) {
    return position < capacity_ && slots_[position].key == slot_key(hash) ? slots_ + position
                                                                          : find(hash);
  }
  /// Where an entry is now.
  std::size_t position(const Slot* slot) const { return static_cast<std::size_t>(slot - slots_); }
  /// The entry of `hash`, made with value 0 and mark 0 when there is none; null without memory.
  Slot* find_or_add(std::uint64_t hash, bool& added);
  /// Removes an entry. Other entries may move.
  void erase(Slot* slot);

  /// An entry's mark.
  std::uint8_t mark(const Slot* slot) const {
    return marked_ > 0 ? marks_[slot - slots_] : std::uint8_t{0};
  }
  /// Sets an entry's mark.
  void set_mark(const Slot* slot, std::uint8_t mark);

  /// Removes everything and gives the memory back.
  void release();

 private:
  bool resize(std::size_t capacity);
  static std::size_t bytes(std::size_t capacity) { return capacity * (sizeof(Slot) + 1); }

  MemoryBudget& budget_;
  Slot* slots_ = nullptr;
  std::uint8_t* marks_ = nullptr;  // behind the slots
  std::size_t capacity_ = 0;
  std::size_t size_ = 0;
  std::size_t marked_ = 0;  // entries with a mark; with none the marks are not touched
};

}  // namespace fairlead::kv
