#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>

#include "kv/slots.hpp"
#include "kv/table_memory.hpp"

namespace fairlead::kv {

/// Bytes of an index's own structures, held to a limit. Any thread.
class MemoryBudget {
 public:
  /// A budget of `limit` bytes, all of it free.
  explicit MemoryBudget(std::size_t limit) : limit_(limit) {}

  /// Takes `bytes`; false, and nothing taken, when that would exceed the limit.
  bool take(std::size_t bytes) {
    std::size_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > limit_ || used > limit_ - bytes) {
        return false;
      }
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }

  /// Takes `bytes` and allocates them; null when there are none. Multiples of a cache line begin
  /// at one.
  void* allocate(std::size_t bytes) {
    if (!take(bytes)) {
      return nullptr;
    }
    void* memory = nullptr;
    if (is_table(bytes)) {
      memory = tables_.allocate(bytes);
    } else {
      memory = bytes % kCacheLine == 0 ? std::aligned_alloc(kCacheLine, bytes) : std::malloc(bytes);
    }
    if (!memory) {
      give(bytes);
    }
    return memory;
  }

  /// Frees and gives back what `allocate` gave.
  void release(void* memory, std::size_t bytes) {
    if (is_table(bytes)) {
      tables_.release(memory, bytes);
    } else {
      std::free(memory);
    }
    give(bytes);
  }

  /// Gives back what was taken.
  void give(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// Bytes taken now.
  std::size_t used() const { return used_.load(std::memory_order_relaxed); }
  /// The limit.
  std::size_t limit() const { return limit_; }

 private:
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
  // The sanitizer watches what comes from `malloc`.
  static bool is_table(std::size_t) { return false; }
#else
  static bool is_table(std::size_t bytes) { return bytes >= TableMemory::kLeast; }
#endif

  TableMemory tables_;
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

}  // namespace fairlead::kv
