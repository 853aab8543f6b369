#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

// The hashes by which prompts and engines' caches are compared. The prompt side and the event side
// must agree bit for bit; engines never see these values. Only complete blocks have a hash.

namespace fairlead::kv {

/// Content of one block, seeded by adapter and cache salt; says nothing about its position.
using LocalHash = std::uint64_t;
/// Content of a block and of everything before it.
using SequenceHash = std::uint64_t;
/// The engine's own name of a block: opaque, meaningful only for the engine (and rank) that sent
/// it. Signed values are taken bit for bit.
using EngineHash = std::uint64_t;

/// A block an engine says it stored: its name there and its content.
struct StoredBlock {
  EngineHash engine = 0;  ///< For parents and removals.
  LocalHash local = 0;    ///< For comparing with prompts.
  /// Equality of both.
  bool operator==(const StoredBlock&) const = default;
};

/// How a worker set cuts tokens into blocks.
struct HashParams {
  std::uint32_t block_size = 0;  ///< Tokens per block; 0 = nothing is hashed.
  bool bigram = false;           ///< EAGLE keys: a block also covers the token after its last one.
  /// Equality of both.
  bool operator==(const HashParams&) const = default;
};

/// Seed of blocks that belong to neither an adapter nor a cache namespace, and of every chain.
inline constexpr std::uint64_t kBaseSeed = 1337;

/// What a cache salt adds to the seed; 0 for the empty one. Two salts are told apart by this value.
std::uint64_t salt_seed(std::string_view cache_salt);

/// Seed of an adapter's and a salt's blocks. An empty string is the same as none.
std::uint64_t hash_seed(std::string_view lora_name, std::string_view cache_salt);

/// Hash of one block: all of `window` (with EAGLE keys that is one token more than the block).
LocalHash local_hash(std::span<const std::uint32_t> window, std::uint64_t seed);

/// Hash of a block that holds (parts of) multimodal objects, in any order.
LocalHash local_hash(std::span<const std::uint32_t> window, std::uint64_t seed,
                     std::span<const std::uint64_t> mm_hashes);

/// Appends the hash of every complete block of `tokens` to `out`.
void local_hashes(std::span<const std::uint32_t> tokens, HashParams params, std::uint64_t seed,
                  std::vector<LocalHash>& out);

/// Sequence hash of a chain's first block.
constexpr SequenceHash root_hash(LocalHash first) { return first; }

/// Sequence hash of the block `next` behind `parent`.
SequenceHash extend_hash(SequenceHash parent, LocalHash next);

/// Appends the sequence hashes of a chain that starts at position 0 to `out`.
void sequence_hashes(std::span<const LocalHash> locals, std::vector<SequenceHash>& out);

/// `local_hashes` and `sequence_hashes` in one pass: the hashes of a prompt, appended to `out`.
void prompt_hashes(std::span<const std::uint32_t> tokens, HashParams params, std::uint64_t seed,
                   std::vector<SequenceHash>& out);

/// Blocks that `tokens` tokens fill.
constexpr std::size_t complete_blocks(std::size_t tokens, HashParams params) {
  if (params.block_size == 0 || (params.bigram && tokens == 0)) {
    return 0;
  }
  return (tokens - (params.bigram ? 1 : 0)) / params.block_size;
}

/// 64-bit hash of a multimodal object from an engine's identifier of it: the leading 64 bits of a
/// digest of 64 hex digits, else a hash of the text. 0 for an empty identifier.
std::uint64_t mm_hash(std::string_view identifier);

/// The leading 64 bits of a digest written as exactly 64 hex digits; nothing for other texts.
std::optional<std::uint64_t> digest_hash(std::string_view text);

/// Token that stands for an object's placeholders: SGLang's pad value.
constexpr std::uint32_t mm_pad_value(std::uint64_t mm_hash) {
  return 1'000'000U + static_cast<std::uint32_t>(mm_hash & ((1U << 30) - 1));
}

/// Replaces every run of `image_token` in `tokens` by the pad value of the object it belongs to:
/// run i is object i, and the last object stands for all further runs. Nothing without objects.
void pad_image_runs(std::span<std::uint32_t> tokens, std::uint32_t image_token,
                    std::span<const std::uint64_t> mm_hashes);

}  // namespace fairlead::kv
