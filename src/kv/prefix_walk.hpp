#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_table.hpp"
#include "kv/hashes.hpp"
#include "kv/target_mask.hpp"

namespace fairlead::kv {

/// Leading blocks of a prompt that a target holds.
struct Overlap {
  TargetId target = 0;       ///< Whose.
  std::uint32_t device = 0;  ///< Blocks on the device, contiguous from the first.
  std::uint32_t host = 0;    ///< Further ones reached when the host's copies may fill in.
  std::uint32_t disk = 0;    ///< Further ones reached when the disk's may as well.
  /// Equality of all.
  bool operator==(const Overlap&) const = default;
};

/// Puts the exact depth of every target of `mask` that holds the first block into `out` (as
/// `device`), in no particular order, instead of what is there; a block counts when the target has
/// it in any of `tables` (at most 3). O(depth × targets that are still in), one cache miss per
/// block mostly hidden by fetching ahead. The caller holds the guard of the tables' epochs.
void walk_prefix(std::span<const BlockTable* const> tables, std::span<const SequenceHash> prompt,
                 const TargetMask& mask, std::vector<Overlap>& out);

}  // namespace fairlead::kv
