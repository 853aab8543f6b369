#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace fairlead::kv {

/// Where an engine keeps a block, nearest first.
enum class Tier : std::uint8_t {
  Device,    ///< The accelerator's memory.
  Host,      ///< Pinned memory of the host.
  Disk,      ///< Local storage.
  External,  ///< A store shared with others.
};

/// Number of `Tier` values.
inline constexpr int kTierCount = static_cast<int>(Tier::External) + 1;

/// Tier of an event's `medium`; an empty one means the device. Nothing for an unknown medium.
std::optional<Tier> parse_medium(std::string_view medium);

/// Canonical `medium` of a tier; the device's is `GPU`.
std::string_view medium_name(Tier tier);

/// Name for metric labels and documents: `device`, `host`, `disk` or `external`.
std::string_view tier_name(Tier tier);

}  // namespace fairlead::kv
