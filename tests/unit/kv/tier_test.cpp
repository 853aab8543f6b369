#include "kv/tier.hpp"

#include <gtest/gtest.h>

namespace fairlead::kv {
namespace {

TEST(Tier, OfEveryKnownMedium) {
  for (const std::string_view name : {"", "GPU", "DEVICE"}) {
    EXPECT_EQ(parse_medium(name), Tier::Device) << name;
  }
  for (const std::string_view name : {"CPU", "CPU_PINNED", "CPU_TIER1"}) {
    EXPECT_EQ(parse_medium(name), Tier::Host) << name;
  }
  for (const std::string_view name : {"CPU_TIER2", "DISK", "NVME", "STORAGE"}) {
    EXPECT_EQ(parse_medium(name), Tier::Disk) << name;
  }
  for (const std::string_view name : {"EXTERNAL", "NETWORK", "REMOTE", "SHARED"}) {
    EXPECT_EQ(parse_medium(name), Tier::External) << name;
  }
  EXPECT_EQ(parse_medium("gpu"), std::nullopt);
  EXPECT_EQ(parse_medium("TAPE"), std::nullopt);
}

TEST(Tier, CanonicalMediumNamesTheSameTier) {
  for (int i = 0; i < kTierCount; ++i) {
    const Tier tier = static_cast<Tier>(i);
    EXPECT_EQ(parse_medium(medium_name(tier)), tier);
  }
  EXPECT_EQ(medium_name(Tier::Host), "CPU_PINNED");
  EXPECT_EQ(tier_name(Tier::External), "external");
}

}  // namespace
}  // namespace fairlead::kv
