#include "kv/target_set.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <span>

namespace fairlead::kv {
namespace {

constexpr std::size_t kFirstList = 8;
constexpr std::size_t kLongestList = 64;
constexpr std::size_t kWordStep = 4;  // bitmaps grow by 256 targets

static_assert(sizeof(LargeSet) == 16, "members follow the header");

constexpr std::size_t bytes_of(std::size_t words, std::size_t places) {
  return sizeof(LargeSet) + words * sizeof(std::uint64_t) + places * sizeof(std::uint16_t);
}

constexpr std::size_t words_for(TargetId highest) {
  return (highest / 64U / kWordStep + 1) * kWordStep;
}

// Longest list worth having instead of a bitmap of `words`: half its size, so that a set that
// shrinks and grows around the limit does not change its kind at every step.
constexpr std::size_t longest_list(std::size_t words) {
  return std::clamp(std::bit_floor(words * 2), 2 * kFirstList, kLongestList);
}

}  // namespace

LargeSet* LargeSet::make_list(std::size_t places, SetMemory& memory) {
  void* const bytes = memory.budget.allocate(bytes_of(0, places));
  if (!bytes) {
    return nullptr;
  }
  auto* const set = new (bytes) LargeSet(0, places);
  for (std::size_t i = 0; i < places; ++i) {
    new (set->ids() + i) std::atomic<std::uint16_t>(0);
  }
  return set;
}

LargeSet* LargeSet::make_bitmap(std::size_t words, SetMemory& memory) {
  void* const bytes = memory.budget.allocate(bytes_of(words, 0));
  if (!bytes) {
    return nullptr;
  }
  auto* const set = new (bytes) LargeSet(words, 0);
  for (std::size_t i = 0; i < words; ++i) {
    new (set->bits() + i) std::atomic<std::uint64_t>(0);
  }
  return set;
}

std::size_t LargeSet::bytes() const { return bytes_of(bitmap_words_, list_places_); }

bool LargeSet::has(TargetId target) const {
  if (bitmap_words_ > 0) {
    return bitmap_has(target);
  }
  for (std::size_t i = 0; i < list_places_; ++i) {
    if (list_place(i) == target + 1U) {
      return true;
    }
  }
  return false;
}

bool LargeSet::add(TargetId target) {
  if (bitmap_words_ > 0) {
    const std::size_t i = target / 64U;
    if (i >= bitmap_words_) {
      return false;
    }
    bits()[i].store(bitmap_word(i) | std::uint64_t{1} << (target % 64U), std::memory_order_relaxed);
    ++size_;
    return true;
  }
  for (std::size_t i = 0; i < list_places_; ++i) {
    if (list_place(i) == 0) {
      ids()[i].store(static_cast<std::uint16_t>(target + 1), std::memory_order_relaxed);
      ++size_;
      return true;
    }
  }
  return false;
}

void LargeSet::remove(TargetId target) {
  --size_;
  if (bitmap_words_ > 0) {
    const std::size_t i = target / 64U;
    bits()[i].store(bitmap_word(i) & ~(std::uint64_t{1} << (target % 64U)),
                    std::memory_order_relaxed);
    return;
  }
  for (std::size_t i = 0; i < list_places_; ++i) {
    if (list_place(i) == target + 1U) {
      ids()[i].store(0, std::memory_order_relaxed);
      return;
    }
  }
}

namespace set_word {
namespace {

std::uint64_t pack(std::span<const TargetId> ids) {
  std::uint64_t word = ids.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    word |= std::uint64_t{ids[i]} << (4U + 15U * i);
  }
  return word;
}

void publish(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  word.store(value, std::memory_order_seq_cst);
}

// Puts `larger`, which takes over the members of `set`, in its place.
void replace(std::atomic<std::uint64_t>& word, LargeSet* set, LargeSet* with, SetMemory& memory) {
  set->for_each([with](TargetId target) { with->add(target); });
  publish(word, reinterpret_cast<std::uint64_t>(with));
  memory.epochs.retire(set, set->bytes());
}

Added add_large(std::atomic<std::uint64_t>& word, TargetId target, SetMemory& memory) {
  LargeSet* const set = large(word.load(std::memory_order_relaxed));
  if (set->has(target)) {
    return Added::Present;
  }
  if (set->add(target)) {
    return Added::New;
  }
  LargeSet* larger = nullptr;
  if (set->bitmap_words() > 0) {
    larger = LargeSet::make_bitmap(words_for(target), memory);
  } else {
    TargetId highest = target;
    set->for_each([&highest](TargetId id) { highest = std::max(highest, id); });
    const std::size_t words = words_for(highest);
    const std::size_t places = 2 * set->list_places();
    larger = places <= longest_list(words) ? LargeSet::make_list(places, memory)
                                           : LargeSet::make_bitmap(words, memory);
  }
  if (!larger) {
    return Added::NoMemory;
  }
  larger->add(target);
  replace(word, set, larger, memory);
  return Added::New;
}

// Gives memory back when few members are left. What cannot be had for the smaller set is no loss.
void shrink_large(std::atomic<std::uint64_t>& word, LargeSet* set, SetMemory& memory) {
  if (set->size() < kInline) {
    std::array<TargetId, kInline> ids;
    std::size_t count = 0;
    set->for_each([&](TargetId target) { ids[count++] = target; });
    std::sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    publish(word, pack(std::span(ids).first(count)));
    memory.epochs.retire(set, set->bytes());
    return;
  }
  const std::size_t places = std::max(kFirstList, std::bit_ceil(set->size() + set->size() / 2));
  const bool roomy = set->bitmap_words() > 0
                         ? 2 * set->size() <= longest_list(set->bitmap_words())
                         : 4 * set->size() <= set->list_places() && places < set->list_places();
  if (!roomy) {
    return;
  }
  if (LargeSet* const smaller = LargeSet::make_list(places, memory)) {
    replace(word, set, smaller, memory);
  }
}

}  // namespace

Added add(std::atomic<std::uint64_t>& word, TargetId target, SetMemory& memory) {
  const std::uint64_t old = word.load(std::memory_order_relaxed);
  if (is_large(old)) {
    return add_large(word, target, memory);
  }
  const unsigned size = inline_size(old);
  std::array<TargetId, kInline + 1> ids;
  unsigned at = 0;
  for (unsigned i = 0; i < size; ++i) {
    ids[i] = inline_id(old, i);
    if (ids[i] == target) {
      return Added::Present;
    }
    at += ids[i] < target ? 1U : 0U;
  }
  if (size < kInline) {
    std::copy_backward(ids.begin() + at, ids.begin() + size, ids.begin() + size + 1);
    ids[at] = target;
    word.store(pack(std::span(ids).first(size + 1)), std::memory_order_release);
    return Added::New;
  }
  LargeSet* const list = LargeSet::make_list(kFirstList, memory);
  if (!list) {
    return Added::NoMemory;
  }
  for (unsigned i = 0; i < size; ++i) {
    list->add(ids[i]);
  }
  list->add(target);
  publish(word, reinterpret_cast<std::uint64_t>(list));
  return Added::New;
}

bool remove(std::atomic<std::uint64_t>& word, TargetId target, SetMemory& memory) {
  const std::uint64_t old = word.load(std::memory_order_relaxed);
  if (is_large(old)) {
    LargeSet* const set = large(old);
    if (!set->has(target)) {
      return false;
    }
    set->remove(target);
    shrink_large(word, set, memory);
    return true;
  }
  std::array<TargetId, kInline> ids;
  unsigned left = 0;
  const unsigned size = inline_size(old);
  for (unsigned i = 0; i < size; ++i) {
    if (const TargetId id = inline_id(old, i); id != target) {
      ids[left++] = id;
    }
  }
  if (left == size) {
    return false;
  }
  word.store(left == 0 ? 0 : pack(std::span(ids).first(left)), std::memory_order_release);
  return true;
}

}  // namespace set_word

}  // namespace fairlead::kv
