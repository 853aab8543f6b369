#include "fleet/circuit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace fairlead::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class Circuits : public ::testing::Test {
 protected:
  bool fail_times(int times) {
    bool opened = false;
    for (int i = 0; i < times; ++i) {
      opened = breaker->fail(now, true);
    }
    return opened;
  }
  std::string shown() const {
    std::string text;
    observe::TextWriter writer(text, "p");
    options.board->collect(writer);
    return text;
  }

  CircuitOptions options;
  Activity activity;
  std::unique_ptr<CircuitBreaker> breaker = std::make_unique<CircuitBreaker>(options, activity, 7);
  net::TimePoint now{1h};
};

TEST_F(Circuits, OpenAfterFailuresInARowOnly) {
  EXPECT_FALSE(fail_times(4));
  activity.served();
  EXPECT_FALSE(fail_times(4)) << "one that ended well begins the count anew";
  EXPECT_EQ(breaker->state(), Circuit::Closed);
  EXPECT_TRUE(fail_times(1));
  EXPECT_EQ(breaker->state(), Circuit::Open);
  EXPECT_EQ(breaker->open_until(), now + 10s);
  EXPECT_FALSE(fail_times(3)) << "requests from before";
  EXPECT_EQ(breaker->open_until(), now + 10s);
}

TEST_F(Circuits, ATrialDecides) {
  fail_times(5);
  EXPECT_FALSE(breaker->succeed(now)) << "a request from before";
  breaker->half_open();
  EXPECT_TRUE(breaker->succeed(now));
  EXPECT_EQ(breaker->state(), Circuit::Closed);
  EXPECT_FALSE(breaker->succeed(now));
}

TEST_F(Circuits, StayOpenLongerEachTime) {
  fail_times(5);
  for (const net::Duration pause : {20s, 40s, 80s, 120s, 120s}) {
    breaker->half_open();
    EXPECT_TRUE(breaker->fail(now, false)) << "the trial of one that is out fails";
    EXPECT_EQ(breaker->pause(), pause);
  }
  breaker->half_open();
  breaker->succeed(now);
  now += 119s;
  EXPECT_TRUE(fail_times(5));
  EXPECT_EQ(breaker->pause(), 120s) << "soon after its trial";
  breaker->half_open();
  breaker->succeed(now);
  now += 120s;
  EXPECT_TRUE(fail_times(5));
  EXPECT_EQ(breaker->pause(), 10s) << "it was well for long";
}

TEST_F(Circuits, MayBeForbiddenToOpen) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(breaker->fail(now, false));
  }
  EXPECT_EQ(breaker->state(), Circuit::Closed);
  EXPECT_TRUE(breaker->fail(now, true)) << "somebody else is there now";
}

TEST_F(Circuits, ZeroFailuresIsOff) {
  options.failures = 0;
  EXPECT_FALSE(fail_times(100));
  EXPECT_EQ(breaker->state(), Circuit::Closed);
}

TEST_F(Circuits, AnotherProcessBeginsAnew) {
  EXPECT_FALSE(breaker->reset());
  fail_times(5);
  EXPECT_TRUE(breaker->reset());
  EXPECT_EQ(breaker->state(), Circuit::Closed);
  EXPECT_FALSE(fail_times(4));
}

TEST_F(Circuits, AreShown) {
  EXPECT_THAT(shown(), HasSubstr("worker_circuit_state{worker_id=\"7\"} 0\n"));
  fail_times(5);
  EXPECT_THAT(shown(), HasSubstr("worker_circuit_state{worker_id=\"7\"} 2\n"));
  EXPECT_THAT(shown(), HasSubstr("worker_circuit_openings_total{worker_id=\"7\"} 1\n"));
  breaker->half_open();
  EXPECT_THAT(shown(), HasSubstr("worker_circuit_state{worker_id=\"7\"} 1\n"));
  breaker.reset();
  EXPECT_THAT(shown(), Not(HasSubstr("worker_id")));
}

TEST(Outcomes, OnlyTheEnginesFaultCounts) {
  using enum ErrorCode;
  for (const ErrorCode code :
       {EngineUnreachable, EngineDisconnected, EngineConnectTimeout, EngineSilent}) {
    EXPECT_EQ(outcome_of(code), Outcome::Down) << traits(code).name;
  }
  EXPECT_EQ(outcome_of(EngineProtocol), Outcome::Failed);
  EXPECT_EQ(outcome_of(EngineUnknown), Outcome::Failed);
  for (const ErrorCode code :
       {EngineRejected, EngineExhausted, EngineCancelled, ClientGone, CapabilityUnavailable,
        CapabilityUnsupported, InvalidRequest, UnsupportedField, Overloaded, Draining}) {
    EXPECT_EQ(outcome_of(code), std::nullopt) << traits(code).name;
  }
}

}  // namespace
}  // namespace fairlead::fleet
