#include "base/lines.hpp"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

namespace fairlead {
namespace {

TEST(ReadLine, CutsLongLinesAndServesTheNext) {
  std::istringstream in("one\n\nfour4567\nlast");
  std::string line;
  bool cut = false;
  std::vector<std::string> seen;
  while (read_line(in, 4, line, cut)) {
    seen.push_back(line + (cut ? "…" : ""));
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "", "four…", "last"}));
}

}  // namespace
}  // namespace fairlead
