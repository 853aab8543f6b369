#include "routing/kv_views.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kv_testing.hpp"
#include "routing/kv_query.hpp"

namespace fairlead::routing {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only

constexpr std::uint32_t kBlock = 16;

/// Views of a fleet that publishes no events, unless a worker is given a source.
class KvViewsTest : public ::testing::Test {
 protected:
  explicit KvViewsTest(KvViewOptions options = {})
      : views_(options, [this](std::shared_ptr<const KvViewMap> map) {
          map_ = std::move(map);
          ++published_;
        }) {}

  static std::shared_ptr<fleet::WorkerSet> make_set(std::size_t workers, std::uint32_t ranks = 1,
                                                    std::uint32_t block = kBlock) {
    auto set = make_kv_set(workers, ranks);
    for (auto& worker : set->workers) {
      auto changed = std::make_shared<fleet::Worker>(*worker);
      changed->info.kv_block_size = block;
      worker = changed;
    }
    return set;
  }

  /// The first worker publishes events where nobody listens.
  static void give_source(fleet::WorkerSet& set) {
    auto worker = std::make_shared<fleet::Worker>(*set.workers[0]);
    worker->info.kv_event_sources = {{.endpoint = "tcp://127.0.0.1:1",
                                      .replay_endpoint = "",
                                      .topic = "",
                                      .data_parallel_rank = 0,
                                      .buffer_steps = 0}};
    set.workers[0] = worker;
  }

  void show(const std::vector<std::shared_ptr<fleet::WorkerSet>>& sets) {
    auto model = std::make_shared<fleet::Model>();
    model->name = "m";
    for (const auto& set : sets) {
      model->worker_sets.push_back(set);
    }
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models.push_back(model);
    views_.update(fleet, now_);
  }

  const KvSetView& view(std::uint64_t set = 7) const { return *map_->at(set); }

  KvRoute look_up(const std::vector<std::uint32_t>& prompt, std::uint64_t seed = kv::kBaseSeed) {
    KvRoute route;
    query_.look_up(view(), prompt, seed, now_, route);
    return route;
  }

  std::string metrics() const {
    std::string text;
    observe::TextWriter writer(text, "p");
    views_.collect(writer);
    return text;
  }

  KvViews::TimePoint now_ = KvViews::TimePoint() + 1h;
  std::shared_ptr<const KvViewMap> map_;
  int published_ = 0;
  KvQuery query_;
  KvViews views_;
};

std::vector<std::uint32_t> tokens(std::size_t count, std::uint32_t first) {
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = first + static_cast<std::uint32_t>(i);
  }
  return out;
}

TEST_F(KvViewsTest, EveryRankIsATargetInApproximateMode) {
  show({make_set(2, 2)});
  ASSERT_EQ(view().by_ref.size(), 4U);
  for (std::uint64_t worker = 100; worker < 102; ++worker) {
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const auto id = view().find({worker, rank});
      ASSERT_TRUE(id);
      EXPECT_EQ(view().places[*id].worker_id, worker);
      EXPECT_EQ(view().places[*id].rank, rank);
      EXPECT_EQ(view().states[*id], TargetState::Approximate);
    }
  }
  EXPECT_FALSE(view().find({100, 2}));
  EXPECT_FALSE(view().find({99, 0}));
  EXPECT_FALSE(view().degraded);
  EXPECT_NE(metrics().find(R"(kv_view_state{worker_id="101",dp_rank="1",state="approximate"} 1)"),
            std::string::npos);
}

TEST_F(KvViewsTest, NothingNewIsNotPublished) {
  show({make_set(2)});
  EXPECT_EQ(published_, 1);
  show({make_set(2)});
  views_.tick(now_);
  EXPECT_EQ(published_, 1);
  show({make_set(3)});
  EXPECT_EQ(published_, 2);
}

TEST_F(KvViewsTest, WhatWasRoutedCountsUntilItExpires) {
  show({make_set(2)});
  const auto prompt = tokens(100, 1);
  EXPECT_TRUE(look_up(prompt).predicted.empty());
  query_.routed(view(), {101, 0}, now_);
  const KvRoute route = look_up(prompt);
  ASSERT_EQ(route.predicted.size(), 1U);
  EXPECT_EQ(route.predicted[0].target, view().find({101, 0}));
  EXPECT_EQ(route.predicted[0].device, 6U);
  EXPECT_EQ(route.prompt_tokens, 100U);
  EXPECT_EQ(route.block_size, kBlock);
  EXPECT_NE(metrics().find("kv_routed_blocks{type=\"approximate\"} 6\n"), std::string::npos);
  EXPECT_NE(metrics().find("kv_routed_blocks{type=\"predicted\"} 0\n"), std::string::npos);
  // Another adapter's or salt's blocks are others.
  EXPECT_TRUE(look_up(prompt, kv::hash_seed("lora", "")).predicted.empty());
  EXPECT_TRUE(look_up(prompt, kv::hash_seed("", "salt")).predicted.empty());
  now_ += 119s;
  EXPECT_EQ(look_up(prompt).predicted.size(), 1U);
  now_ += 2s;
  EXPECT_TRUE(look_up(prompt).predicted.empty());
}

TEST_F(KvViewsTest, WhatIsInBothIndexesOfRoutedPromptsIsListedOnce) {
  show({make_set(4)});
  const auto prompt = tokens(100, 1);
  const auto known = look_up(prompt).prompt;
  const std::vector<kv::SequenceHash> hashes(known.begin(), known.end());
  KvCaches& caches = *view().caches;
  const auto blocks = [&](std::size_t count) { return std::span(hashes).first(count); };
  caches.routed.insert(0, blocks(6), now_);
  caches.routed.insert(1, blocks(2), now_);
  caches.predicted.insert(0, blocks(3), now_);
  caches.predicted.insert(1, blocks(4), now_);
  caches.predicted.insert(2, blocks(5), now_);
  std::map<kv::TargetId, std::uint32_t> found;
  for (const kv::Overlap& overlap : look_up(prompt).predicted) {
    EXPECT_TRUE(found.emplace(overlap.target, overlap.device).second);
  }
  EXPECT_EQ(found, (std::map<kv::TargetId, std::uint32_t>{{0, 6}, {1, 4}, {2, 5}}));
}

TEST_F(KvViewsTest, AWorkerThatLeftTakesItsPromptsAlong) {
  show({make_set(2)});
  const auto prompt = tokens(64, 1);
  look_up(prompt);
  query_.routed(view(), {100, 0}, now_);
  auto without = make_set(2);
  without->workers.erase(without->workers.begin());
  show({without});
  EXPECT_FALSE(view().find({100, 0}));
  EXPECT_TRUE(look_up(prompt).predicted.empty());
  show({make_set(2)});  // back, with an empty cache
  EXPECT_TRUE(view().find({100, 0}));
  EXPECT_TRUE(look_up(prompt).predicted.empty());
}

TEST_F(KvViewsTest, AnUnhealthyWorkerKeepsItsTarget) {
  show({make_set(2)});
  const auto prompt = tokens(64, 1);
  look_up(prompt);
  query_.routed(view(), {100, 0}, now_);
  auto set = make_set(2);
  auto ill = std::make_shared<fleet::Worker>(*set->workers[0]);
  ill->healthy = false;
  set->workers[0] = ill;
  show({set});
  EXPECT_EQ(look_up(prompt).predicted.size(), 1U);
}

TEST_F(KvViewsTest, AnotherBlockSizeBeginsAnew) {
  show({make_set(1)});
  const auto prompt = tokens(64, 1);
  look_up(prompt);
  query_.routed(view(), {100, 0}, now_);
  show({make_set(1, 1, 32)});
  EXPECT_EQ(view().caches->params.block_size, 32U);
  EXPECT_TRUE(look_up(prompt).predicted.empty());
  show({make_set(1, 1, 0)});
  EXPECT_TRUE(map_->empty()) << "without a block size load decides";
}

TEST_F(KvViewsTest, AWorkerThatMovedToAnotherSlotIsFollowed) {
  show({make_set(2)});
  auto set = make_set(2);
  auto moved = std::make_shared<fleet::Worker>(*set->workers[1]);
  moved->slot = 4;
  set->workers[1] = moved;
  set->slot_count = 5;
  show({set});
  EXPECT_EQ(view().places[*view().find({101, 0})].slot, 4U);
}

TEST_F(KvViewsTest, AViewIsNotPublishedBeforeTheSizeOfBlocksIsKnown) {
  auto set = make_set(2, 1, 0);
  give_source(*set);
  show({set});
  EXPECT_TRUE(!map_ || map_->empty()) << "its events are followed only to learn it";
  EXPECT_EQ(metrics().find("p_kv_view_state{"), std::string::npos);
  now_ += 1s;
  views_.tick(now_);
  EXPECT_TRUE(!map_ || map_->empty());
  auto told = make_set(2);
  give_source(*told);
  show({told});
  EXPECT_EQ(view().caches->params.block_size, kBlock);
}

TEST_F(KvViewsTest, ManyRanksAreBounded) {
  auto set = make_set(1, 5000);
  show({set});
  EXPECT_EQ(view().by_ref.size(), 4096U);
}

TEST_F(KvViewsTest, ASourceThatIsNotThereMakesTheViewDegraded) {
  auto set = make_set(2);
  give_source(*set);
  show({set});
  const auto id = view().find({100, 0});
  ASSERT_TRUE(id);
  EXPECT_EQ(view().states[*id], TargetState::Connecting);
  EXPECT_TRUE(view().degraded);
  EXPECT_FALSE(view().places[*id].live);
  EXPECT_TRUE(view().places[*view().find({101, 0})].live);
  // Its prompts are remembered like those of a worker without events.
  const auto prompt = tokens(64, 1);
  look_up(prompt);
  query_.routed(view(), {100, 0}, now_);
  now_ += 100s;
  EXPECT_EQ(look_up(prompt).predicted.size(), 1U);
}

class KvViewsWithoutEvents : public KvViewsTest {
 protected:
  KvViewsWithoutEvents() : KvViewsTest(options()) {}
  static KvViewOptions options() {
    KvViewOptions options;
    options.events = false;
    options.approximate_ttl = 10s;
    options.block_size = 32;
    return options;
  }
};

TEST_F(KvViewsWithoutEvents, SourcesAreNotFollowedAndOptionsCount) {
  auto set = make_set(1);
  give_source(*set);
  show({set});
  EXPECT_EQ(view().states[*view().find({100, 0})], TargetState::Approximate);
  const auto prompt = tokens(64, 1);
  look_up(prompt);
  query_.routed(view(), {100, 0}, now_);
  ASSERT_EQ(look_up(prompt).predicted.size(), 1U);
  EXPECT_EQ(look_up(prompt).predicted[0].device, 2U);
  now_ += 11s;
  EXPECT_TRUE(look_up(prompt).predicted.empty());
}

TEST(ExpectedCachedTokens, TheLastTokenIsAlwaysComputed) {
  EXPECT_EQ(expected_cached_tokens(4, 64, 16), 48U);
  EXPECT_EQ(expected_cached_tokens(4, 65, 16), 64U);
  EXPECT_EQ(expected_cached_tokens(3, 64, 16), 48U);
  EXPECT_EQ(expected_cached_tokens(0, 64, 16), 0U);
  EXPECT_EQ(expected_cached_tokens(9, 0, 16), 0U);
}

TEST(KvTruth, PersistentErrorsMakeATargetWrong) {
  KvTruth truth;
  for (std::uint32_t i = 0; i < kRecentSamples - 1; ++i) {
    truth.note(3, {.prompt = 100, .confirmed = 96, .believed = 96, .actual = 0});
  }
  EXPECT_FALSE(truth.score(3).wrong()) << "too few";
  truth.note(3, {.prompt = 100, .confirmed = 96, .believed = 96, .actual = 0});
  EXPECT_TRUE(truth.score(3).wrong());
  EXPECT_NEAR(truth.score(3).error, 0.96, 1e-9);
  EXPECT_EQ(truth.score(3).believed_tokens, 96U * kRecentSamples);
  EXPECT_EQ(truth.score(3).actual_tokens, 0U);
  EXPECT_EQ(truth.score(2).requests, 0U);
  truth.forgive(3);
  EXPECT_FALSE(truth.score(3).wrong());
  EXPECT_EQ(truth.score(3).requests, kRecentSamples);
  truth.forget(3);
  EXPECT_EQ(truth.score(3).requests, 0U);
}

TEST(KvTruth, WhatWasOnlyRoutedIsNoError) {
  KvTruth truth;
  for (std::uint32_t i = 0; i < 2 * kRecentSamples; ++i) {
    truth.note(0, {.prompt = 100, .confirmed = 0, .believed = 96, .actual = i % 2 == 0 ? 96U : 0U});
  }
  EXPECT_EQ(truth.score(0).error, 0);
  truth.note(0, {.prompt = 100, .confirmed = 0, .believed = 0, .actual = 64});
  EXPECT_NEAR(truth.score(0).error, 0.64 / kRecentSamples, 1e-9);
}

}  // namespace
}  // namespace fairlead::routing
