#include "kv/tier.hpp"

#include <array>

namespace fairlead::kv {
namespace {

struct Medium {
  std::string_view name;
  Tier tier;
};

constexpr std::array kMedia{
    Medium{"GPU", Tier::Device},       Medium{"DEVICE", Tier::Device},
    Medium{"CPU", Tier::Host},         Medium{"CPU_PINNED", Tier::Host},
    Medium{"CPU_TIER1", Tier::Host},   Medium{"CPU_TIER2", Tier::Disk},
    Medium{"DISK", Tier::Disk},        Medium{"NVME", Tier::Disk},
    Medium{"STORAGE", Tier::Disk},     Medium{"EXTERNAL", Tier::External},
    Medium{"NETWORK", Tier::External}, Medium{"REMOTE", Tier::External},
    Medium{"SHARED", Tier::External},
};

}  // namespace

std::optional<Tier> parse_medium(std::string_view medium) {
  if (medium.empty()) {
    return Tier::Device;
  }
  for (const Medium& known : kMedia) {
    if (known.name == medium) {
      return known.tier;
    }
  }
  return std::nullopt;
}

std::string_view medium_name(Tier tier) {
  constexpr std::array<std::string_view, kTierCount> kNames{"GPU", "CPU_PINNED", "DISK",
                                                            "EXTERNAL"};
  return kNames[static_cast<std::size_t>(tier)];
}

std::string_view tier_name(Tier tier) {
  constexpr std::array<std::string_view, kTierCount> kNames{"device", "host", "disk", "external"};
  return kNames[static_cast<std::size_t>(tier)];
}

}  // namespace fairlead::kv
