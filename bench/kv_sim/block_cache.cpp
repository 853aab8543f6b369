#include "kv_sim/block_cache.hpp"

#include <algorithm>
#include <bit>
#include <ranges>

namespace fairlead::kv_sim {

BlockCache::BlockCache(std::uint32_t blocks)
    : blocks_(std::size_t{blocks} + 1),
      slots_(std::bit_ceil(std::size_t{blocks} * 2 + 2)),
      mask_(slots_.size() - 1) {
  for (BlockId id = 1; id <= blocks; ++id) {
    free_before(kNone, id);
  }
}

// The list is a ring through block 0: before it is the end, behind it the beginning.
void BlockCache::free_before(BlockId next, BlockId id) {
  const BlockId previous = blocks_[next].previous;
  blocks_[id].previous = previous;
  blocks_[id].next = next;
  blocks_[previous].next = id;
  blocks_[next].previous = id;
  ++free_;
}

void BlockCache::unlink_free(BlockId id) {
  const Block& block = blocks_[id];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
  --free_;
}

// The slot of a hash, or the empty one where it would be put.
std::size_t BlockCache::slot_of(kv::SequenceHash hash) const {
  std::size_t slot = hash & mask_;
  while (slots_[slot] != kNone && blocks_[slots_[slot]].hash != hash) {
    slot = (slot + 1) & mask_;
  }
  return slot;
}

void BlockCache::forget(kv::SequenceHash hash) {
  std::size_t hole = slot_of(hash);
  // Entries behind the hole move up unless that is before their first slot.
  for (std::size_t slot = (hole + 1) & mask_; slots_[slot] != kNone; slot = (slot + 1) & mask_) {
    const std::size_t home = blocks_[slots_[slot]].hash & mask_;
    if (((slot - home) & mask_) >= ((slot - hole) & mask_)) {
      slots_[hole] = slots_[slot];
      hole = slot;
    }
  }
  slots_[hole] = kNone;
  --published_;
}

void BlockCache::acquire_prefix(std::span<const kv::SequenceHash> hashes,
                                std::vector<BlockId>& out) {
  for (const kv::SequenceHash hash : hashes) {
    const BlockId id = slots_[slot_of(hash)];
    if (id == kNone) {
      return;
    }
    if (blocks_[id].references++ == 0) {
      unlink_free(id);
    }
    out.push_back(id);
  }
}

bool BlockCache::allocate(std::uint32_t count, std::vector<BlockId>& out,
                          std::vector<kv::EngineHash>& evicted) {
  if (count > free_) {
    return false;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const BlockId id = blocks_[kNone].next;
    Block& block = blocks_[id];
    unlink_free(id);
    if (block.hash != 0) {
      forget(block.hash);
      evicted.push_back(block.hash);
      block.hash = 0;
    }
    block.references = 1;
    out.push_back(id);
  }
  return true;
}

BlockId BlockCache::publish(BlockId id, kv::SequenceHash hash) {
  const std::size_t slot = slot_of(hash);
  const BlockId there = slots_[slot];
  if (there == kNone) {
    slots_[slot] = id;
    blocks_[id].hash = hash;
    ++published_;
    return id;
  }
  if (blocks_[there].references++ == 0) {
    unlink_free(there);
  }
  release({&id, 1});
  return there;
}

void BlockCache::release(std::span<const BlockId> blocks) {
  for (const BlockId id : std::views::reverse(blocks)) {
    if (--blocks_[id].references == 0) {
      free_before(blocks_[id].hash != 0 ? kNone : blocks_[kNone].next, id);
    }
  }
}

}  // namespace fairlead::kv_sim
