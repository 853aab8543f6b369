#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "kv/hashes.hpp"

namespace fairlead::kv {

/// The cache salts of an engine's salted blocks: engines name the salt only at a chain's first
/// block, so the blocks behind it inherit it from their parent. Bounded; a block is forgotten with
/// its last copy.
class NamespaceMemory {
 public:
  /// What is remembered of a block.
  struct Entry {
    std::uint64_t salt = 0;    ///< `salt_seed` of its salt.
    std::uint32_t copies = 0;  ///< Stored and not yet removed, over all tiers.
    bool ambiguous = false;    ///< Also seen under another salt or none.
    /// Equality of all.
    bool operator==(const Entry&) const = default;
  };

  /// Remembers at most `capacity` blocks.
  explicit NamespaceMemory(std::size_t capacity) : capacity_(capacity) {}

  /// The block's entry, or null for one that is unsalted or unknown.
  const Entry* find(EngineHash block) const {
    const auto found = entries_.find(block);
    return found == entries_.end() ? nullptr : &found->second;
  }

  /// Notes one more copy of a block stored under `salt` (0 = none). False when it would have to be
  /// remembered and the memory is full.
  bool store(EngineHash block, std::uint64_t salt) {
    auto found = entries_.find(block);
    if (found == entries_.end()) {
      if (salt == 0) {
        return true;
      }
      if (entries_.size() >= capacity_) {
        return false;
      }
      found = entries_.emplace(block, Entry{.salt = salt}).first;
    }
    Entry& entry = found->second;
    ++entry.copies;
    entry.ambiguous |= entry.salt != salt;
    return true;
  }

  /// Notes that one copy is gone.
  void remove(EngineHash block) {
    const auto found = entries_.find(block);
    if (found != entries_.end() && --found->second.copies == 0) {
      entries_.erase(found);
    }
  }

  /// Takes over an entry, in place of what is remembered of the block. False when it is full.
  bool restore(EngineHash block, const Entry& entry) {
    if (entries_.size() >= capacity_ && !entries_.contains(block)) {
      return false;
    }
    entries_.insert_or_assign(block, entry);
    return true;
  }

  /// Forgets everything.
  void clear() { entries_.clear(); }
  /// All entries by block, in no particular order.
  const std::unordered_map<EngineHash, Entry>& entries() const { return entries_; }
  /// Blocks remembered.
  std::size_t size() const { return entries_.size(); }
  /// True when no block is.
  bool empty() const { return entries_.empty(); }

 private:
  std::size_t capacity_;
  std::unordered_map<EngineHash, Entry> entries_;
};

}  // namespace fairlead::kv
