#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
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

/// One engine in a fleet that is asked for its load.
class EngineLoadTest : public net::testing::ReactorTest {
 public:
  ~EngineLoadTest() override {
    in_turn([this] { fleet.reset(); });
  }

 protected:
  EngineLoadTest() {
    fake.info.emplace();
    fake.info->model_id = "/models/m";
    fake.info->served_model_name = "m";
    fake.info->instance_id = "life-1";
    fake.info->total_kv_blocks = 200;
    fake.info->data_parallel_size = 2;
    fake.tells_load = true;
    fake.usage = std::vector<engine::KvUsage>{{.rank = 0, .share = 0.25}, {.rank = 1, .share = 1}};
    options.retry_interval = 10ms;
    options.health_interval = 10ms;
    options.load.interval = 5ms;
    options.load.timeout = 5s;
    options.load.wanted = [this] { return wanted; };
    options.load.report = [this](WorkerId id, std::uint32_t rank,
                                 std::optional<std::uint64_t> blocks) {
      EXPECT_EQ(id, worker_id(kUrl));
      reported[rank] = blocks;
    };
  }

  void start(std::uint32_t card_blocks = 0) {
    Card card;
    card.endpoint = *parse_endpoint(kUrl);
    card.total_kv_blocks = card_blocks;
    in_turn([&] {
      fleet = std::make_unique<LiveFleet>(
          options,
          [this](const engine::ClientOptions&) { return std::make_unique<FakeClient>(fake); },
          resolver, [](const std::shared_ptr<const Fleet>&) {});
      fleet->set_cards("test", {card});
      fleet->start();
    });
  }
  std::optional<std::uint64_t> blocks(std::uint32_t rank) const {
    const auto found = reported.find(rank);
    return found == reported.end() ? std::nullopt : found->second;
  }
  std::int64_t failures() const { return options.load.counters->failed(); }
  /// Waits until so many more checks of health ended: time enough for questions.
  void wait_checks(int more) {
    const int before = fake.checks;
    ASSERT_TRUE(wait([&] { return fake.checks >= before + more; }));
  }

  LiveFleetOptions options;
  FakeEngine fake;
  FakeResolver resolver;
  bool wanted = true;
  std::map<std::uint32_t, std::optional<std::uint64_t>> reported;
  std::unique_ptr<LiveFleet> fleet;
};

TEST_F(EngineLoadTest, SharesBecomeBlocksOfEachRank) {
  start();
  ASSERT_TRUE(wait([&] { return blocks(0) == 50U && blocks(1) == 200U; }));
  fake.usage = std::vector<engine::KvUsage>{{.rank = 0, .share = 0.5}, {.rank = 1, .share = 0}};
  ASSERT_TRUE(wait([&] { return blocks(0) == 100U && blocks(1) == 0U; }));
  EXPECT_EQ(failures(), 0);
  std::string text;
  observe::TextWriter writer(text, "p");
  options.load.counters->collect(writer);
  EXPECT_THAT(text, HasSubstr("p_engine_load_polls_total{result=\"failure\"} 0\n"));
}

TEST_F(EngineLoadTest, NobodyIsAskedUnlessSomebodyWantsToKnow) {
  wanted = false;
  start();
  wait_checks(10);
  EXPECT_EQ(fake.usage_asked, 0);
  wanted = true;
  ASSERT_TRUE(wait([&] { return blocks(1) == 200U; }));
  wanted = false;
  ASSERT_TRUE(wait([&] { return !blocks(1); })) << "forgotten";
}

TEST_F(EngineLoadTest, AWireThatCannotTellIsNotAsked) {
  fake.tells_load = false;
  start();
  wait_checks(10);
  EXPECT_EQ(fake.usage_asked, 0);
}

TEST_F(EngineLoadTest, BlocksThatTheEngineDoesNotTellAreItsCards) {
  fake.info->total_kv_blocks = 0;
  start(40);
  ASSERT_TRUE(wait([&] { return blocks(0) == 10U; }));
}

TEST_F(EngineLoadTest, WithoutBlocksNobodyIsAsked) {
  fake.info->total_kv_blocks = 0;
  start();
  wait_checks(10);
  EXPECT_EQ(fake.usage_asked, 0);
}

TEST_F(EngineLoadTest, AFewFailuresAreToleratedAndManyForgetTheAnswer) {
  options.load.most_failures = 1000;
  start();
  ASSERT_TRUE(wait([&] { return blocks(0) == 50U; }));
  fake.usage.reset();
  ASSERT_TRUE(wait([&] { return failures() >= 2; }));
  EXPECT_EQ(blocks(0), 50U);
  EXPECT_TRUE(fleet->snapshot()->worker(worker_id(kUrl))->healthy);
  options.load.most_failures = 3;  // of later fleets only
  in_turn([this] { fleet.reset(); });
  reported.clear();
  fake.usage = std::vector<engine::KvUsage>{{.rank = 0, .share = 0.25}};
  start();
  ASSERT_TRUE(wait([&] { return blocks(0) == 50U; }));
  fake.usage = std::vector<engine::KvUsage>();
  ASSERT_TRUE(wait([&] { return !blocks(0); })) << "an answer about no rank is none";
}

TEST_F(EngineLoadTest, AWorkerThatLeavesIsForgottenAtOnce) {
  start();
  ASSERT_TRUE(wait([&] { return blocks(0) == 50U; }));
  in_turn([&] {
    const auto worker = fleet->snapshot()->worker(worker_id(kUrl));
    fake.info.reset();
    fleet->report(worker->id, worker->incarnation, Outcome::Down);
  });
  EXPECT_EQ(blocks(0), std::nullopt);
  EXPECT_EQ(blocks(1), std::nullopt);
  const int asked = fake.usage_asked;
  const int probes = fake.probes;
  ASSERT_TRUE(wait([&] { return fake.probes > probes + 3; }));
  EXPECT_LE(fake.usage_asked, asked + 1);
  EXPECT_EQ(blocks(0), std::nullopt) << "also when an answer was on its way";
}

}  // namespace
}  // namespace fairlead::fleet
