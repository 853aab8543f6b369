#include "kv/table_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "kv/slots.hpp"

namespace fairlead::kv {
namespace {

constexpr std::uintptr_t round_up(std::uintptr_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): a place in a map
}

}  // namespace

TableMemory::~TableMemory() {
  for (const Mapping& mapping : mappings_) {
    munmap(mapping.memory, mapping.bytes);
  }
}

bool TableMemory::map(std::size_t bytes) {
  // A huge page more, so that the usable part can begin at one.
  const std::size_t usable = std::max<std::size_t>(kMapping, round_up(bytes, kHugePage));
  const std::size_t mapped = usable + kHugePage;
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  const std::uintptr_t start = round_up(reinterpret_cast<std::uintptr_t>(memory), kHugePage);
  madvise(pointer(start), usable, MADV_HUGEPAGE);  // without huge pages small ones do
  mappings_.push_back({memory, mapped});
  free_.emplace(start, usable);
  return true;
}

std::map<std::uintptr_t, std::size_t>::iterator TableMemory::smallest_for(std::size_t bytes) {
  auto best = free_.end();
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    if (range->second >= bytes && (best == free_.end() || range->second < best->second)) {
      best = range;
    }
  }
  return best;
}

void* TableMemory::allocate(std::size_t bytes) {
  bytes = round_up(bytes, kCacheLine);
  const std::lock_guard lock(mutex_);
  auto range = smallest_for(bytes);
  if (range == free_.end()) {
    if (!map(bytes)) {
      return nullptr;
    }
    range = smallest_for(bytes);
  }
  const auto [start, size] = *range;
  free_.erase(range);
  if (size > bytes) {
    free_.emplace(start + bytes, size - bytes);
  }
  used_ += bytes;
  return pointer(start);
}

void TableMemory::release(void* memory, std::size_t bytes) {
  bytes = round_up(bytes, kCacheLine);
  const std::lock_guard lock(mutex_);
  auto range = free_.emplace(reinterpret_cast<std::uintptr_t>(memory), bytes).first;
  const auto after = std::next(range);
  if (after != free_.end() && range->first + range->second == after->first) {
    range->second += after->second;
    free_.erase(after);
  }
  if (range != free_.begin()) {
    const auto before = std::prev(range);
    if (before->first + before->second == range->first) {
      before->second += range->second;
      free_.erase(range);
    }
  }
  used_ -= bytes;
  freed_ += bytes;
  if (freed_ > kTrimBytes + used_ / 16) {
    trim();
  }
}

void TableMemory::trim() {
  for (const auto& [start, size] : free_) {
    const std::uintptr_t first = round_up(start, kHugePage);
    const std::uintptr_t end = (start + size) / kHugePage * kHugePage;
    if (end > first) {
      madvise(pointer(first), end - first, MADV_DONTNEED);
    }
  }
  freed_ = 0;
}

}  // namespace fairlead::kv
