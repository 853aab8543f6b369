#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kv/memory_budget.hpp"

namespace fairlead::kv {

/// Frees what writers replaced once no reader can still hold it.
///
/// A reader publishes the epoch it started in; a replaced object is freed when every active reader
/// started in a later epoch than the one in which the object was unlinked. Publishing, unlinking
/// and reading shared pointers are sequentially consistent: either the writer sees the reader, or
/// the reader sees the new pointer.
class Epochs {
 public:
  /// What is freed goes back to `budget`.
  explicit Epochs(MemoryBudget& budget) : budget_(budget) {}
  Epochs(const Epochs&) = delete;
  Epochs& operator=(const Epochs&) = delete;
  /// No reader may be active.
  ~Epochs();

  /// A reader's stay; what it reads is not freed before it is gone.
  class Guard {
   public:
    /// Ends the stay in `slot`.
    explicit Guard(std::atomic<std::uint64_t>& slot) : slot_(slot) {}
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard() { slot_.store(0, std::memory_order_release); }

   private:
    std::atomic<std::uint64_t>& slot_;
  };

  /// Starts a reader's stay. Never blocks with fewer than `kSlots` readers at once.
  Guard enter() const;

  /// Hands over memory of the budget that no new reader can reach; counted as used until freed.
  void retire(void* memory, std::size_t bytes);

  /// Frees what no reader can hold any more.
  void collect();

  /// Names this moment for `passed`: what was unlinked before it.
  std::uint64_t now() const { return epoch_.load(std::memory_order_seq_cst); }

  /// True when every reader that had started by `moment` is gone.
  bool passed(std::uint64_t moment);

  /// Bytes waiting to be freed.
  std::size_t pending_bytes() const { return pending_bytes_.load(std::memory_order_relaxed); }

  /// Readers that can be active at once before further ones wait.
  static constexpr std::size_t kSlots = 64;

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> epoch{0};  // 0 = no reader
  };
  struct Retired {
    void* memory;
    std::size_t bytes;
    std::uint64_t epoch;
  };

  std::uint64_t oldest_reader() const;
  void collect_locked();

  MemoryBudget& budget_;
  std::atomic<std::uint64_t> epoch_{1};
  mutable std::array<Slot, kSlots> slots_;
  std::mutex mutex_;
  std::vector<Retired> retired_;  // in the order of their epochs
  std::size_t collect_at_ = 0;    // entries
  std::size_t collect_bytes_ = 0;
  std::atomic<std::size_t> pending_bytes_{0};
};

}  // namespace fairlead::kv
