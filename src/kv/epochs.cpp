#include "kv/epochs.hpp"

#include <algorithm>
#include <limits>
#include <thread>

namespace fairlead::kv {
namespace {

constexpr std::size_t kCollectEntries = 256;
constexpr std::size_t kCollectBytes = std::size_t{1} << 20U;

// Threads start at different slots, so that each mostly has one to itself.
std::size_t first_slot() {
  static std::atomic<std::size_t> next{0};
  thread_local const std::size_t mine = next.fetch_add(1, std::memory_order_relaxed);
  return mine;
}

}  // namespace

Epochs::~Epochs() {
  for (const Retired& retired : retired_) {
    budget_.release(retired.memory, retired.bytes);
  }
}

Epochs::Guard Epochs::enter() const {
  for (std::size_t i = first_slot();; ++i) {
    std::atomic<std::uint64_t>& slot = slots_[i % kSlots].epoch;
    std::uint64_t free = 0;
    const std::uint64_t epoch = epoch_.load(std::memory_order_seq_cst);
    if (slot.compare_exchange_strong(free, epoch, std::memory_order_seq_cst)) {
      return Guard(slot);
    }
    if (i % kSlots == 0) {
      std::this_thread::yield();
    }
  }
}

std::uint64_t Epochs::oldest_reader() const {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const Slot& slot : slots_) {
    const std::uint64_t epoch = slot.epoch.load(std::memory_order_seq_cst);
    if (epoch != 0) {
      oldest = std::min(oldest, epoch);
    }
  }
  return oldest;
}

void Epochs::retire(void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (retired_.empty()) {
    collect_at_ = kCollectEntries;
    collect_bytes_ = kCollectBytes;
  }
  // Readers that come from now on do not count, among them this thread's next stay.
  retired_.push_back({memory, bytes, epoch_.fetch_add(1, std::memory_order_seq_cst)});
  pending_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  if (retired_.size() >= collect_at_ || pending_bytes() >= collect_bytes_) {
    collect_locked();
  }
}

void Epochs::collect() {
  const std::lock_guard lock(mutex_);
  collect_locked();
}

void Epochs::collect_locked() {
  const std::uint64_t oldest = oldest_reader();
  std::size_t freed = 0;
  std::size_t bytes = 0;
  while (freed < retired_.size() && retired_[freed].epoch < oldest) {
    budget_.release(retired_[freed].memory, retired_[freed].bytes);
    bytes += retired_[freed].bytes;
    ++freed;
  }
  retired_.erase(retired_.begin(), retired_.begin() + static_cast<std::ptrdiff_t>(freed));
  pending_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  // A reader that stays long must not make every further `retire` look for it.
  collect_at_ = std::max(kCollectEntries, 2 * retired_.size());
  collect_bytes_ = std::max(kCollectBytes, 2 * pending_bytes());
}

bool Epochs::passed(std::uint64_t moment) {
  if (now() <= moment) {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
  }
  return oldest_reader() > moment;
}

}  // namespace fairlead::kv
