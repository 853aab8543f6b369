#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kv_queue_testing.hpp"
#include "routing/router.hpp"

namespace fairlead::routing {
namespace {

/// One worker is busy with a request, more than a step of 8192 tokens; two more wait for it.
struct KvQueueTwoWait : testing::Test {
  void SetUp() override {
    Result<Reservation> chosen = first.choose(router, set);
    ASSERT_TRUE(chosen && *chosen);
    running = std::move(*chosen);
    for (Waiting* waiting : {second.get(), &third}) {
      chosen = waiting->choose(router, set);
      ASSERT_TRUE(chosen);
      ASSERT_FALSE(*chosen);
    }
  }

  Router router{queue_options(1)};
  std::shared_ptr<fleet::WorkerSet> set = make_kv_set(1);
  Waiting first;
  std::unique_ptr<Waiting> second = std::make_unique<Waiting>();
  Waiting third;
  Reservation running;
};

TEST_F(KvQueueTwoWait, GoInOrderWhenAPromptIsComputed) {
  EXPECT_TRUE(router.queues("m"));
  EXPECT_EQ(metric(router, "p_router_queue_pending_requests{worker_type=\"decode\"}"), 2);
  EXPECT_EQ(second->woken, 0);
  running.prefill_complete();
  EXPECT_EQ(second->woken, 1);
  EXPECT_EQ(third.woken, 0) << "one at a time";
  auto next = second->choose(router, set);
  ASSERT_TRUE(next && *next);
  EXPECT_EQ(third.woken, 0) << "the worker is busy again";
  next->release();
  EXPECT_EQ(third.woken, 1);
  auto last = third.choose(router, set);
  ASSERT_TRUE(last && *last);
  EXPECT_EQ(metric(router, "p_router_queue_pending_requests{worker_type=\"decode\"}"), 0);
  EXPECT_EQ(metric(router, "p_router_queued_requests_total{worker_type=\"decode\"}"), 2);
}

TEST_F(KvQueueTwoWait, WhoeverLeavesLetsTheNextOneGo) {
  running.release();
  EXPECT_EQ(second->woken, 1);
  second.reset();  // its client left before it could choose
  EXPECT_EQ(third.woken, 1);
  auto last = third.choose(router, set);
  EXPECT_TRUE(last && *last);
}

TEST_F(KvQueueTwoWait, ATryThatFailsKeepsItsPlace) {
  running.release();
  ASSERT_EQ(second->woken, 1);
  // Somebody who does not wait took the place meanwhile.
  auto taken = router.choose(
      set, {}, {.prompt_tokens = 10'000, .block_size = 16, .expected_output = {}}, nullptr);
  ASSERT_TRUE(taken && *taken);
  auto again = second->choose(router, set);
  ASSERT_TRUE(again);
  EXPECT_FALSE(*again);
  EXPECT_EQ(third.woken, 0);
  taken->release();
  EXPECT_EQ(second->woken, 2);
  EXPECT_EQ(third.woken, 0);
}

TEST(KvQueue, AFullQueueRefuses) {
  Router router(queue_options(1, 1));
  const auto set = make_kv_set(1);
  Waiting first;
  auto running = first.choose(router, set);
  Waiting second;
  ASSERT_TRUE(second.choose(router, set));
  Waiting third;
  const auto refused = third.choose(router, set);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::QueueFull);
  EXPECT_EQ(metric(router, "p_router_queue_refused_total{worker_type=\"decode\"}"), 1);
}

TEST(KvQueue, EachClassHasMetricsOfItsOwn) {
  RouterOptions with_file{.mode = RouterMode::Kv, .seed = 1};
  with_file.policies = std::make_shared<const PolicyConfig>(*PolicyConfig::parse(
      "default_policy_family: f\n"
      "uncached_isl_buckets: [{min_tokens: 0, bucket: b}]\n"
      "policy_classes:\n"
      "- {name: one, policy_family: f, cache_bucket: b, quantum: 1, prefill_busy_threshold: 10,\n"
      "   request_queue_limit_per_worker: 2}\n"
      "- {name: two, quantum: 1, prefill_busy_threshold: 10,\n"
      "   raw_isl_token_queue_limit_per_worker: 10000}\n"
      "- {name: never, quantum: 1}\n",
      {}));
  with_file.queue_limit = 3;
  Router router(with_file);
  auto set = make_kv_set(1);
  const auto of = [&](std::string_view name, std::string_view labels, std::string_view more = "") {
    return metric(router, fmt::format("p_router_queue_class_{}{{model=\"m\",policy_class=\"{}\","
                                      "worker_type=\"decode\"{}}}",
                                      name, labels, more));
  };
  {
    Waiting busy;
    auto running = busy.choose(router, set);
    ASSERT_TRUE(running && *running);
    EXPECT_EQ(of("pending_requests", "one"), 0);
    EXPECT_EQ(of("pending_requests", "never"), -1) << "nobody can wait in it";
    Waiting first;
    auto second = std::make_unique<Waiting>();
    Waiting over;
    Waiting other({.policy_class = "two"});
    Waiting other_over({.policy_class = "two"});
    ASSERT_TRUE(first.choose(router, set));
    ASSERT_TRUE(second->choose(router, set));
    EXPECT_FALSE(over.choose(router, set));
    EXPECT_EQ(of("refused_total", "one", ",reason=\"requests\""), 1);
    second.reset();
    ASSERT_TRUE(other.choose(router, set));
    EXPECT_FALSE(other_over.choose(router, set));
    EXPECT_EQ(of("refused_total", "two", ",reason=\"prompt_tokens\""), 1);
    Waiting third;
    ASSERT_TRUE(third.choose(router, set));
    Waiting beyond({.policy_class = "a name of the client's"});
    EXPECT_FALSE(beyond.choose(router, set));
    EXPECT_EQ(of("refused_total", "one", ",reason=\"all_classes\""), 1);
    EXPECT_EQ(of("pending_requests", "one"), 2);
    EXPECT_EQ(of("pending_requests", "two"), 1);
    EXPECT_EQ(of("wait_seconds_count", "one"), 1) << "the one that left";
    running->release();
    auto next = first.choose(router, set);
    ASSERT_TRUE(next && *next);
    EXPECT_EQ(of("wait_seconds_count", "one"), 2);
    EXPECT_GT(of("wait_seconds_sum", "one"), 0);
    EXPECT_LT(of("wait_seconds_sum", "one"), 60);
    EXPECT_EQ(of("wait_seconds_count", "two"), 0);
    EXPECT_EQ(metric(router, "p_router_queue_refused_total{worker_type=\"decode\"}"), 3);
  }
  router.retain(fleet::Fleet{});  // the set is gone, its counts are not
  EXPECT_EQ(of("pending_requests", "one"), 0);
  EXPECT_EQ(of("wait_seconds_count", "one"), 3);
  EXPECT_EQ(of("wait_seconds_count", "two"), 1);
  EXPECT_EQ(of("refused_total", "two", ",reason=\"prompt_tokens\""), 1);
  EXPECT_EQ(metric(router, "p_router_queued_requests_total{worker_type=\"decode\"}"), 4);
}

TEST(KvQueue, ANamedWorkerIsWaitedForWhileOthersAreIdle) {
  Router router(queue_options(1));
  const auto set = make_kv_set(2);
  Waiting first;
  auto running = first.choose(router, set, {.worker_id = 100, .excluded = {}, .adapter = {}});
  Waiting second;
  auto parked = second.choose(router, set, {.worker_id = 100, .excluded = {}, .adapter = {}});
  ASSERT_TRUE(parked);
  EXPECT_FALSE(*parked);
  running->release();
  EXPECT_EQ(second.woken, 1);
}

TEST_F(KvQueueTwoWait, AWorkerThatJoinsRelievesThem) {
  const auto larger = make_kv_set(2);
  const fleet::Fleet fleet = fleet_of(larger);
  router.expect(fleet);
  EXPECT_EQ(second->woken, 0);
  router.retain(fleet);
  ASSERT_EQ(second->woken, 1);
  auto next = second->choose(router, larger);
  ASSERT_TRUE(next && *next);
  EXPECT_EQ(next->worker().id, 101U);
  EXPECT_EQ(third.woken, 0) << "both are busy now";
}

TEST(KvQueue, ASetThatIsExpectedHasTheThresholdsOfItsModel) {
  Router router(queue_options(1));
  fleet::Model model;
  model.name = "m";
  model.worker_sets = {make_kv_set(1)};
  router.set_thresholds(model, {.active_prefill_tokens = 100});
  const auto successor = make_kv_set(1);
  successor->id = 8;
  fleet::Fleet fleet = fleet_of(successor);
  auto with_name = std::make_shared<fleet::Model>(*fleet.models[0]);
  with_name->name = "m";
  fleet.models[0] = with_name;
  router.expect(fleet);
  const KvRoute route{.prompt_tokens = 101, .block_size = 16, .expected_output = {}};
  const auto first = router.choose(successor, {}, route);
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(router.choose(successor, {}, route).error().code, ErrorCode::Overloaded);
}

TEST_F(KvQueueTwoWait, AWorkerThatIsHealthyAgainRelievesThem) {
  const auto well = make_kv_set(2);
  const auto sick = make_kv_set(2);
  auto down = std::make_shared<fleet::Worker>(*sick->workers[1]);
  down->healthy = false;
  sick->workers[1] = down;
  const auto tell = [&](const std::shared_ptr<const fleet::WorkerSet>& now) {
    const fleet::Fleet fleet = fleet_of(now);
    router.expect(fleet);
    router.retain(fleet);
  };
  tell(sick);
  EXPECT_EQ(second->woken, 0);
  tell(well);
  ASSERT_EQ(second->woken, 1);
  auto next = second->choose(router, well);
  EXPECT_TRUE(next && *next);
}

TEST_F(KvQueueTwoWait, WhoHasToWaitAgainIsCountedOnce) {
  running.release();
  auto next = second->choose(router, set);
  ASSERT_TRUE(next && *next);
  // Its worker failed it before it answered: it chooses anew with the same place.
  auto taken = router.choose(
      set, {}, {.prompt_tokens = 10'000, .block_size = 16, .expected_output = {}}, nullptr);
  ASSERT_TRUE(taken && *taken);
  next->release();
  next = second->choose(router, set);
  ASSERT_TRUE(next);
  EXPECT_FALSE(*next);
  EXPECT_EQ(metric(router, "p_router_queue_pending_requests{worker_type=\"decode\"}"), 2);
  EXPECT_EQ(metric(router, "p_router_queued_requests_total{worker_type=\"decode\"}"), 2);
}

TEST_F(KvQueueTwoWait, ASetThatIsGoneWakesEverybody) {
  router.retain(fleet::Fleet{});
  EXPECT_EQ(second->woken, 1);
  EXPECT_EQ(third.woken, 1);
  // They find their way to another one.
  auto other = make_kv_set(1);
  other->id = 8;
  auto moved = second->choose(router, other);
  EXPECT_TRUE(moved && *moved);
}

// Threads that come, go and leave: whatever happened, nothing is left behind.
TEST(KvQueue, ThreadsLeaveNothingBehind) {
  Router router(queue_options(1));
  const auto set = make_kv_set(2);
  const auto work = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int i = 0; i < 300; ++i) {
      Waiting one;
      for (;;) {
        const int before = one.woken;
        auto chosen = one.choose(router, set);
        if (!chosen) {
          return;
        }
        if (*chosen) {
          if (random() % 2 == 0) {
            chosen->prefill_complete();
          }
          break;  // gives its booking back
        }
        if (random() % 8 == 0) {
          break;  // leaves
        }
        while (one.woken == before) {
          std::this_thread::yield();
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back(work, seed);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(metric(router, "p_router_queue_pending_requests{worker_type=\"decode\"}"), 0);
  for (const auto& worker : set->workers) {
    EXPECT_EQ(router.in_flight(worker->id), 0U);
  }
}

}  // namespace
}  // namespace fairlead::routing
