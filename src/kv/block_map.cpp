#include "kv/block_map.hpp"

#include <cstdlib>
#include <cstring>

namespace fairlead::kv {

BlockMap::Slot* BlockMap::find(std::uint64_t hash) {
  if (capacity_ == 0) {
    return nullptr;
  }
  const std::uint64_t key = slot_key(hash);
  std::size_t i = slot_of(mix_hash(key), capacity_);
  while (slots_[i].key != key) {
    if (slots_[i].key == 0) {
      return nullptr;
    }
    i = i + 1 == capacity_ ? 0 : i + 1;
  }
  return slots_ + i;
}

BlockMap::Slot* BlockMap::find_or_add(std::uint64_t hash, bool& added) {
  const std::uint64_t key = slot_key(hash);
  added = false;
  for (bool grown = false;; grown = true) {
    std::size_t i = 0;
    if (capacity_ > 0) {
      i = slot_of(mix_hash(key), capacity_);
      while (slots_[i].key != 0) {
        if (slots_[i].key == key) {
          return slots_ + i;
        }
        i = i + 1 == capacity_ ? 0 : i + 1;
      }
    }
    if (size_ < slots_usable(capacity_)) {
      slots_[i] = {key, 0};
      ++size_;
      added = true;
      return slots_ + i;
    }
    if (grown || !resize(slots_above(capacity_))) {
      return nullptr;
    }
  }
}

void BlockMap::set_mark(const Slot* slot, std::uint8_t mark) {
  std::uint8_t& old = marks_[slot - slots_];
  marked_ += mark != 0 ? 1U : 0U;
  marked_ -= old != 0 ? 1U : 0U;
  old = mark;
}

void BlockMap::erase(Slot* slot) {
  if (marked_ > 0) {
    set_mark(slot, 0);
  }
  std::size_t hole = static_cast<std::size_t>(slot - slots_);
  for (std::size_t i = hole;;) {
    i = i + 1 == capacity_ ? 0 : i + 1;
    if (slots_[i].key == 0) {
      break;
    }
    // An entry may fill the hole unless its search would start behind it.
    const std::size_t home = slot_of(mix_hash(slots_[i].key), capacity_);
    const std::size_t from_home = i >= home ? i - home : i + capacity_ - home;
    const std::size_t from_hole = i >= hole ? i - hole : i + capacity_ - hole;
    if (from_home >= from_hole) {
      slots_[hole] = slots_[i];
      if (marked_ > 0) {
        marks_[hole] = marks_[i];
        marks_[i] = 0;
      }
      hole = i;
    }
  }
  slots_[hole] = {0, 0};
  --size_;
  if (size_ == 0) {
    release();
  } else if (size_ < capacity_ / 3) {
    if (const std::size_t enough = slots_for(size_ + size_ / 8 + 1); enough < capacity_) {
      resize(enough);
    }
  }
}

bool BlockMap::resize(std::size_t capacity) {
  void* const memory = budget_.allocate(bytes(capacity));
  if (!memory) {
    return false;
  }
  std::memset(memory, 0, bytes(capacity));
  auto* const slots = static_cast<Slot*>(memory);
  auto* const marks = reinterpret_cast<std::uint8_t*>(slots + capacity);
  for (std::size_t i = 0; i < capacity_; ++i) {
    if (slots_[i].key == 0) {
      continue;
    }
    std::size_t to = slot_of(mix_hash(slots_[i].key), capacity);
    while (slots[to].key != 0) {
      to = to + 1 == capacity ? 0 : to + 1;
    }
    slots[to] = slots_[i];
    if (marked_ > 0) {
      marks[to] = marks_[i];
    }
  }
  std::free(slots_);
  budget_.give(bytes(capacity_));
  slots_ = slots;
  marks_ = marks;
  capacity_ = capacity;
  return true;
}

void BlockMap::release() {
  std::free(slots_);
  budget_.give(bytes(capacity_));
  slots_ = nullptr;
  marks_ = nullptr;
  capacity_ = size_ = marked_ = 0;
}

}  // namespace fairlead::kv
