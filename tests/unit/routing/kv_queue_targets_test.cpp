#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv_queue_testing.hpp"

// Requests that wait and may go to some targets only.

namespace fairlead::routing {
namespace {

/// Worker 100 with two ranks, or 100 and 101 with one, all of them busy. One request of class
/// `one` waits that may only go to the first of both, and one of class `two` that may go to each.
struct KvQueueTwoClasses : testing::Test {
  static RouterOptions classes() {
    RouterOptions out{.mode = RouterMode::Kv, .seed = 1};
    out.policies = std::make_shared<const PolicyConfig>(*PolicyConfig::parse(
        "default_policy_family: f\n"
        "uncached_isl_buckets: [{min_tokens: 0, bucket: b}]\n"
        "policy_classes:\n"
        "- {name: one, policy_family: f, cache_bucket: b, quantum: 100, prefill_busy_threshold: "
        "10}\n"
        "- {name: two, quantum: 100, prefill_busy_threshold: 10}\n",
        {}));
    return out;
  }

  void wait(const RouteRequest& only_first, std::optional<TargetRef> bound = {}) {
    for (Reservation& each : running) {
      Waiting request;
      auto chosen = request.choose(router, set);
      ASSERT_TRUE(chosen && *chosen);
      each = std::move(*chosen);
    }
    const auto first_of_both = [](const Reservation& one) {
      return one.worker().id == 100 && *one.rank() == 0;
    };
    if (!first_of_both(running[0])) {
      std::swap(running[0], running[1]);
    }
    ASSERT_TRUE(first_of_both(running[0]));
    ASSERT_FALSE(first_of_both(running[1]));
    auto parked = picky.choose(router, set, only_first, bound);
    ASSERT_TRUE(parked);
    ASSERT_FALSE(*parked);
    parked = easy.choose(router, set);
    ASSERT_TRUE(parked);
    ASSERT_FALSE(*parked);
  }
  void check(const RouteRequest& only_first, std::optional<TargetRef> bound = {}) {
    wait(only_first, bound);
    running[1].release();
    EXPECT_EQ(picky.woken, 0);
    ASSERT_EQ(easy.woken, 1) << "the first of the other class holds nobody of this one";
    auto gone = easy.choose(router, set);
    ASSERT_TRUE(gone && *gone);
    EXPECT_EQ(picky.woken, 0);
    running[0].release();
    ASSERT_EQ(picky.woken, 1);
    gone = picky.choose(router, set, only_first, bound);
    EXPECT_TRUE(gone && *gone);
  }

  Router router{classes()};
  std::shared_ptr<fleet::WorkerSet> set = make_kv_set(2);
  Waiting picky;
  Waiting easy{{.policy_class = "two"}};
  std::array<Reservation, 2> running;
};

TEST_F(KvQueueTwoClasses, AWorkerThatIsNamed) {
  check({.worker_id = 100, .excluded = {}, .adapter = {}});
}

TEST_F(KvQueueTwoClasses, ARankThatIsNamed) {
  set = make_kv_set(1, 2);
  check({.worker_id = {}, .excluded = {}, .adapter = {}, .rank = 0});
}

TEST_F(KvQueueTwoClasses, AWorkerThatIsExcluded) {
  const std::array<std::uint64_t, 1> excluded{101};
  check({.worker_id = {}, .excluded = excluded, .adapter = {}});
}

TEST_F(KvQueueTwoClasses, AnAdapterThatOneWorkerHas) {
  auto with = std::make_shared<fleet::Worker>(*set->workers[0]);
  with->adapters = {"tuned"};
  set->workers[0] = with;
  check({.worker_id = {}, .excluded = {}, .adapter = "tuned"});
}

TEST_F(KvQueueTwoClasses, ATaintThatOneWorkerHas) {
  auto with = std::make_shared<fleet::Worker>(*set->workers[0]);
  with->taints = {"fast"};
  set->workers[0] = with;
  const std::array<std::string, 1> required{"fast"};
  check({.worker_id = {}, .excluded = {}, .adapter = {}, .required_taints = required});
}

TEST_F(KvQueueTwoClasses, ARankThatASessionIsBoundTo) {
  set = make_kv_set(1, 2);
  check({}, TargetRef{.worker_id = 100, .rank = 0});
}

TEST_F(KvQueueTwoClasses, WhoReturnsToItsPlaceMakesWayForOthers) {
  const RouteRequest only_first{.worker_id = 100, .excluded = {}, .adapter = {}};
  wait(only_first);
  running[0].release();
  ASSERT_EQ(picky.woken, 1);
  auto taken = router.choose(
      set, only_first, {.prompt_tokens = 10'000, .block_size = 16, .expected_output = {}}, nullptr);
  ASSERT_TRUE(taken && *taken);
  running[1].release();
  EXPECT_EQ(easy.woken, 0) << "one at a time";
  auto back = picky.choose(router, set, only_first);
  ASSERT_TRUE(back);
  EXPECT_FALSE(*back);
  EXPECT_EQ(picky.woken, 1);
  EXPECT_EQ(easy.woken, 1);
}

/// Worker 100 is overloaded, worker 101 busy; a session is bound to the first.
struct KvQueueBound : testing::Test {
  void SetUp() override {
    RouterOptions with = queue_options(1);
    with.thresholds.active_prefill_tokens = 15'000;
    router = std::make_unique<Router>(with);
    for (const auto& [worker, tokens] : {std::pair(100U, 20'000U), std::pair(101U, 10'000U)}) {
      auto chosen = router->choose(
          set, {.worker_id = worker, .excluded = {}, .adapter = {}},
          {.prompt_tokens = tokens, .block_size = 16, .expected_output = {}}, nullptr);
      ASSERT_TRUE(chosen && *chosen);
      running.push_back(std::move(*chosen));
    }
  }

  const TargetRef bound{.worker_id = 100, .rank = 0};
  std::unique_ptr<Router> router;
  std::shared_ptr<fleet::WorkerSet> set = make_kv_set(2);
  Waiting plain;
  Waiting session;
  std::vector<Reservation> running;
};

TEST_F(KvQueueBound, WaitsLikeOthersWhenItsWorkerIsOverloaded) {
  auto chosen = plain.choose(*router, set);
  ASSERT_TRUE(chosen);
  ASSERT_FALSE(*chosen);
  chosen = session.choose(*router, set, {}, bound);
  ASSERT_TRUE(chosen);
  EXPECT_FALSE(*chosen) << "it passed the one that waits";
  running[1].release();
  ASSERT_EQ(plain.woken, 1);
  chosen = plain.choose(*router, set);
  ASSERT_TRUE(chosen && *chosen);
  EXPECT_EQ(session.woken, 0);
  chosen->release();
  ASSERT_EQ(session.woken, 1);
  chosen = session.choose(*router, set, {}, bound);
  ASSERT_TRUE(chosen && *chosen);
  EXPECT_EQ(chosen->worker().id, 101U);
}

TEST_F(KvQueueBound, WaitsLikeOthersWhenItsWorkerIsUnhealthy) {
  auto down = std::make_shared<fleet::Worker>(*set->workers[0]);
  down->healthy = false;
  const auto sick = make_kv_set(2);
  sick->workers[0] = down;
  auto chosen = session.choose(*router, sick, {}, bound);
  ASSERT_TRUE(chosen);
  EXPECT_FALSE(*chosen);
}

TEST_F(KvQueueBound, GoesHomeWhenItsWorkerHasRoomFirst) {
  auto chosen = session.choose(*router, set, {}, bound);
  ASSERT_TRUE(chosen);
  ASSERT_FALSE(*chosen);
  running[0].release();
  ASSERT_EQ(session.woken, 1);
  chosen = session.choose(*router, set, {}, bound);
  ASSERT_TRUE(chosen && *chosen);
  EXPECT_EQ(chosen->worker().id, 100U);
}

}  // namespace
}  // namespace fairlead::routing
