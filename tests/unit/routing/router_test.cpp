#include "routing/router.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

namespace fairlead::routing {
namespace {

fleet::WorkerSet make_set(std::size_t workers, std::vector<std::size_t> unhealthy = {}) {
  fleet::WorkerSet set;
  set.id = 7;
  set.slot_count = workers;
  for (std::size_t slot = 0; slot < workers; ++slot) {
    auto worker = std::make_shared<fleet::Worker>();
    worker->id = 100 + slot;
    worker->slot = slot;
    worker->healthy = std::ranges::find(unhealthy, slot) == unhealthy.end();
    set.workers.push_back(std::move(worker));
  }
  return set;
}

std::map<std::uint64_t, int> spread(Router& router, const fleet::WorkerSet& set, int requests) {
  std::map<std::uint64_t, int> counts;
  for (int i = 0; i < requests; ++i) {
    auto reservation = router.choose(set, {});
    EXPECT_TRUE(reservation);
    ++counts[reservation->worker().id];
  }
  return counts;
}

RouteRequest ranked(std::uint32_t rank, std::optional<std::uint64_t> worker = {}) {
  RouteRequest request;
  request.rank = rank;
  request.worker_id = worker;
  return request;
}

TEST(Router, RoundRobinIsEven) {
  Router router(RouterMode::RoundRobin, 1);
  const auto set = make_set(4, {2});
  EXPECT_EQ(spread(router, set, 30),
            (std::map<std::uint64_t, int>{{100, 10}, {101, 10}, {103, 10}}));
}

TEST(Router, ANamedRankIsSoughtAtTheWorkersThatHaveIt) {
  auto set = make_set(3, {2});
  auto more = std::make_shared<fleet::Worker>(*set.workers[1]);
  more->info.data_parallel_size = 2;
  set.workers[1] = more;
  for (const RouterMode mode : {RouterMode::RoundRobin, RouterMode::LeastLoaded}) {
    Router router(mode, 1);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(router.choose(set, ranked(1))->worker().id, 101u);
    }
    const auto nobody = router.choose(set, ranked(7));
    ASSERT_FALSE(nobody);
    EXPECT_EQ(nobody.error().code, ErrorCode::InvalidRequest);
    EXPECT_EQ(nobody.error().message, "no worker has rank 7");
    EXPECT_EQ(nobody.error().param, "x-dynamo-dp-rank");
    const auto pinned = router.choose(set, ranked(1, 100));
    ASSERT_FALSE(pinned);
    EXPECT_EQ(pinned.error().message, "worker 100 has no rank 1");
    // A rank that somebody has who cannot be had now is no mistake of the request.
    const auto down = router.choose(set, ranked(0, 102));
    ASSERT_FALSE(down);
    EXPECT_EQ(down.error().code, ErrorCode::NoWorkers);
  }
}

TEST(Router, RandomModesReachEveryWorker) {
  for (const RouterMode mode : {RouterMode::Random, RouterMode::PowerOfTwo}) {
    Router router(mode, 42);
    const auto counts = spread(router, make_set(4), 4000);
    ASSERT_EQ(counts.size(), 4u);
    for (const auto& [worker, count] : counts) {
      EXPECT_GT(count, 800) << worker;
    }
  }
}

TEST(Router, LeastLoadedFillsTheEmptiestAndSharesTies) {
  Router router(RouterMode::LeastLoaded, 1);
  const auto set = make_set(3);
  std::vector<Reservation> held;
  for (int i = 0; i < 9; ++i) {
    held.push_back(std::move(*router.choose(set, {})));
  }
  for (const std::uint64_t worker : {100, 101, 102}) {
    EXPECT_EQ(router.in_flight(worker), 3u);
  }
  std::erase_if(held, [](const Reservation& r) { return r.worker().id == 101; });
  EXPECT_EQ(router.choose(set, {})->worker().id, 101u);
}

TEST(Router, PowerOfTwoNeverTakesTheMoreLoadedOfTwo) {
  Router router(RouterMode::PowerOfTwo, 3);
  const auto set = make_set(2);
  std::vector<Reservation> held;
  for (int i = 0; i < 100; ++i) {
    held.push_back(std::move(*router.choose(set, {})));
  }
  EXPECT_EQ(router.in_flight(100), 50u);
  EXPECT_EQ(router.in_flight(101), 50u);
}

TEST(Router, DirectModeNeedsAUsableWorker) {
  Router router(RouterMode::Direct, 1);
  const auto set = make_set(3, {1});
  EXPECT_EQ(router.choose(set, {}).error().code, ErrorCode::InvalidRequest);
  EXPECT_EQ(router.choose(set, {.worker_id = 102, .excluded = {}, .adapter = {}})->worker().id,
            102u);
  EXPECT_EQ(router.choose(set, {.worker_id = 101, .excluded = {}, .adapter = {}}).error().code,
            ErrorCode::NoWorkers);
  EXPECT_EQ(router.choose(set, {.worker_id = 9, .excluded = {}, .adapter = {}}).error().code,
            ErrorCode::NoWorkers);
}

TEST(Router, ExcludedWorkersAreLeftOut) {
  Router router(RouterMode::RoundRobin, 1);
  const auto set = make_set(2);
  const std::vector<std::uint64_t> excluded{100};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(
        router.choose(set, {.worker_id = {}, .excluded = excluded, .adapter = {}})->worker().id,
        101u);
  }
  const std::vector<std::uint64_t> all{100, 101};
  EXPECT_FALSE(router.choose(set, {.worker_id = {}, .excluded = all, .adapter = {}}));
}

TEST(Router, ReservationsAreGivenBackOnEveryPath) {
  Router router(RouterMode::RoundRobin, 1);
  const auto set = make_set(1);
  Reservation a = std::move(*router.choose(set, {}));
  Reservation b = std::move(*router.choose(set, {}));
  EXPECT_EQ(router.in_flight(100), 2u);
  b = std::move(a);
  EXPECT_EQ(router.in_flight(100), 1u);
  b.release();
  b.release();
  EXPECT_EQ(router.in_flight(100), 0u);
}

TEST(Router, ManyThreadsLeaveNothingBehind) {
  Router router(RouterMode::LeastLoaded, 1);
  const auto set = make_set(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] { spread(router, set, 5000); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::uint64_t worker : {100, 101, 102}) {
    EXPECT_EQ(router.in_flight(worker), 0u);
  }
}

TEST(Router, ASlotThatChangesHandsKeepsItsWorkersApart) {
  Router router(RouterMode::LeastLoaded, 1);
  fleet::WorkerSet set = make_set(2);
  Reservation old = std::move(*router.choose(set, {}));
  Reservation other = std::move(*router.choose(set, {}));
  const std::uint64_t left = old.worker().id;
  // Another worker takes the slot while the first one's request still runs.
  auto successor = std::make_shared<fleet::Worker>(*set.workers[old.worker().slot]);
  successor->id = 900;
  set.workers[successor->slot] = successor;
  const Reservation fresh = std::move(*router.choose(set, {}));
  EXPECT_EQ(fresh.worker().id, 900u) << "the new one starts empty";
  EXPECT_EQ(router.in_flight(left), 1u);
  EXPECT_EQ(router.in_flight(900), 1u);
  old.release();
  EXPECT_EQ(router.in_flight(left), 0u);
  EXPECT_EQ(router.in_flight(900), 1u);
}

TEST(Router, ASetMayGrow) {
  Router router(RouterMode::RoundRobin, 1);
  EXPECT_EQ(spread(router, make_set(1), 4).size(), 1u);
  EXPECT_EQ(spread(router, make_set(3), 30),
            (std::map<std::uint64_t, int>{{100, 10}, {101, 10}, {102, 10}}));
}

TEST(Router, WhatLeftTheFleetIsForgottenWhenItIsIdle) {
  Router router(RouterMode::LeastLoaded, 1);
  const auto set = std::make_shared<fleet::WorkerSet>(make_set(2));
  Reservation held = std::move(*router.choose(*set, {}));
  router.choose(*set, {})->release();
  router.retain(fleet::Fleet());
  const auto samples = [&] {
    std::string text;
    observe::TextWriter writer(text, "p");
    router.collect(writer);
    int count = 0;
    for (auto at = text.find("{worker_id"); at != text.npos; at = text.find("{worker_id", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(samples(), 2) << "a request still runs there";
  held.release();
  router.retain(fleet::Fleet());
  EXPECT_EQ(samples(), 0);
  // A worker that left its set.
  router.choose(*set, {})->release();
  router.choose(*set, {})->release();
  EXPECT_EQ(samples(), 2);
  auto smaller = std::make_shared<fleet::WorkerSet>(*set);
  smaller->workers.pop_back();
  auto model = std::make_shared<fleet::Model>();
  model->worker_sets.push_back(smaller);
  fleet::Fleet fleet;
  fleet.models.push_back(model);
  router.retain(fleet);
  EXPECT_EQ(samples(), 1);
}

TEST(Router, AnAdapterGoesOnlyWhereItIs) {
  Router router(RouterMode::RoundRobin, 1);
  fleet::WorkerSet set = make_set(3);
  auto with = std::make_shared<fleet::Worker>(*set.workers[1]);
  with->adapters = {"a", "b"};
  set.workers[1] = with;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(router.choose(set, {.worker_id = {}, .excluded = {}, .adapter = "b"})->worker().id,
              101u);
  }
  EXPECT_EQ(router.choose(set, {.worker_id = {}, .excluded = {}, .adapter = "c"}).error().code,
            ErrorCode::NoWorkers);
}

TEST(RouterMode, NamesOfTheCommandLine) {
  EXPECT_EQ(parse_router_mode("power-of-two"), RouterMode::PowerOfTwo);
  EXPECT_EQ(parse_router_mode("direct"), RouterMode::Direct);
  EXPECT_FALSE(parse_router_mode("Round-Robin"));
}

TEST(Router, AHalfOpenWorkerGetsOneRequestAtATime) {
  for (const RouterMode mode :
       {RouterMode::RoundRobin, RouterMode::Random, RouterMode::LeastLoaded}) {
    Router router(mode, 1);
    fleet::WorkerSet set = make_set(2);
    auto tried = std::make_shared<fleet::Worker>(*set.workers[0]);
    tried->circuit = fleet::Circuit::HalfOpen;
    set.workers[0] = tried;
    std::vector<Reservation> held;
    int trials = 0;
    for (int i = 0; i < 20; ++i) {
      held.push_back(std::move(*router.choose(set, {})));
      trials += held.back().worker().id == 100 ? 1 : 0;
    }
    EXPECT_EQ(trials, 1);
    EXPECT_FALSE(router.choose(set, {.worker_id = 100, .excluded = {}, .adapter = {}}));
    held.clear();
    EXPECT_TRUE(router.choose(set, {.worker_id = 100, .excluded = {}, .adapter = {}}))
        << "the next one, once the trial has ended";
    held.push_back(
        std::move(*router.choose(set, {.worker_id = 100, .excluded = {}, .adapter = {}})));
    auto closed = std::make_shared<fleet::Worker>(*tried);
    closed->circuit = fleet::Circuit::Closed;
    set.workers[0] = closed;
    EXPECT_TRUE(router.choose(set, {.worker_id = 100, .excluded = {}, .adapter = {}}));
    held.clear();
    EXPECT_EQ(router.in_flight(100), 0U);
  }
}

}  // namespace
}  // namespace fairlead::routing
