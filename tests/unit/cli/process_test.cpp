#include "cli/process.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/log.hpp"
#include "cli/command.hpp"

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

TEST(EndAtSignalDeathTest, ASignalThatWaitsUnseenEndsTheProcessWithTheCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        prepare_signals();
        std::raise(SIGTERM);  // blocked: nobody watches
        end_at_signal(7);
        std::_Exit(8);
      },
      ::testing::ExitedWithCode(7), ::testing::HasSubstr(""));
}

TEST(EndAtSignalDeathTest, EndsAProcessThatIsStuck) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        prepare_signals();
        end_at_signal(7);
        std::raise(SIGINT);
        while (true) {
          pause();
        }
      },
      ::testing::ExitedWithCode(7), ::testing::HasSubstr(""));
}

// Makes stderr a pipe that is full and that nobody reads.
void stuff_stderr() {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string bytes(4096, 'x');
  while (write(ends[1], bytes.data(), bytes.size()) > 0) {
  }
  ASSERT_EQ(fcntl(ends[1], F_SETFL, 0), 0);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
}

TEST(EndCommandDeathTest, DoesNotWaitForAStderrThatNobodyReads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool hurried : {false, true}) {
    EXPECT_EXIT(
        {
          stuff_stderr();
          log::start(log::Level::Info);
          log::info("nobody reads this");
          const Error failure(ErrorCode::Internal, "nor this", {});
          std::exit(end_command("serve", failure, hurried));
        },
        ::testing::ExitedWithCode(kExitFailed), ::testing::HasSubstr(""));
  }
}

TEST(EndCommandDeathTest, ReportsTheFailureBehindTheLinesOfTheLog) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        log::start(log::Level::Info);
        log::info("a line before it");
        const Error failure(ErrorCode::InvalidRequest, "no such thing", {});
        std::exit(end_command("serve", failure));
      },
      ::testing::ExitedWithCode(kExitUsage),
      ::testing::AllOf(::testing::HasSubstr("a line before it\n"),
                       ::testing::HasSubstr("\nfairlead serve: no such thing\n")));
}

TEST(ExitGuard, IsOffOnceItIsDestroyed) {
  {
    const ExitGuard guard(std::chrono::hours(1), 7);
  }
  SUCCEED();
}

}  // namespace
}  // namespace fairlead::cli
