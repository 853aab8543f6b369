#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_table.hpp"
#include "kv/hashes.hpp"
#include "kv/target_mask.hpp"

namespace fairlead::kv {

/// How many leading blocks of a prompt a target holds.
struct PrefixDepth {
  TargetId target = 0;      ///< Whose.
  std::uint32_t depth = 0;  ///< Blocks, contiguous from the first; at least 1.
};

/// Appends the exact depth of every target of `mask` that holds the first block, in no particular
/// order; a block counts when the target has it in any of `tables` (at most 3). O(depth × targets
/// that are still in), one cache miss per block mostly hidden by fetching ahead. The caller holds
/// the guard of the tables' epochs.
void walk_prefix(std::span<const BlockTable* const> tables, std::span<const SequenceHash> prompt,
                 const TargetMask& mask, std::vector<PrefixDepth>& out);

}  // namespace fairlead::kv
