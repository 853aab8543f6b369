#include "kv/block_map.hpp"

#include <bit>
#include <cstring>

namespace fairlead::kv {

std::size_t BlockMap::find(std::uint64_t hash) const {
  if (buckets_ == 0) {
    return kNone;
  }
  const std::uint64_t key = slot_key(hash);
  for (std::size_t bucket = home(key);; bucket = next(bucket)) {
    if (const unsigned slots = words_with(data_[bucket].keys.data(), key); slots != 0) {
      return bucket * kBucketSlots + static_cast<std::size_t>(std::countr_zero(slots));
    }
    if (!full(data_[bucket])) {
      return kNone;
    }
  }
}

std::size_t BlockMap::find_or_add(std::uint64_t hash, bool& added) {
  const std::uint64_t key = slot_key(hash);
  added = false;
  for (bool grown = false;; grown = true) {
    std::size_t bucket = buckets_ > 0 ? home(key) : 0;
    for (; buckets_ > 0; bucket = next(bucket)) {
      if (const unsigned slots = words_with(data_[bucket].keys.data(), key); slots != 0) {
        return bucket * kBucketSlots + static_cast<std::size_t>(std::countr_zero(slots));
      }
      if (!full(data_[bucket])) {
        break;
      }
    }
    if (size_ < slots_usable(capacity())) {
      const unsigned free = words_with(data_[bucket].keys.data(), 0);
      const auto slot = static_cast<std::size_t>(std::countr_zero(free));
      data_[bucket].keys[slot] = key;
      data_[bucket].values[slot] = 0;
      ++size_;
      added = true;
      return bucket * kBucketSlots + slot;
    }
    if (grown || !resize(slots_above(capacity()))) {
      return kNone;
    }
  }
}

void BlockMap::set_mark(std::size_t position, std::uint8_t mark) {
  std::uint8_t& old = marks_[position];
  marked_ += mark != 0 ? 1U : 0U;
  marked_ -= old != 0 ? 1U : 0U;
  old = mark;
}

void BlockMap::copy(std::size_t from, std::size_t to) {
  data_[to / kBucketSlots].keys[to % kBucketSlots] = key(from);
  data_[to / kBucketSlots].values[to % kBucketSlots] = value(from);
  if (marked_ > 0) {
    marks_[to] = marks_[from];
  }
}

// An entry that lies behind a full bucket and might lie in it; `kNone` when there is none.
std::size_t BlockMap::overflowed(std::size_t bucket) const {
  std::size_t distance = 1;
  for (std::size_t at = next(bucket); at != bucket; at = next(at), ++distance) {
    for (std::size_t i = 0; i < kBucketSlots && data_[at].keys[i] != 0; ++i) {
      const std::size_t own = home(data_[at].keys[i]);
      if ((at >= own ? at - own : at + buckets_ - own) >= distance) {
        return at * kBucketSlots + i;
      }
    }
    if (!full(data_[at])) {
      break;
    }
  }
  return kNone;
}

void BlockMap::erase(std::size_t position) {
  if (marked_ > 0) {
    set_mark(position, 0);
  }
  // What had to go on behind a full bucket moves up, and so on from where it was.
  std::size_t hole = position;
  while (full(data_[hole / kBucketSlots])) {
    const std::size_t from = overflowed(hole / kBucketSlots);
    if (from == kNone) {
      break;
    }
    copy(from, hole);
    hole = from;
  }
  const std::size_t end = hole - hole % kBucketSlots + kBucketSlots;
  std::size_t last = hole;
  while (last + 1 < end && key(last + 1) != 0) {
    ++last;
  }
  copy(last, hole);
  data_[last / kBucketSlots].keys[last % kBucketSlots] = 0;
  if (marked_ > 0) {
    marks_[last] = 0;
  }
  --size_;
  if (size_ == 0) {
    release();
  } else if (size_ < capacity() / 3) {
    if (const std::size_t enough = slots_for(size_ + size_ / 8 + 1); enough < capacity()) {
      resize(enough);
    }
  }
}

bool BlockMap::resize(std::size_t capacity) {
  const std::size_t buckets = capacity / kBucketSlots;
  void* const memory = budget_.allocate(bytes(buckets));
  if (!memory) {
    return false;
  }
  std::memset(memory, 0, bytes(buckets));
  auto* const data = static_cast<Bucket*>(memory);
  auto* const marks = reinterpret_cast<std::uint8_t*>(data + buckets);
  for (std::size_t i = 0; i < this->capacity(); ++i) {
    if (key(i) == 0) {
      continue;
    }
    std::size_t to = bucket_of(mix_hash(key(i)), buckets);
    while (full(data[to])) {
      to = to + 1 == buckets ? 0 : to + 1;
    }
    const auto slot =
        static_cast<std::size_t>(std::countr_zero(words_with(data[to].keys.data(), 0)));
    data[to].keys[slot] = key(i);
    data[to].values[slot] = value(i);
    marks[to * kBucketSlots + slot] = mark(i);
  }
  budget_.release(data_, bytes(buckets_));
  data_ = data;
  marks_ = marks;
  buckets_ = buckets;
  return true;
}

void BlockMap::release() {
  budget_.release(data_, bytes(buckets_));
  data_ = nullptr;
  marks_ = nullptr;
  buckets_ = size_ = marked_ = 0;
}

}  // namespace fairlead::kv
