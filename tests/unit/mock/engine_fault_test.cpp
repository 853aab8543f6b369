#include <chrono>

#include "mock/engine_fixture.hpp"

namespace fairlead::mock {
namespace {

TEST_F(Engine, StallAfterFallsSilentUntilCancelled) {
  MockOptions options = instant();
  options.faults = {*parse_fault("stall-after:3")};
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->ids.size() == 3; }));
  reactor_.run_turn(std::chrono::milliseconds(20));
  EXPECT_EQ(stream->ids.size(), 3U);
  EXPECT_FALSE(stream->status);
  EXPECT_EQ(engine_->counts().running, 1U);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, StallOpenAnswersNothing) {
  MockOptions options = instant();
  options.faults = {*parse_fault("stall-open")};
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().waiting == 1; }));
  EXPECT_EQ(stream->messages, 0U);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, ErrorAfterEndsWithTheStatus) {
  MockOptions options = instant();
  options.faults = {*parse_fault("error-after:2:UNAVAILABLE")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
  EXPECT_EQ(stream->ids.size(), 2U);
  EXPECT_FALSE(stream->finish);
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({*parse_fault("error-after:0:13")})); });
  const auto refused = run(request_of("b", 10, 10));
  EXPECT_EQ(refused->status->code, StatusCode::Internal);
  EXPECT_EQ(refused->messages, 0U);
  expect_idle();
}

TEST_F(Engine, ResetAfterBreaksTheStreamBehindItsTokens) {
  MockOptions options = instant();
  options.faults = {*parse_fault("reset-after:2")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_FALSE(stream->status->ok());
  EXPECT_EQ(stream->status->origin, Status::Origin::Connection);
  EXPECT_EQ(stream->ids.size(), 2U);
  expect_idle();
}

TEST_F(Engine, EndAfterEndsWithoutAFinish) {
  MockOptions options = instant();
  options.faults = {*parse_fault("end-after:2")};
  start(options);
  const auto stream = run(request_of("a", 10, 10));
  EXPECT_TRUE(stream->status->ok());
  EXPECT_EQ(stream->ids.size(), 2U);
  EXPECT_FALSE(stream->finish);
  expect_idle();
}

TEST_F(Engine, RefuseClosesAndListensAgainAtTheSamePort) {
  MockOptions options;
  options.token_interval_ms = 5;
  start(options);
  const auto stream = open(request_of("a", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return !stream->ids.empty(); }));
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({*parse_fault("refuse")})); });
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
  EXPECT_EQ(run(request_of("b", 10, 2))->status->code, StatusCode::Unavailable);
  on_reactor([&] { EXPECT_TRUE(engine_->set_faults({})); });
  EXPECT_TRUE(run_until(reactor_, [&] { return run(request_of("c", 10, 2))->status->ok(); }));
  expect_idle();
}

TEST_F(Engine, LimitOfConcurrentRequestsIsExhaustion) {
  MockOptions options;
  options.token_interval_ms = 1000;
  options.max_concurrent_requests = 1;
  start(options);
  auto stream = open(request_of("a", 10, 10));
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().running == 1; }));
  EXPECT_EQ(run(request_of("b", 10, 1))->status->code, StatusCode::ResourceExhausted);
  cancel(stream);
  expect_idle();
}

TEST_F(Engine, StopWithRunningStreamsEndsThemAtOnce) {
  MockOptions options;
  options.token_interval_ms = 5;
  start(options);
  const auto stream = open(request_of("a", 10, 1000));
  ASSERT_TRUE(run_until(reactor_, [&] { return !stream->ids.empty(); }));
  on_reactor([&] { engine_->stop(); });
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  EXPECT_EQ(stream->status->code, StatusCode::Unavailable);
}

}  // namespace
}  // namespace fairlead::mock
