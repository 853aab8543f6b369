#include "mock/block_pool.hpp"

#include <xxhash.h>

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

namespace fairlead::mock {

void extend_block_hashes(std::vector<std::uint64_t>& hashes, std::span<const TokenId> tokens,
                         std::size_t block_size, const CacheKey& key) {
  // Hashes are never compared between engines, but equal content must give equal hashes in every
  // process, as vLLM's do; so the seeds are fixed.
  constexpr std::uint64_t kRoot = 0x6661697273656564ULL;
  const std::uint64_t lora = key.lora.empty() ? 0 : XXH3_64bits(key.lora.data(), key.lora.size());
  while ((hashes.size() + 1) * block_size <= tokens.size()) {
    const std::size_t begin = hashes.size() * block_size;
    std::uint64_t seed = hashes.empty() ? kRoot : hashes.back();
    if (hashes.empty() && !key.salt.empty()) {
      seed ^= XXH3_64bits_withSeed(key.salt.data(), key.salt.size(), 1);
    }
    const std::span<const TokenId> block = tokens.subspan(begin, block_size);
    hashes.push_back(XXH3_64bits_withSeed(block.data(), block.size_bytes(), seed ^ lora));
  }
}

void extend_page_hashes(std::vector<std::uint64_t>& hashes, Sha256Digest& digest,
                        std::span<const TokenId> tokens, std::size_t page_size,
                        std::string_view lora) {
  const std::uint64_t mask = adapter_mask(lora);
  while ((hashes.size() + 1) * page_size <= tokens.size()) {
    std::string input;
    input.reserve(digest.size() + page_size * sizeof(TokenId));
    if (!hashes.empty()) {
      input.append(digest.begin(), digest.end());
    }
    for (const TokenId token : tokens.subspan(hashes.size() * page_size, page_size)) {
      for (int shift = 0; shift < 32; shift += 8) {
        input.push_back(static_cast<char>(token >> shift & 0xFF));
      }
    }
    digest = sha256(input);
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < 8; ++i) {
      hash = hash << 8 | digest[i];
    }
    hashes.push_back(hash ^ mask);
  }
}

BlockPool::BlockPool(std::size_t blocks, std::size_t block_size, bool caching, BlockHashing hashing)
    : blocks_(std::max<std::size_t>(blocks, 2)),
      block_size_(block_size),
      caching_(caching),
      hashing_(hashing) {
  for (std::size_t id = 1; id < blocks_.size(); ++id) {
    free_before(kNone, static_cast<BlockId>(id));
  }
}

// The list is a ring through block 0: before it is the end, before its successor the beginning.
void BlockPool::free_before(BlockId next, BlockId id) {
  const BlockId previous = blocks_[next].previous;
  blocks_[id].previous = previous;
  blocks_[id].next = next;
  blocks_[previous].next = id;
  blocks_[next].previous = id;
  ++free_;
}

void BlockPool::unlink_free(BlockId id) {
  Block& block = blocks_[id];
  blocks_[block.previous].next = block.next;
  blocks_[block.next].previous = block.previous;
  block.previous = block.next = kNone;
  --free_;
}

std::vector<BlockId> BlockPool::find_prefix(std::span<const std::uint64_t> hashes) const {
  std::vector<BlockId> found;
  for (const std::uint64_t hash : hashes) {
    const auto it = by_hash_.find(hash);
    if (it == by_hash_.end()) {
      break;
    }
    found.push_back(it->second.oldest);
  }
  return found;
}

void BlockPool::acquire(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    if (blocks_[id].references++ == 0) {
      unlink_free(id);
    }
  }
}

bool BlockPool::allocate(std::size_t count, std::vector<BlockId>& out) {
  if (count > free_) {
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const BlockId id = blocks_[kNone].next;
    unlink_free(id);
    evict(id);
    blocks_[id].references = 1;
    out.push_back(id);
  }
  return true;
}

void BlockPool::release(std::span<const BlockId> blocks) {
  for (const BlockId id : std::views::reverse(blocks)) {
    if (--blocks_[id].references == 0) {
      free_before(blocks_[id].stored || !caching_ ? kNone : blocks_[kNone].next, id);
    }
  }
}

void BlockPool::store(std::span<const BlockId> blocks, std::span<const std::uint64_t> hashes,
                      std::span<const TokenId> tokens, std::size_t first, std::size_t last,
                      const CacheKey& key) {
  if (!caching_ || first >= last) {
    return;
  }
  BlocksStored event;
  event.key = key;
  for (std::size_t i = first; i < last; ++i) {
    Block& block = blocks_[blocks[i]];
    const std::span<const TokenId> content = tokens.subspan(i * block_size_, block_size_);
    block.content.hash = hashes[i];
    block.content.parent = i == 0 ? std::nullopt : std::optional(hashes[i - 1]);
    block.content.tokens.assign(content.begin(), content.end());
    block.content.key = key;
    index(blocks[i]);
    if (recording_) {
      event.hashes.push_back(hashes[i]);
      event.tokens.insert(event.tokens.end(), content.begin(), content.end());
    }
  }
  if (recording_) {
    event.parent = first == 0 ? std::nullopt : std::optional(hashes[first - 1]);
    events_.emplace_back(std::move(event));
  }
}

void BlockPool::index(BlockId id) {
  Block& block = blocks_[id];
  Copies& copies = by_hash_[block.content.hash];
  block.stored = true;
  block.older_copy = copies.newest;
  block.newer_copy = kNone;
  (copies.count == 0 ? copies.oldest : blocks_[copies.newest].newer_copy) = id;
  copies.newest = id;
  ++copies.count;
}

void BlockPool::unindex(BlockId id) {
  Block& block = blocks_[id];
  const auto it = by_hash_.find(block.content.hash);
  Copies& copies = it->second;
  (copies.oldest == id ? copies.oldest : blocks_[block.older_copy].newer_copy) = block.newer_copy;
  (copies.newest == id ? copies.newest : blocks_[block.newer_copy].older_copy) = block.older_copy;
  block.stored = false;
  if (--copies.count == 0) {
    by_hash_.erase(it);
  }
}

void BlockPool::evict(BlockId id) {
  if (!blocks_[id].stored) {
    return;
  }
  unindex(id);
  if (recording_) {
    events_.emplace_back(BlockRemoved{blocks_[id].content.hash, blocks_[id].content.key.lora});
  }
}

bool BlockPool::reset() {
  if (used() > 0) {
    return false;
  }
  for (Block& block : blocks_) {
    block.stored = false;
  }
  by_hash_.clear();
  if (recording_) {
    events_.emplace_back(AllBlocksCleared{});
  }
  return true;
}

std::size_t BlockPool::copies(std::uint64_t hash) const {
  const auto it = by_hash_.find(hash);
  return it == by_hash_.end() ? 0 : it->second.count;
}

std::vector<BlockPool::CachedBlock> BlockPool::cached() const {
  std::vector<CachedBlock> all;
  all.reserve(by_hash_.size());
  for (const auto& [hash, copies] : by_hash_) {
    all.push_back(blocks_[copies.oldest].content);
  }
  return all;
}

}  // namespace fairlead::mock
