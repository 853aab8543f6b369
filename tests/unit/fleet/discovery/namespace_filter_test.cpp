#include "fleet/discovery/namespace_filter.hpp"

#include <gtest/gtest.h>

namespace fairlead::fleet {
namespace {

TEST(NamespaceFilter, TheGlobalNamespaceIsEverything) {
  for (const NamespaceFilter& filter :
       {NamespaceFilter(), NamespaceFilter("", std::nullopt, true),
        NamespaceFilter("dynamo", std::nullopt, false), NamespaceFilter("x", "", true),
        NamespaceFilter("x", "dynamo", false)}) {
    EXPECT_TRUE(filter.matches("") && filter.matches("a") && filter.matches("dynamo"));
  }
}

TEST(NamespaceFilter, ANamespaceIsItself) {
  const NamespaceFilter filter("prod", std::nullopt, false);
  EXPECT_TRUE(filter.matches("prod"));
  EXPECT_FALSE(filter.matches("") || filter.matches("prod-1a2b3c4d") || filter.matches("pro"));
}

TEST(NamespaceFilter, APrefixWinsOverANamespace) {
  const NamespaceFilter filter("other", "P", false);
  EXPECT_TRUE(filter.matches("P") && filter.matches("P-1a2b3c4d") && filter.matches("Pbar"));
  EXPECT_FALSE(filter.matches("other") || filter.matches("p") || filter.matches(""));
}

TEST(NamespaceFilter, AStrictPrefixTakesGenerationsOnly) {
  const NamespaceFilter filter("", "P", true);
  EXPECT_TRUE(filter.matches("P") && filter.matches("P-1a2b3c4d") && filter.matches("P-00000000"));
  for (const auto* const other :
       {"Pbar", "P-1a2b3c4", "P-1a2b3c4d5", "P-1A2B3C4D", "P-1a2b3c4g", "P_1a2b3c4d", "P-"}) {
    EXPECT_FALSE(filter.matches(other)) << other;
  }
}

}  // namespace
}  // namespace fairlead::fleet
