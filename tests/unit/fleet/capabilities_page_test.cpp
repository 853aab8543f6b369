#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "engine/capability.hpp"

namespace fairlead::fleet {
namespace {

TEST(CapabilitiesPage, HasARowForEveryCapability) {
  std::ifstream file(FAIRLEAD_SOURCE_DIR "/docs/capabilities.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  ASSERT_FALSE(page.empty());
  std::size_t at = page.find("## Capabilities");
  for (const engine::CapabilityTraits& row : engine::capability_table()) {
    const std::size_t found = page.find("| `" + std::string(row.name) + "` |", at);
    ASSERT_NE(found, std::string::npos) << row.name << " is missing, or out of the table's order";
    at = found;
  }
}

}  // namespace
}  // namespace fairlead::fleet
