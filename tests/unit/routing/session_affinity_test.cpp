#include "routing/session_affinity.hpp"

#include <gtest/gtest.h>

namespace fairlead::routing {
namespace {

using std::chrono::seconds;

const SessionAffinity::Clock::time_point kStart{};
constexpr TargetRef kA{.worker_id = 1, .rank = 0};
constexpr TargetRef kB{.worker_id = 2, .rank = 1};

TEST(SessionAffinity, TheFirstDispatchBindsUntilTheSessionWasIdle) {
  SessionAffinity sessions(seconds(10), 100);
  EXPECT_FALSE(sessions.find("s", kStart));
  EXPECT_TRUE(sessions.begin("s", kA, kStart));
  EXPECT_TRUE(sessions.begin("s", kB, kStart));
  EXPECT_EQ(sessions.find("s", kStart + seconds(1000)), kA) << "held while requests run";
  sessions.end("s", false, kStart + seconds(1000));
  sessions.end("s", false, kStart + seconds(1001));
  EXPECT_EQ(sessions.find("s", kStart + seconds(1010)), kA);
  EXPECT_FALSE(sessions.find("s", kStart + seconds(1011)));
  EXPECT_EQ(sessions.size(), 0u);
}

TEST(SessionAffinity, AFailureOrALostWorkerUnbinds) {
  SessionAffinity sessions(seconds(10), 100);
  sessions.begin("failed", kA, kStart);
  sessions.begin("failed", kA, kStart);
  sessions.end("failed", true, kStart);
  EXPECT_FALSE(sessions.find("failed", kStart)) << "although one still runs";
  EXPECT_TRUE(sessions.begin("failed", kB, kStart));
  EXPECT_EQ(sessions.find("failed", kStart), kB);
  sessions.begin("idle", kA, kStart);
  sessions.end("idle", false, kStart);
  sessions.begin("running", kA, kStart);
  sessions.forget_worker(1);
  EXPECT_FALSE(sessions.find("idle", kStart));
  EXPECT_FALSE(sessions.find("running", kStart));
  EXPECT_EQ(sessions.find("failed", kStart), kB);
  sessions.end("running", false, kStart);
  EXPECT_EQ(sessions.size(), 1u);
}

TEST(SessionAffinity, IsBounded) {
  SessionAffinity sessions(seconds(10), 2);
  sessions.begin("a", kA, kStart);
  sessions.begin("b", kA, kStart);
  EXPECT_FALSE(sessions.begin("c", kA, kStart)) << "all are in use";
  sessions.end("b", false, kStart);
  EXPECT_TRUE(sessions.begin("c", kA, kStart));
  EXPECT_FALSE(sessions.find("b", kStart)) << "the longest idle one makes room";
  EXPECT_FALSE(sessions.begin("", kA, kStart));
  EXPECT_FALSE(sessions.begin(std::string(257, 'x'), kA, kStart));
  EXPECT_EQ(sessions.size(), 2u);
  sessions.end("unknown", true, kStart);
}

}  // namespace
}  // namespace fairlead::routing
