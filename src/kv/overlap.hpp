#pragma once

#include <cstdint>

namespace fairlead::kv {

/// One (worker, rank) of one worker set, as an index names it.
using TargetId = std::uint16_t;

/// Leading blocks of a prompt that a target holds.
struct Overlap {
  TargetId target = 0;       ///< Whose.
  std::uint32_t device = 0;  ///< Blocks on the device, contiguous from the first.
  std::uint32_t host = 0;    ///< Further ones reached when the host's copies may fill in.
  std::uint32_t disk = 0;    ///< Further ones reached when the disk's may as well.
  /// Equality of all.
  bool operator==(const Overlap&) const = default;
};

}  // namespace fairlead::kv
