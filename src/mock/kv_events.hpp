#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mock/token_formula.hpp"

namespace fairlead::mock {

/// What belongs to a block's identity beside its tokens and its parent.
struct CacheKey {
  std::string salt;           ///< Separates tenants; part of the first block only. Empty = none.
  std::string lora;           ///< Adapter name; part of every block. Empty = base model.
  std::string session_id;     ///< Reported in events, not part of the identity. Empty = none.
  std::uint32_t lora_id = 0;  ///< The adapter's number, likewise.
};

/// Blocks of one sequence became readable from the cache.
struct BlocksStored {
  std::vector<std::uint64_t> hashes;    ///< In sequence order.
  std::optional<std::uint64_t> parent;  ///< Of the first one; none at the start of a sequence.
  std::vector<TokenId> tokens;          ///< Block size times the number of hashes.
  CacheKey key;                         ///< What else went into the hashes.
};

/// One physical copy of a block left the cache.
struct BlockRemoved {
  std::uint64_t hash = 0;  ///< Which block.
  std::string lora = {};   ///< Its adapter; empty = base model.
};

/// The prefix cache was reset.
struct AllBlocksCleared {};

/// One change of the cache.
using KvEvent = std::variant<BlocksStored, BlockRemoved, AllBlocksCleared>;

/// How events are laid out in MessagePack; the batch is an array of (time, events, rank) in both.
enum class KvEventLayout : std::uint8_t {
  Map,    ///< Events are maps with a `type`, as vLLM 0.28 and later send them.
  Array,  ///< Events are positional arrays, as in vLLM's first versions.
};

/// Whose events they are.
enum class KvEventFlavor : std::uint8_t {
  Vllm,    ///< Unsigned hashes, adapters and cache specification.
  Sglang,  ///< Signed hashes, in which adapters do not show.
};

/// What an adapter changes in the hashes of blocks inside an SGLang cache; the published ones are
/// without.
std::uint64_t adapter_mask(std::string_view lora);

/// The payload of one batch. `timestamp` is in Unix seconds.
std::string encode_kv_batch(std::span<const KvEvent> events, std::uint32_t block_size,
                            double timestamp, std::uint32_t rank, KvEventLayout layout,
                            KvEventFlavor flavor = KvEventFlavor::Vllm);

}  // namespace fairlead::mock
