#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kv/epochs.hpp"
#include "kv/memory_budget.hpp"

namespace fairlead::kv {

/// One (worker, rank) of a worker set, by a small number that its index gives out.
using TargetId = std::uint16_t;

/// Targets an index can hold at most: an id takes 15 bits.
inline constexpr std::size_t kMaxTargets = std::size_t{1} << 15U;

/// Where sets take their memory from and leave what readers may still see.
struct SetMemory {
  MemoryBudget& budget;  ///< Bytes.
  Epochs& epochs;        ///< Replaced sets.
};

/// A set of targets that outgrew its word: a list of ids or, when that would be larger, a bitmap.
/// Its kind and size never change; its members change in place. Readers may be at it meanwhile.
class LargeSet {
 public:
  /// Words of a bitmap; 0 for a list.
  std::size_t bitmap_words() const { return bitmap_words_; }
  /// One word of a bitmap.
  std::uint64_t bitmap_word(std::size_t i) const {
    return bits()[i].load(std::memory_order_relaxed);
  }
  /// Places of a list.
  std::size_t list_places() const { return list_places_; }
  /// One place of a list: a target + 1, or 0 when free. A reader may meet a target at two places if
  /// it was removed and added meanwhile.
  std::uint16_t list_place(std::size_t i) const { return ids()[i].load(std::memory_order_relaxed); }
  /// True when `target` is in the bitmap.
  bool bitmap_has(TargetId target) const {
    const std::size_t word = target / 64U;
    return word < bitmap_words_ && (bitmap_word(word) >> (target % 64U) & 1U) != 0;
  }

  /// An empty list; null when the budget is spent.
  static LargeSet* make_list(std::size_t places, SetMemory& memory);
  /// An empty bitmap; null when the budget is spent.
  static LargeSet* make_bitmap(std::size_t words, SetMemory& memory);

  /// Bytes of its memory.
  std::size_t bytes() const;
  /// Members; for the writer only.
  std::size_t size() const { return size_; }
  /// True when `target` is a member.
  bool has(TargetId target) const;
  /// Adds a target that is no member; false when there is no place for it.
  bool add(TargetId target);
  /// Removes a member.
  void remove(TargetId target);
  /// Calls `use(target)` for every member.
  template <class Use>
  void for_each(Use&& use) const {
    for (std::size_t i = 0; i < list_places_; ++i) {
      if (const std::uint16_t id = list_place(i); id != 0) {
        use(static_cast<TargetId>(id - 1));
      }
    }
    for (std::size_t i = 0; i < bitmap_words_; ++i) {
      for (std::uint64_t word = bitmap_word(i); word != 0; word &= word - 1) {
        use(static_cast<TargetId>(i * 64 + static_cast<std::size_t>(std::countr_zero(word))));
      }
    }
  }

 private:
  LargeSet(std::size_t words, std::size_t places)
      : bitmap_words_(static_cast<std::uint32_t>(words)),
        list_places_(static_cast<std::uint32_t>(places)) {}

  const std::atomic<std::uint64_t>* bits() const {
    return reinterpret_cast<const std::atomic<std::uint64_t>*>(this + 1);
  }
  std::atomic<std::uint64_t>* bits() {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(this + 1);
  }
  const std::atomic<std::uint16_t>* ids() const {
    return reinterpret_cast<const std::atomic<std::uint16_t>*>(this + 1);
  }
  std::atomic<std::uint16_t>* ids() {
    return reinterpret_cast<std::atomic<std::uint16_t>*>(this + 1);
  }

  const std::uint32_t bitmap_words_;
  const std::uint32_t list_places_;
  std::uint64_t size_ = 0;
};

/// A set of targets in one word: 0 is the empty set; with the low bits 1 to 4 so many ids of 15
/// bits follow, in ascending order; anything else points to a LargeSet.
namespace set_word {

/// Ids that fit in the word.
inline constexpr unsigned kInline = 4;

/// True when the word points to a LargeSet.
constexpr bool is_large(std::uint64_t word) { return (word & 0xFU) == 0 && word != 0; }
/// The LargeSet of such a word.
inline LargeSet* large(std::uint64_t word) {
  return reinterpret_cast<LargeSet*>(word);  // NOLINT(performance-no-int-to-ptr): a tagged word
}
/// Ids in any other word.
constexpr unsigned inline_size(std::uint64_t word) { return static_cast<unsigned>(word & 0xFU); }
/// Id `i` of such a word.
constexpr TargetId inline_id(std::uint64_t word, unsigned i) {
  return static_cast<TargetId>(word >> (4U + 15U * i) & (kMaxTargets - 1));
}

/// What `add` did.
enum class Added : std::uint8_t { New, Present, NoMemory };

/// Adds a target. One writer at a time.
Added add(std::atomic<std::uint64_t>& word, TargetId target, SetMemory& memory);
/// Removes a target; false when it was no member. One writer at a time.
bool remove(std::atomic<std::uint64_t>& word, TargetId target, SetMemory& memory);

}  // namespace set_word

}  // namespace fairlead::kv
