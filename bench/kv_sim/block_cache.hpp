#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/hashes.hpp"

namespace fairlead::kv_sim {

/// Index of a physical block.
using BlockId = std::uint32_t;

/// The paged KV cache of one virtual engine, after vLLM's: blocks are counted references; a block
/// without references keeps its content until it is needed, least recently freed first. Unlike
/// `mock::BlockPool` it keeps no tokens, so that a thousand of them fit into memory, and no content
/// twice: a block that turns out to be a copy is given up for the one there is.
class BlockCache {
 public:
  explicit BlockCache(std::uint32_t blocks);

  /// Appends the blocks that hold the longest cached prefix of `hashes`, with one reference more.
  void acquire_prefix(std::span<const kv::SequenceHash> hashes, std::vector<BlockId>& out);
  /// Appends `count` blocks with one reference each to `out`; what they held is gone and appended
  /// to `evicted`. False, with nothing changed, when fewer are free.
  bool allocate(std::uint32_t count, std::vector<BlockId>& out,
                std::vector<kv::EngineHash>& evicted);
  /// Publishes a block's content. When another block has it already, the caller's reference moves
  /// to that one, which is returned.
  BlockId publish(BlockId id, kv::SequenceHash hash);
  /// Takes one reference from each block, the last first, so that a sequence's end is evicted
  /// before its beginning. Blocks that hold nothing of use are handed out again first.
  void release(std::span<const BlockId> blocks);

  /// Blocks, used or not.
  std::uint32_t size() const { return static_cast<std::uint32_t>(blocks_.size() - 1); }
  /// Blocks without references.
  std::uint32_t free() const { return free_; }
  /// Blocks whose content can be found.
  std::uint32_t published() const { return published_; }
  /// True when a content can be found.
  bool holds(kv::SequenceHash hash) const { return slots_[slot_of(hash)] != kNone; }

 private:
  static constexpr BlockId kNone = 0;  // block 0 doubles as both ends of the free list

  struct Block {
    kv::SequenceHash hash = 0;  // 0 = holds nothing of use
    std::uint32_t references = 0;
    BlockId previous = kNone;
    BlockId next = kNone;
  };

  void free_before(BlockId next, BlockId id);
  void unlink_free(BlockId id);
  std::size_t slot_of(kv::SequenceHash hash) const;
  void forget(kv::SequenceHash hash);

  std::vector<Block> blocks_;
  std::vector<BlockId> slots_;  // by hash, linear probing, at most half full
  std::size_t mask_ = 0;
  std::uint32_t free_ = 0;
  std::uint32_t published_ = 0;
};

}  // namespace fairlead::kv_sim
