#include "cli/process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>

namespace fairlead::cli {
namespace {

TEST(ExitGuardDeathTest, EndsTheProcessWhateverItsThreadsDo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const ExitGuard guard(std::chrono::milliseconds(1), 7);
        while (true) {
          pause();
        }
      },
      ::testing::ExitedWithCode(7),
      // No regular expression: the sanitizers' regexec deadlocks.
      ::testing::HasSubstr("ends without them"));
}

TEST(ExitGuard, IsOffOnceItIsDestroyed) {
  {
    const ExitGuard guard(std::chrono::hours(1), 7);
  }
  SUCCEED();
}

}  // namespace
}  // namespace fairlead::cli
