#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kv/target_set.hpp"

namespace fairlead::kv {

/// Which targets take part in answers. Written by one thread at a time, read by all.
class TargetMask {
 public:
  /// A mask of `targets` targets, none of which takes part.
  explicit TargetMask(std::size_t targets)
      : bits_(std::make_unique<std::atomic<std::uint64_t>[]>((targets + 63) / 64)) {}

  /// Words up to the highest target that ever took part.
  std::size_t words() const { return words_.load(std::memory_order_acquire); }
  /// One of these words.
  std::uint64_t word(std::size_t i) const { return bits_[i].load(std::memory_order_relaxed); }
  /// True when the target takes part.
  bool has(TargetId target) const {
    return target / 64U < words() && (word(target / 64U) >> (target % 64U) & 1U) != 0;
  }
  /// Lets a target take part, or not.
  void set(TargetId target, bool on) {
    const std::uint64_t bit = std::uint64_t{1} << (target % 64U);
    std::atomic<std::uint64_t>& word = bits_[target / 64U];
    const std::uint64_t old = word.load(std::memory_order_relaxed);
    word.store(on ? old | bit : old & ~bit, std::memory_order_relaxed);
    if (on && words() <= target / 64U) {
      words_.store(target / 64U + 1U, std::memory_order_release);
    }
  }

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> bits_;
  std::atomic<std::size_t> words_{0};
};

}  // namespace fairlead::kv
