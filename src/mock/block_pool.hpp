#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mock/kv_events.hpp"
#include "mock/sha256.hpp"

namespace fairlead::mock {

/// Index of a physical block.
using BlockId = std::uint32_t;

/// How blocks are identified.
enum class BlockHashing : std::uint8_t {
  Xxh3,    ///< Fast; salt and adapter are part of it. Any identity will do for vLLM.
  Sha256,  ///< As SGLang's pages: a chain of digests over tokens, of which 8 bytes are told.
};

/// Appends the hashes of the full pages of `tokens` that `hashes` does not cover yet, as SGLang
/// computes them; `digest` is that of the last page covered. An adapter changes them by its mask.
void extend_page_hashes(std::vector<std::uint64_t>& hashes, Sha256Digest& digest,
                        std::span<const TokenId> tokens, std::size_t page_size,
                        std::string_view lora);

/// Appends the hashes of the full blocks of `tokens` that `hashes` does not cover yet. A hash
/// depends on every token up to the block's end, on the salt and on the adapter.
void extend_block_hashes(std::vector<std::uint64_t>& hashes, std::span<const TokenId> tokens,
                         std::size_t block_size, const CacheKey& key);

/// The paged KV cache of a simulated engine, after vLLM's: blocks are counted references; a block
/// without references keeps its content until it is needed and is then evicted, least recently
/// freed first; the same content may sit in several blocks. Block 0 is never handed out. Not
/// thread-safe.
class BlockPool {
 public:
  /// One block as `GET /debug/kv` shows it.
  struct CachedBlock {
    std::uint64_t hash = 0;               ///< Identity.
    std::optional<std::uint64_t> parent;  ///< Hash of the block before it.
    std::vector<TokenId> tokens;          ///< Content.
    CacheKey key;                         ///< Salt and adapter.
  };

  /// `blocks` physical blocks of `block_size` tokens. Without `caching` nothing is ever found.
  BlockPool(std::size_t blocks, std::size_t block_size, bool caching,
            BlockHashing hashing = BlockHashing::Xxh3);

  /// The blocks that hold the longest cached prefix of `hashes`, in order.
  std::vector<BlockId> find_prefix(std::span<const std::uint64_t> hashes) const;
  /// Adds a reference to each block.
  void acquire(std::span<const BlockId> blocks);
  /// Appends `count` blocks with one reference each to `out`, evicting what they held. False, with
  /// nothing changed, when fewer are free.
  bool allocate(std::size_t count, std::vector<BlockId>& out);
  /// Takes one reference from each block, the last first, so that a sequence's end is evicted
  /// before its beginning. Blocks that hold nothing of use are handed out again first.
  void release(std::span<const BlockId> blocks);
  /// Publishes blocks `first` to `last` (exclusive) of a sequence under their hashes; `tokens` are
  /// the sequence's.
  void store(std::span<const BlockId> blocks, std::span<const std::uint64_t> hashes,
             std::span<const TokenId> tokens, std::size_t first, std::size_t last,
             const CacheKey& key);
  /// Forgets all content. False, with nothing changed, while a block is referenced.
  bool reset();

  /// What changed since the last call, in order.
  std::vector<KvEvent> take_events() { return std::exchange(events_, {}); }
  /// Whether changes are recorded.
  void set_recording(bool recording) { recording_ = recording; }

  /// How its blocks are identified.
  BlockHashing hashing() const { return hashing_; }
  /// Tokens per block.
  std::size_t block_size() const { return block_size_; }
  /// Blocks that can be handed out, used or not.
  std::size_t usable() const { return blocks_.size() - 1; }
  /// Blocks with references.
  std::size_t used() const { return usable() - free_; }
  /// Blocks without references, cached or not.
  std::size_t free() const { return free_; }
  /// Physical copies of `hash`.
  std::size_t copies(std::uint64_t hash) const;
  /// Every cached block, one entry per hash, in no particular order.
  std::vector<CachedBlock> cached() const;

 private:
  static constexpr BlockId kNone = 0;  // block 0 doubles as the ends of all lists

  struct Block {
    std::uint32_t references = 0;
    BlockId previous = kNone;    // free list
    BlockId next = kNone;        // free list
    BlockId older_copy = kNone;  // block of the same hash
    BlockId newer_copy = kNone;
    bool stored = false;
    CachedBlock content;
  };

  struct Copies {
    BlockId oldest = kNone;
    BlockId newest = kNone;
    std::size_t count = 0;
  };

  void free_before(BlockId next, BlockId id);
  void unlink_free(BlockId id);
  void evict(BlockId id);
  void index(BlockId id);
  void unindex(BlockId id);

  std::vector<Block> blocks_;
  std::size_t block_size_;
  bool caching_;
  BlockHashing hashing_;
  bool recording_ = false;
  std::size_t free_ = 0;
  std::unordered_map<std::uint64_t, Copies> by_hash_;
  std::vector<KvEvent> events_;
};

}  // namespace fairlead::mock
