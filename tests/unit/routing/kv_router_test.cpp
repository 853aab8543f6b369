#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>

#include "kv_testing.hpp"

namespace fairlead::routing {
namespace {

class KvRouterTest : public ::testing::Test {
 protected:
  void start(std::size_t workers, RouterOptions options = {}, std::uint32_t ranks = 1) {
    options.mode = RouterMode::Kv;
    options.seed = 5;
    router_ = std::make_unique<Router>(options);
    set_ = make_kv_set(workers, ranks);
    places_ = make_places(*set_);
  }

  // A prompt of full blocks of 16 tokens and four more tokens.
  KvRoute route(const std::vector<kv::SequenceHash>& prompt) const {
    return {.prompt = prompt,
            .prompt_tokens = static_cast<std::uint32_t>(prompt.size() * 16 + 4),
            .block_size = 16,
            .places = places_};
  }

  Result<Reservation> choose(const KvRoute& route, const RouteRequest& request = {}) {
    return router_->choose(set_, request, route);
  }

  Reservation must(const KvRoute& route, const RouteRequest& request = {}) {
    auto chosen = choose(route, request);
    EXPECT_TRUE(chosen) << (chosen ? "" : chosen.error().message);
    return chosen ? std::move(*chosen) : Reservation();
  }

  double blocks(std::uint64_t worker, std::uint32_t rank = 0) const {
    return metric(*router_, "p_worker_active_decode_blocks{" + labels(worker, rank) + "}");
  }
  double prefill(std::uint64_t worker, std::uint32_t rank = 0) const {
    return metric(*router_, "p_worker_active_prefill_tokens{" + labels(worker, rank) + "}");
  }
  static std::string labels(std::uint64_t worker, std::uint32_t rank) {
    return "worker_id=\"" + std::to_string(worker) + "\",dp_rank=\"" + std::to_string(rank) +
           "\",worker_type=\"decode\"";
  }

  void replace(std::size_t slot, const std::function<void(fleet::Worker&)>& change) {
    auto next = std::make_shared<fleet::WorkerSet>(*set_);
    auto worker = std::make_shared<fleet::Worker>(*set_->workers[slot]);
    change(*worker);
    next->workers[slot] = worker;
    set_ = next;
  }

  std::unique_ptr<Router> router_;
  std::shared_ptr<fleet::WorkerSet> set_;
  std::vector<TargetPlace> places_;
};

TEST_F(KvRouterTest, TheWorkerThatHasThePromptGetsIt) {
  start(4);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  const std::vector<kv::Overlap> overlaps{{.target = 1, .device = 3, .host = 0, .disk = 0},
                                          {.target = 2, .device = 9, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  const Reservation chosen = must(route);
  EXPECT_EQ(chosen.worker().id, 102u);
  EXPECT_EQ(chosen.rank(), 0u);
  ASSERT_TRUE(chosen.decision());
  EXPECT_EQ(chosen.decision()->reason, PickReason::Overlap);
  EXPECT_EQ(chosen.decision()->cached.device, 9u);
  EXPECT_EQ(chosen.decision()->confirmed_blocks, 9u);
  EXPECT_EQ(chosen.decision()->total_blocks, 11u);
  EXPECT_EQ(chosen.decision()->cached_tokens, 144u);
  EXPECT_EQ(chosen.decision()->prefill_tokens, 20u);
  EXPECT_EQ(prefill(102), 20);
  EXPECT_EQ(blocks(102), 10);
  EXPECT_EQ(metric(*router_, "p_router_picks_total{reason=\"overlap\"}"), 1);
}

TEST_F(KvRouterTest, LoadOutweighsASmallOverlap) {
  start(2);
  std::vector<Reservation> held;
  for (std::uint64_t i = 0; i < 3; ++i) {
    held.push_back(
        must(route(make_prompt(10 + i, 20)), {.worker_id = 101, .excluded = {}, .adapter = {}}));
  }
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  const std::vector<kv::Overlap> overlaps{{.target = 1, .device = 5, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  const Reservation chosen = must(route);
  EXPECT_EQ(chosen.worker().id, 100u);
  EXPECT_EQ(chosen.decision()->reason, PickReason::LeastLoaded);
}

TEST_F(KvRouterTest, EqualCostsAreSharedByLot) {
  for (const std::size_t workers : {4, 100}) {
    start(workers);
    std::map<std::uint64_t, int> counts;
    for (int i = 0; i < 4000; ++i) {
      ++counts[must(route(make_prompt(1, 3))).worker().id];
    }
    ASSERT_EQ(counts.size(), workers);
    for (const auto& [worker, count] : counts) {
      EXPECT_GT(count, 4000 / static_cast<int>(workers) / 3) << worker;
    }
  }
}

TEST_F(KvRouterTest, PrefillEndsOnceAndOutputGrows) {
  RouterOptions options;
  options.kv.track_output_blocks = true;
  start(1, options);
  const auto prompt = make_prompt(1, 4);  // 68 tokens: the next block begins at 80
  KvRoute route = this->route(prompt);
  route.expected_output = 48;
  Reservation chosen = must(route);
  EXPECT_EQ(prefill(100), 68);
  chosen.prefill_complete();
  chosen.prefill_complete();
  EXPECT_EQ(prefill(100), 0);
  EXPECT_EQ(blocks(100), 4);
  chosen.add_output_tokens(12);
  EXPECT_EQ(blocks(100), 4) << "the last block is not over";
  chosen.add_output_tokens(1);
  // Five blocks of its own at a weight of 1 - 13/48.
  EXPECT_EQ(blocks(100), 4);
  chosen.add_output_tokens(16);
  EXPECT_EQ(blocks(100), 2) << "six at 1 - 29/48";
  chosen.add_output_tokens(48);
  EXPECT_EQ(blocks(100), 0) << "beyond what was expected";
  chosen.release();
  EXPECT_EQ(blocks(100), 0);
  EXPECT_EQ(router_->in_flight(100), 0u);
  Reservation without = must(this->route(prompt));
  without.add_output_tokens(30);
  EXPECT_EQ(blocks(100), 6) << "without a guess every block counts in full";
}

TEST_F(KvRouterTest, SharedPrefixesOfRunningRequestsCountOnce) {
  start(1);
  const Reservation a = must(route(make_prompt(1, 10, 1, 6)));
  const Reservation b = must(route(make_prompt(1, 10, 2, 6)));
  EXPECT_EQ(blocks(100), 14);
  RouterOptions options;
  options.kv.assume_kv_reuse = false;
  start(1, options);
  const Reservation c = must(route(make_prompt(1, 10)));
  const Reservation d = must(route(make_prompt(1, 10)));
  EXPECT_EQ(blocks(100), 20);
}

TEST_F(KvRouterTest, PromptsThatWereNotHashedCountInFull) {
  start(2);
  const auto unhashed = [](std::uint32_t blocks) {
    KvRoute out;
    out.prompt_tokens = blocks * 16 + 4;
    out.block_size = 16;
    return out;
  };
  const Reservation large = must(unhashed(40));
  EXPECT_EQ(blocks(large.worker().id), 40);
  const Reservation small = must(unhashed(2));
  const Reservation another = must(unhashed(2));
  EXPECT_NE(small.worker().id, large.worker().id);
  EXPECT_EQ(another.worker().id, small.worker().id);
  EXPECT_EQ(blocks(small.worker().id), 4);
}

TEST_F(KvRouterTest, PinsAreCheckedAndNeverRerouted) {
  RouterOptions options;
  options.thresholds.active_prefill_tokens = 100;
  start(3, options, 2);
  const auto prompt = make_prompt(1, 4);
  EXPECT_EQ(
      must(route(prompt), {.worker_id = 101, .excluded = {}, .adapter = {}}).decision()->reason,
      PickReason::Pinned);
  const RouteRequest rank1{.worker_id = 101, .excluded = {}, .adapter = {}, .rank = 1};
  EXPECT_EQ(must(route(prompt), rank1).rank(), 1u);
  EXPECT_EQ(choose(route(prompt), {.worker_id = 101, .excluded = {}, .adapter = {}, .rank = 2})
                .error()
                .code,
            ErrorCode::InvalidRequest);
  const auto nobodys =
      choose(route(prompt), {.worker_id = {}, .excluded = {}, .adapter = {}, .rank = 2});
  EXPECT_EQ(nobodys.error().code, ErrorCode::InvalidRequest);
  EXPECT_EQ(nobodys.error().param, "x-dynamo-dp-rank");
  EXPECT_EQ(choose(route(prompt), {.worker_id = 9, .excluded = {}, .adapter = {}}).error().code,
            ErrorCode::NoWorkers);
  const std::vector<std::uint64_t> excluded{101};
  EXPECT_EQ(
      choose(route(prompt), {.worker_id = 101, .excluded = excluded, .adapter = {}}).error().code,
      ErrorCode::NoWorkers);
  // One rank beyond the threshold does not make a worker overloaded, both do.
  const Reservation one = must(route(make_prompt(2, 10)), rank1);
  const Reservation more = must(route(prompt), rank1);
  const Reservation two =
      must(route(make_prompt(3, 10)), {.worker_id = 101, .excluded = {}, .adapter = {}, .rank = 0});
  EXPECT_EQ(choose(route(prompt), rank1).error().code, ErrorCode::Overloaded);
}

TEST_F(KvRouterTest, OverloadedWorkersGetNothingAndThresholdsChangeAtRunTime) {
  start(2);
  fleet::Model model;
  model.name = "m";
  model.worker_sets.push_back(set_);
  EXPECT_FALSE(router_->thresholds(model).any());
  const auto prompt = make_prompt(1, 10);
  std::vector<Reservation> held;
  held.push_back(must(route(prompt), {.worker_id = 100, .excluded = {}, .adapter = {}}));
  router_->set_thresholds(model, {.active_decode_blocks = {}, .active_prefill_tokens = 100});
  EXPECT_EQ(router_->thresholds(model).active_prefill_tokens, 100);
  held.push_back(must(route(prompt)));
  EXPECT_EQ(held.back().worker().id, 101u) << "the one with the prefix is busy";
  EXPECT_EQ(choose(route(prompt)).error().code, ErrorCode::Overloaded);
  held.front().prefill_complete();
  EXPECT_EQ(must(route(prompt)).worker().id, 100u);
  router_->set_thresholds(model, {});
  held.push_back(must(route(prompt)));
  // By blocks, booked here or reported by the engine.
  held.clear();
  router_->set_thresholds(model, {.active_decode_blocks = 0.5});
  router_->report_used_blocks(100, 0, 501);
  EXPECT_EQ(must(route(prompt)).worker().id, 101u);
  const Reservation large = must(route(make_prompt(4, 501)));
  EXPECT_EQ(choose(route(prompt)).error().code, ErrorCode::Overloaded);
  router_->report_used_blocks(100, 0, 500);
  EXPECT_EQ(must(route(prompt)).worker().id, 100u);
  // By the engine's tokens per step; the thresholds of a model hold for sets it gets later.
  router_->set_thresholds(model, {.active_prefill_tokens_frac = 0.5});
  set_ = make_kv_set(1);
  set_->id = 8;
  fleet::Fleet fleet;
  fleet.models.push_back(std::make_shared<fleet::Model>(model));
  auto grown = std::make_shared<fleet::Model>(model);
  grown->worker_sets.push_back(set_);
  fleet.models = {grown};
  router_->retain(fleet);
  const Reservation half = must(route(make_prompt(5, 256)));
  EXPECT_EQ(choose(route(prompt)).error().code, ErrorCode::Overloaded);
}

TEST_F(KvRouterTest, SessionsStayWhereTheyAreBound) {
  start(3, {}, 2);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  route.preferred = TargetRef{.worker_id = 102, .rank = 1};
  const std::vector<kv::Overlap> overlaps{{.target = 0, .device = 10, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  Reservation chosen = must(route, {.worker_id = 100, .excluded = {}, .adapter = {}});
  EXPECT_EQ(chosen.worker().id, 102u) << "beats overlap and pin";
  EXPECT_EQ(chosen.rank(), 1u);
  EXPECT_EQ(chosen.decision()->reason, PickReason::Affinity);
  route.preferred = TargetRef{.worker_id = 9, .rank = 0};
  EXPECT_EQ(must(route).worker().id, 100u) << "a worker that is gone binds nobody";
}

TEST_F(KvRouterTest, WorkersAreLeftOut) {
  start(4);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  const std::vector<kv::Overlap> overlaps{{.target = 0, .device = 10, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  const std::vector<std::uint64_t> excluded{100};
  EXPECT_NE(must(route, {.worker_id = {}, .excluded = excluded, .adapter = {}}).worker().id, 100u);
  replace(2, [](fleet::Worker& worker) {
    worker.adapters = {"a"};
    worker.taints = {"gpu", "zone"};
  });
  EXPECT_EQ(must(route, {.worker_id = {}, .excluded = {}, .adapter = "a"}).worker().id, 102u);
  EXPECT_EQ(choose(route, {.worker_id = {}, .excluded = {}, .adapter = "b"}).error().code,
            ErrorCode::NoWorkers);
  const std::vector<std::string> required{"zone"};
  const RouteRequest tainted{
      .worker_id = {}, .excluded = {}, .adapter = {}, .required_taints = required};
  EXPECT_EQ(must(route, tainted).worker().id, 102u);
  RouteRequest pinned = tainted;
  pinned.worker_id = 100;
  EXPECT_EQ(choose(route, pinned).error().code, ErrorCode::NoWorkers);
  KvRoute bound = route;
  bound.preferred = TargetRef{.worker_id = 100, .rank = 0};
  EXPECT_EQ(must(bound, tainted).worker().id, 102u);
  const std::vector<std::string> more{"zone", "none has it"};
  const auto none =
      choose(route, {.worker_id = {}, .excluded = {}, .adapter = {}, .required_taints = more});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::NoWorkers);
  EXPECT_THAT(none.error().message, ::testing::HasSubstr("`zone`, `none has it`"));
  KvRoute allowed = route;
  const std::vector<std::uint64_t> some{101, 103};
  allowed.allowed = some;
  EXPECT_THAT(must(allowed).worker().id, ::testing::AnyOf(101u, 103u));
  const std::vector<PreferredTaint> liked{{.name = "gpu", .weight = 5}};
  KvRoute cold = this->route(prompt);
  cold.preferred_taints = liked;
  EXPECT_EQ(must(cold).worker().id, 102u);
  replace(0, [](fleet::Worker& worker) { worker.healthy = false; });
  EXPECT_NE(must(route).worker().id, 100u);
}

TEST_F(KvRouterTest, ATargetWithoutALiveViewIsScoredByLoad) {
  start(2);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  places_[0].live = false;
  route.places = places_;
  route.degraded = true;
  const std::vector<kv::Overlap> overlaps{{.target = 0, .device = 10, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  std::set<std::pair<std::uint64_t, PickReason>> seen;
  for (int i = 0; i < 100; ++i) {
    const Reservation chosen = must(route);
    seen.emplace(chosen.worker().id, chosen.decision()->reason);
    EXPECT_EQ(chosen.decision()->cached, CachedBlocks{});
  }
  EXPECT_THAT(seen, ::testing::ElementsAre(std::pair(100u, PickReason::StaleView),
                                           std::pair(101u, PickReason::LeastLoaded)));
  // What was routed there lately is still known.
  const std::vector<kv::Overlap> predicted{{.target = 0, .device = 10, .host = 0, .disk = 0}};
  route.predicted = predicted;
  EXPECT_EQ(must(route).decision()->reason, PickReason::Overlap);
  // A place that names a worker no longer there counts for nothing.
  places_[0] = {.worker_id = 555, .slot = 0, .rank = 0, .live = true};
  route = this->route(prompt);
  route.overlaps = overlaps;
  EXPECT_EQ(must(route).decision()->cached, CachedBlocks{});
}

TEST_F(KvRouterTest, PredictionsAndEventsAreMergedByTheLongerOne) {
  start(1);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  const std::vector<kv::Overlap> overlaps{{.target = 0, .device = 3, .host = 4, .disk = 2}};
  const std::vector<kv::Overlap> predicted{{.target = 0, .device = 5, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  route.predicted = predicted;
  const Reservation chosen = must(route);
  EXPECT_EQ(chosen.decision()->cached, (CachedBlocks{.device = 5, .host = 2, .disk = 2}));
  EXPECT_EQ(chosen.decision()->confirmed_blocks, 3u);
}

TEST_F(KvRouterTest, TemperatureSpreadsByTheSoftmax) {
  RouterOptions options;
  options.kv.router_temperature = 1;
  options.kv.recompute_weight = 0;
  start(3, options);
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  const std::vector<kv::Overlap> overlaps{{.target = 0, .device = 10, .host = 0, .disk = 0},
                                          {.target = 1, .device = 5, .host = 0, .disk = 0}};
  route.overlaps = overlaps;
  std::map<std::uint64_t, int> counts;
  constexpr int kDraws = 30'000;
  for (int i = 0; i < kDraws; ++i) {
    const Reservation chosen = must(route);
    EXPECT_EQ(chosen.decision()->reason, PickReason::Sampled);
    ++counts[chosen.worker().id];
  }
  const double total = 1 + std::exp(-0.5) + std::exp(-1);
  EXPECT_NEAR(counts[100], kDraws / total, 600);
  EXPECT_NEAR(counts[101], kDraws * std::exp(-0.5) / total, 600);
  EXPECT_NEAR(counts[102], kDraws * std::exp(-1) / total, 600);
  KvRouterOverrides overrides;
  overrides.router_temperature = 0;
  route.overrides = &overrides;
  EXPECT_EQ(must(route).worker().id, 100u);
  overrides.router_temperature = -1;
  EXPECT_EQ(choose(route).error().code, ErrorCode::InvalidRequest);
}

TEST_F(KvRouterTest, AnExplanationListsEveryTargetAndBooksNothing) {
  RouterOptions options;
  options.thresholds.active_prefill_tokens = 100;
  start(3, options);
  const auto prompt = make_prompt(1, 10);
  const Reservation busy = must(route(prompt), {.worker_id = 102, .excluded = {}, .adapter = {}});
  KvRoute route = this->route(prompt);
  std::vector<CandidateCost> candidates;
  route.explain = &candidates;
  const auto decision = router_->preview(set_, {}, route);
  ASSERT_TRUE(decision);
  ASSERT_EQ(candidates.size(), 3u);
  EXPECT_TRUE(candidates[2].overloaded);
  EXPECT_EQ(candidates[2].load.active_prefix, 10u);
  EXPECT_EQ(candidates[0].terms.cost, decision->terms.cost);
  EXPECT_EQ(router_->in_flight(100) + router_->in_flight(101), 0u);
  EXPECT_EQ(metric(*router_, "p_router_picks_total{reason=\"least_loaded\"}"), -1);
}

TEST_F(KvRouterTest, AnExplanationOfABindingListsWhatElseWouldDo) {
  RouterOptions options;
  options.thresholds.active_prefill_tokens = 100;
  start(3, options, 2);
  replace(1, [](fleet::Worker& worker) { worker.healthy = false; });
  const auto prompt = make_prompt(1, 10);
  KvRoute route = this->route(prompt);
  std::vector<CandidateCost> candidates;
  route.explain = &candidates;
  const RouteRequest named{.worker_id = 102, .excluded = {}, .adapter = {}};
  auto decision = router_->preview(set_, named, route);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->reason, PickReason::Pinned);
  EXPECT_EQ(candidates.size(), 4u) << "two ranks of each that is well";
  candidates.clear();
  route.preferred = TargetRef{.worker_id = 100, .rank = 1};
  decision = router_->preview(set_, {}, route);
  ASSERT_TRUE(decision);
  EXPECT_EQ(decision->reason, PickReason::Affinity);
  EXPECT_EQ(candidates.size(), 4u);
  candidates.clear();
  const RouteRequest ranked{.worker_id = {}, .excluded = {}, .adapter = {}, .rank = 1};
  route.preferred.reset();
  ASSERT_TRUE(router_->preview(set_, ranked, route));
  EXPECT_EQ(candidates.size(), 2u);
}

TEST_F(KvRouterTest, ThresholdsChangeOneByOne) {
  start(2);
  fleet::Model model;
  model.name = "m";
  model.worker_sets = {set_};
  EXPECT_EQ(router_->change_thresholds(model, {}), BusyThresholds{});
  EXPECT_EQ(router_->change_thresholds(model, {.active_decode_blocks = {{0.5}}}),
            (BusyThresholds{.active_decode_blocks = 0.5}));
  EXPECT_EQ(router_->change_thresholds(model, {.active_prefill_tokens = {{7}}}),
            (BusyThresholds{.active_decode_blocks = 0.5, .active_prefill_tokens = 7}));
  const ThresholdChange off{.active_decode_blocks = std::optional<double>()};
  EXPECT_EQ(router_->change_thresholds(model, off), (BusyThresholds{.active_prefill_tokens = 7}));
  EXPECT_EQ(router_->thresholds(model), (BusyThresholds{.active_prefill_tokens = 7}));
  const auto prompt = make_prompt(1, 10);
  const Reservation one = must(route(prompt), {.worker_id = 100, .excluded = {}, .adapter = {}});
  const Reservation two = must(route(prompt), {.worker_id = 101, .excluded = {}, .adapter = {}});
  EXPECT_EQ(choose(route(prompt)).error().code, ErrorCode::Overloaded) << "in force at once";
}

TEST_F(KvRouterTest, OtherModesTakeTheSameCallAndCountTheirPicks) {
  Router router(RouterMode::RoundRobin, 1);
  set_ = make_kv_set(2, 4);
  const RouteRequest request{.worker_id = {}, .excluded = {}, .adapter = {}, .rank = 3};
  auto chosen = router.choose(set_, request, {});
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->rank(), 3u);
  EXPECT_EQ(chosen->decision(), nullptr);
  chosen->prefill_complete();
  chosen->add_output_tokens(100);
  router.choose(set_, {.worker_id = 100, .excluded = {}, .adapter = {}}, {})->release();
  EXPECT_EQ(metric(router, "p_router_picks_total{reason=\"round-robin\"}"), 1);
  EXPECT_EQ(metric(router, "p_router_picks_total{reason=\"pinned\"}"), 1);
  EXPECT_EQ(parse_router_mode("kv"), RouterMode::Kv);
}

TEST(KvTrials, AHalfOpenWorkerGetsOneRequestAtATime) {
  RouterOptions options;
  options.mode = RouterMode::Kv;
  Router router(options);
  const auto set = make_kv_set(2, 2);
  auto tried = std::make_shared<fleet::Worker>(*set->workers[0]);
  tried->circuit = fleet::Circuit::HalfOpen;
  set->workers[0] = tried;
  const KvRoute route{.prompt_tokens = 64};
  const RouteRequest named{.worker_id = 100, .excluded = {}, .adapter = {}};
  std::vector<Reservation> held;
  int trials = 0;
  for (int i = 0; i < 20; ++i) {
    held.push_back(std::move(*router.choose(set, {}, route)));
    trials += held.back().worker().id == 100 ? 1 : 0;
  }
  EXPECT_EQ(trials, 1) << "at all of its ranks together";
  EXPECT_FALSE(router.choose(set, named, route));
  held.clear();
  held.push_back(std::move(*router.choose(set, named, route)));
  EXPECT_FALSE(router.choose(set, named, route));
  const auto closed_set = std::make_shared<fleet::WorkerSet>(*set);
  auto closed = std::make_shared<fleet::Worker>(*tried);
  closed->circuit = fleet::Circuit::Closed;
  closed_set->workers[0] = closed;
  EXPECT_TRUE(router.choose(closed_set, named, route)) << "the trial still runs";
}

}  // namespace
}  // namespace fairlead::routing
