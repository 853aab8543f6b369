#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "fleet/fake_engines.hpp"
#include "fleet/live_fleet.hpp"
#include "net/testing.hpp"

namespace fairlead::fleet {
namespace {

using testing::FakeClient;
using testing::FakeEngine;
using testing::FakeResolver;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kUrl = "http://127.0.0.1:7001";

/// One engine in a fleet with canaries on.
class CanaryWatchTest : public net::testing::ReactorTest {
 public:
  ~CanaryWatchTest() override {
    in_turn([this] { fleet.reset(); });
    EXPECT_EQ(fake.streams, 0);
  }

 protected:
  CanaryWatchTest() {
    fake.info.emplace();
    fake.info->model_id = "/models/m";
    fake.info->served_model_name = "m";
    fake.info->instance_id = "life-1";
    options.retry_interval = 10ms;
    options.health_interval = 10ms;
    options.checks_per_probe = 2;
    options.canary.enabled = true;
    options.canary.wait = 30ms;
    options.canary.timeout = 5s;
    options.canary.busy_stall = 1h;
  }

  void start() {
    Card card;
    card.endpoint = *parse_endpoint(kUrl);
    in_turn([&] {
      fleet = std::make_unique<LiveFleet>(
          options,
          [this](const engine::ClientOptions&) { return std::make_unique<FakeClient>(fake); },
          resolver,
          [this](std::shared_ptr<const Fleet> snapshot) { newest = std::move(snapshot); });
      fleet->set_cards("test", {card});
      fleet->start();
    });
  }
  std::shared_ptr<const Worker> worker() const {
    return newest ? newest->worker(worker_id(kUrl)) : nullptr;
  }
  bool healthy() const { return worker() && worker()->healthy; }
  std::size_t canaries() const { return fake.generations.size(); }
  std::int64_t counted(CanaryResult result) const { return options.canary.counters->get(result); }
  void fail_generations() { fake.fails = Error{ErrorCode::EngineUnknown, "no temperature", {}}; }

  LiveFleetOptions options;
  FakeEngine fake;
  FakeResolver resolver;
  std::shared_ptr<const Fleet> newest;
  std::unique_ptr<LiveFleet> fleet;
};

TEST_F(CanaryWatchTest, NoneIsSentUnlessAskedFor) {
  options.canary.enabled = false;
  start();
  ASSERT_TRUE(wait([&] { return healthy() && fake.checks > 20; }));
  EXPECT_EQ(canaries(), 0U);
}

TEST_F(CanaryWatchTest, AnEngineJoinsOnceItsFirstCanarySucceeded) {
  fail_generations();
  ::testing::internal::CaptureStderr();
  start();
  ASSERT_TRUE(wait([&] { return counted(CanaryResult::Failure) >= 3; }));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("reason=\"canary failed: no temperature\""));
  EXPECT_FALSE(healthy());
  EXPECT_TRUE(fleet->first_round_done());
  fake.fails.reset();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  EXPECT_EQ(fake.generations.front().prompt.size(), 1U);
  EXPECT_TRUE(fake.generations.front().sampling.unset);
}

TEST_F(CanaryWatchTest, APayloadIsFoundByThePublicName) {
  options.model_name = "public";
  options.canary.per_model["m"] = *parse_canary_payload(R"({"token_ids":[3]})");
  options.canary.per_model["public"] = *parse_canary_payload(R"({"token_ids":[4,5]})");
  start();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  EXPECT_EQ(fake.generations.front().prompt, (std::vector<engine::TokenId>{4, 5}));
}

TEST_F(CanaryWatchTest, AnIdleEngineThatStopsGeneratingLeavesAndReturns) {
  start();
  ASSERT_TRUE(wait([&] { return healthy() && canaries() >= 3; }));
  const std::uint64_t incarnation = worker()->incarnation;
  fail_generations();
  ASSERT_TRUE(wait([&] { return !healthy(); }));
  fake.fails.reset();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  EXPECT_NE(worker()->incarnation, incarnation);
}

TEST_F(CanaryWatchTest, ABusyEngineIsLeftAlone) {
  start();
  ASSERT_TRUE(wait([&] { return healthy() && canaries() >= 2; }));
  {
    const Activity::Request request(worker()->activity, reactor.now());
    // One that was already on its way may still come.
    const std::size_t before = canaries() + 1;
    const int checks = fake.checks;
    ASSERT_TRUE(wait([&] { return fake.checks > checks + 20; }));
    EXPECT_LE(canaries(), before);
  }
  const std::size_t before = canaries();
  ASSERT_TRUE(wait([&] { return canaries() > before + 1; }));
  EXPECT_TRUE(healthy());
}

TEST_F(CanaryWatchTest, TrafficKeepsCanariesAway) {
  options.canary.wait = 200ms;
  start();
  ASSERT_TRUE(wait([&] { return healthy() && canaries() >= 1; }));
  const std::size_t before = canaries() + 1;
  const int checks = fake.checks;
  ASSERT_TRUE(wait([&] {
    Activity::Request(worker()->activity, net::Clock::now()).progress(net::Clock::now());
    return fake.checks > checks + 40;
  }));
  EXPECT_LE(canaries(), before);
}

TEST_F(CanaryWatchTest, AStalledBusyEngineIsTriedAndLeaves) {
  options.canary.busy_stall = 100ms;
  options.canary.timeout = 20ms;
  start();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  const Activity::Request request(worker()->activity, reactor.now());
  fake.silent = true;
  ASSERT_TRUE(wait([&] { return !healthy(); }));
  EXPECT_GE(counted(CanaryResult::Timeout), 1);
  fake.silent = false;
  ASSERT_TRUE(wait([&] { return healthy(); }));
}

TEST_F(CanaryWatchTest, RefusalsDoNotCount) {
  fake.refuses = Error{ErrorCode::UnsupportedField, "`vllm_xargs` is not supported", "vllm_xargs"};
  start();
  ASSERT_TRUE(wait([&] { return healthy() && counted(CanaryResult::Refused) >= 3; }));
  EXPECT_EQ(counted(CanaryResult::Failure), 0);
  EXPECT_TRUE(healthy());
}

TEST_F(CanaryWatchTest, AnotherProcessAtTheSamePlaceIsTriedFirst) {
  options.canary.wait = 1h;
  start();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  fail_generations();
  fake.info->instance_id = "life-2";
  ASSERT_TRUE(wait([&] { return !healthy() && counted(CanaryResult::Failure) == 1; }));
}

TEST_F(CanaryWatchTest, AfterARequestsFailureACanaryDecides) {
  options.canary.wait = 200ms;
  start();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  fail_generations();
  in_turn([&] { fleet->report(worker()->id, worker()->incarnation, Outcome::Down); });
  ASSERT_TRUE(wait([&] { return counted(CanaryResult::Failure) >= 1; }));
  EXPECT_FALSE(healthy());
  fake.fails.reset();
  ASSERT_TRUE(wait([&] { return healthy(); }));
}

TEST_F(CanaryWatchTest, TheActivityOfAWorkerOutlivesSnapshots) {
  start();
  ASSERT_TRUE(wait([&] { return healthy(); }));
  const auto activity = worker()->activity;
  ASSERT_NE(activity, nullptr);
  in_turn([&] { fleet->report(worker()->id, worker()->incarnation, Outcome::Down); });
  ASSERT_TRUE(wait([&] { return healthy(); }));
  EXPECT_EQ(worker()->activity, activity);
}

TEST_F(CanaryWatchTest, DestroyingTheFleetAbortsCanaries) {
  fake.silent = true;
  start();
  ASSERT_TRUE(wait([&] { return fake.streams == 1; }));
  in_turn([this] { fleet.reset(); });
  EXPECT_EQ(fake.streams, 0);
  EXPECT_EQ(counted(CanaryResult::Cancelled), 1);
}

TEST_F(CanaryWatchTest, WithdrawingTheCardAbortsItsCanary) {
  fake.silent = true;
  start();
  ASSERT_TRUE(wait([&] { return fake.streams == 1; }));
  in_turn([this] { fleet->set_cards("test", {}); });
  EXPECT_EQ(fake.streams, 0);
  EXPECT_EQ(counted(CanaryResult::Cancelled), 1);
}

}  // namespace
}  // namespace fairlead::fleet
