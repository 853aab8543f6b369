#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "kv_testing.hpp"
#include "routing/overlap_list.hpp"

// The quick choice is the exact one: it costs what weighing all finds, and of all that cost so much
// each is as likely.

namespace fairlead::routing {
namespace {

struct Shape {
  const char* name;
  double held;         // share of targets with something of the prompt
  double varied;       // of those, share with anything but its common beginning
  double predicted;    // share of targets where it was routed lately
  bool tiers = false;  // host and disk, too
  double live = 1;     // share of targets whose view is
};

constexpr Shape kShapes[] = {
    {.name = "few", .held = 0.1, .varied = 1, .predicted = 0.02},
    {.name = "all alike", .held = 1, .varied = 0, .predicted = 0},
    {.name = "all alike, of both kinds", .held = 1, .varied = 0, .predicted = 0.9},
    {.name = "all, some more", .held = 1, .varied = 0.04, .predicted = 0.1},
    {.name = "most", .held = 0.8, .varied = 0.1, .predicted = 0.5},
    {.name = "all differ", .held = 1, .varied = 1, .predicted = 0.3},
    {.name = "tiers", .held = 1, .varied = 0.1, .predicted = 0.3, .tiers = true},
    {.name = "tiers differ", .held = 0.9, .varied = 1, .predicted = 0.3, .tiers = true},
    {.name = "some not live", .held = 1, .varied = 0.1, .predicted = 0.3, .live = 0.9},
};

// A fleet under random load, and prompts of which a random part of it holds something.
class Fleet {
 public:
  Fleet(const KvRouterConfig& config, const Shape& shape, std::uint32_t seed)
      : shape_(shape),
        random_(seed),
        router_({.mode = RouterMode::Kv, .seed = seed, .kv = config, .thresholds = {}}),
        places_(make_places(*set_)) {
    for (TargetPlace& place : places_) {
      place.live = chance(shape.live);
    }
    // Ids are given out in another order than targets.
    std::ranges::shuffle(places_, random_);
  }

  // A new prompt. Of its family the first `common` blocks are what all share.
  void ask() {
    const std::size_t blocks = random_() % 40;
    prompt_ = make_prompt(random_() % 3, blocks, random_() % 4, random_() % 40);
    overlaps_.clear();
    predicted_.clear();
    tail_ = random_() % 16;
    const auto all = static_cast<std::uint32_t>(blocks);
    const std::uint32_t common = std::min<std::uint32_t>(all, 8);
    for (const auto target : shuffled()) {
      if (blocks > 0 && chance(shape_.held)) {
        overlaps_.push_back(overlap(target, all, common));
      }
    }
    for (const auto target : shuffled()) {
      if (blocks > 0 && chance(shape_.predicted)) {
        predicted_.push_back(overlap(target, all, common));
        predicted_.back().host = predicted_.back().disk = 0;
      }
    }
  }

  KvRoute route() const {
    return {.prompt = prompt_,
            .prompt_tokens = static_cast<std::uint32_t>(prompt_.size() * 16 + tail_),
            .block_size = 16,
            .overlaps = overlaps_,
            .predicted = predicted_,
            .places = places_,
            .degraded = shape_.live < 1};
  }

  // All candidates, weighed.
  std::vector<CandidateCost> weighed() {
    std::vector<CandidateCost> out;
    KvRoute asked = route();
    asked.explain = &out;
    EXPECT_TRUE(router_.preview(set_, {}, asked));
    return out;
  }
  KvDecision preview() { return *router_.preview(set_, {}, route()); }

  // Takes the prompt on, and lets some requests go on or end.
  KvDecision step(std::size_t most_running) {
    auto chosen = router_.choose(set_, {}, route());
    KvDecision decision = *chosen->decision();
    held_.push_back(std::move(*chosen));
    if (random_() % 3 == 0) {
      held_[random_() % held_.size()].prefill_complete();
    }
    while (held_.size() > most_running || (random_() % 3 == 0 && !held_.empty())) {
      std::swap(held_[random_() % held_.size()], held_.back());
      held_.pop_back();
    }
    return decision;
  }

 private:
  bool chance(double share) { return random_() % 1000 < share * 1000; }

  std::vector<kv::TargetId> shuffled() {
    std::vector<kv::TargetId> ids(places_.size());
    std::iota(ids.begin(), ids.end(), kv::TargetId{0});
    if (random_() % 2 == 0) {
      std::ranges::shuffle(ids, random_);
    }
    return ids;
  }

  kv::Overlap overlap(kv::TargetId target, std::uint32_t all, std::uint32_t common) {
    kv::Overlap out{.target = target, .device = common};
    if (chance(shape_.varied)) {
      out.device = random_() % (all + 1);
      if (shape_.tiers) {
        out.host = random_() % (all - out.device + 1);
        out.disk = random_() % (all - out.device - out.host + 1);
      }
    } else if (shape_.tiers) {
      out.host = std::min(all - common, 2U);
    }
    return out;
  }

  const Shape shape_;
  std::mt19937 random_;
  Router router_;
  std::shared_ptr<fleet::WorkerSet> set_ = make_kv_set(75, 2);
  std::vector<TargetPlace> places_;
  std::vector<Reservation> held_;
  std::vector<kv::SequenceHash> prompt_;
  std::vector<kv::Overlap> overlaps_;
  std::vector<kv::Overlap> predicted_;
  std::uint32_t tail_ = 0;
};

double least_of(const std::vector<CandidateCost>& all) {
  return std::ranges::min(all, {}, [](const CandidateCost& one) { return one.terms.cost; })
      .terms.cost;
}

TEST(KvExact, TheQuickChoiceCostsWhatTheFullScanFinds) {
  std::vector<KvRouterConfig> configs(7);
  configs[1].prefill_load_scale = 0.7;
  configs[2].prefill_load_scale = 0;
  configs[3].overlap_score_credit = 0.5;
  configs[4].overlap_score_credit = 2;
  configs[5].track_prefill_tokens = false;
  configs[6].recompute_weight = 0;
  configs[6].host_cache_hit_weight = 1;
  for (const KvRouterConfig& config : configs) {
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(testing::Message() << shape.name << ", config " << &config - configs.data());
      Fleet fleet(config, shape, 21);
      for (int step = 0; step < 300; ++step) {
        fleet.ask();
        const auto all = fleet.weighed();
        ASSERT_EQ(all.size(), 150U);
        const double least = least_of(all);
        const KvDecision chosen = fleet.step(200);
        if (config.prefill_load_scale == 0.7) {
          // Sums of fractions that are not binary differ in their last bits by order of adding.
          ASSERT_NEAR(chosen.terms.cost, least, 1e-9 * std::max(1.0, least));
        } else {
          ASSERT_EQ(chosen.terms.cost, least);
        }
        const auto one = std::ranges::find(all, chosen.target, &CandidateCost::target);
        ASSERT_NE(one, all.end());
        ASSERT_EQ(one->cached, chosen.cached);
        ASSERT_EQ(one->terms.cost, chosen.terms.cost);
        ASSERT_EQ(one->stale && chosen.terms.effective_blocks == 0,
                  chosen.reason == PickReason::StaleView);
      }
    }
  }
}

TEST(KvExact, AllOfTheCheapestAreEquallyLikely) {
  constexpr int kDraws = 3000;
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.name);
    Fleet fleet({}, shape, 4);
    int shared = 0;
    for (int state = 0; state < 40; ++state) {
      for (int i = 0; i < 7; ++i) {
        fleet.ask();
        fleet.step(static_cast<std::size_t>(state) * 8);
      }
      fleet.ask();
      const auto all = fleet.weighed();
      const double least = least_of(all);
      std::map<std::uint64_t, int> counts;
      for (const CandidateCost& one : all) {
        if (one.terms.cost == least) {
          counts[one.target.worker_id * 2 + one.target.rank] = 0;
        }
      }
      for (int i = 0; i < kDraws; ++i) {
        const TargetRef target = fleet.preview().target;
        const auto at = counts.find(target.worker_id * 2 + target.rank);
        ASSERT_NE(at, counts.end());
        ++at->second;
      }
      const double expected = static_cast<double>(kDraws) / static_cast<double>(counts.size());
      double chi_squared = 0;
      for (const auto& [target, count] : counts) {
        chi_squared += (count - expected) * (count - expected) / expected;
      }
      // Its mean is the degrees of freedom, its variance twice that.
      const double freedom = static_cast<double>(counts.size() - 1);
      ASSERT_LE(chi_squared, freedom + 5 * std::sqrt(2 * freedom) + 8);
      shared += counts.size() > 1 ? 1 : 0;
    }
    EXPECT_GE(shared, 3) << "the least cost is shared often enough to tell";
  }
}

TEST(KvExact, ATargetIsFoundInAListOfOverlaps) {
  std::mt19937 random(5);
  OverlapList list;
  for (int round = 0; round < 300; ++round) {
    std::vector<kv::Overlap> items;
    for (std::uint32_t id = 0; id < 200; ++id) {
      if (random() % 20 >= static_cast<unsigned>(round % 20)) {
        items.push_back({.target = static_cast<kv::TargetId>(id), .device = id});
      }
    }
    if (round % 2 == 0) {
      std::ranges::rotate(items, items.begin() + static_cast<std::ptrdiff_t>(
                                                     items.empty() ? 0 : random() % items.size()));
    }
    if (round % 3 == 0) {
      std::ranges::shuffle(items, random);
    }
    list.reset(items);
    for (std::uint32_t id = 0; id < 210; ++id) {
      const auto at = std::ranges::find(items, id, &kv::Overlap::target) - items.begin();
      ASSERT_EQ(list.find(static_cast<kv::TargetId>(id)), static_cast<std::size_t>(at));
    }
  }
}

}  // namespace
}  // namespace fairlead::routing
