#include "kv/index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <vector>

#include "kv/index_model.hpp"

namespace fairlead::kv {
namespace {

using ::testing::ElementsAre;
using testing::IndexModel;
using ::testing::IsEmpty;
using testing::sorted_find;

std::vector<SequenceHash> prompt_of(std::vector<LocalHash> locals) {
  std::vector<SequenceHash> hashes;
  sequence_hashes(locals, hashes);
  return hashes;
}

class Index : public ::testing::Test {
 protected:
  StoreOutcome store(TargetId target, std::optional<EngineHash> parent,
                     std::vector<StoredBlock> blocks, Tier tier = Tier::Device) {
    return index.store(target, tier, parent, blocks);
  }
  std::size_t remove(TargetId target, std::vector<EngineHash> blocks, Tier tier = Tier::Device) {
    return index.remove(target, tier, blocks);
  }
  std::vector<Overlap> find(std::vector<LocalHash> locals) {
    return sorted_find(index, prompt_of(std::move(locals)));
  }

  KvIndex index{{}};
  TargetId a = *index.add_target();
  TargetId b = *index.add_target();
};

TEST_F(Index, CountsLeadingBlocksByContentWhateverEnginesCallThem) {
  EXPECT_EQ(store(a, std::nullopt, {{100, 1}, {101, 2}, {102, 3}}), StoreOutcome::Stored);
  EXPECT_EQ(store(b, std::nullopt, {{7, 1}, {8, 2}}), StoreOutcome::Stored);
  EXPECT_EQ(store(b, 8, {{9, 4}}), StoreOutcome::Stored);
  EXPECT_THAT(find({1, 2, 3, 5}), ElementsAre(Overlap{a, 3, 0, 0}, Overlap{b, 2, 0, 0}));
  EXPECT_THAT(find({1, 2, 4}), ElementsAre(Overlap{a, 2, 0, 0}, Overlap{b, 3, 0, 0}));
  EXPECT_THAT(find({2, 1}), IsEmpty());
  EXPECT_THAT(find({}), IsEmpty());
}

TEST_F(Index, AnUnknownParentDropsTheWholeEvent) {
  store(a, std::nullopt, {{100, 1}});
  EXPECT_EQ(store(b, 100, {{200, 2}, {201, 3}}), StoreOutcome::UnknownParent);
  EXPECT_THAT(find({2, 3}), IsEmpty());
  EXPECT_THAT(find({1, 2}), ElementsAre(Overlap{a, 1, 0, 0}));
  const IndexCounts counts = index.stats().counts;
  EXPECT_EQ(counts.unknown_parents, 1U);
  EXPECT_EQ(counts.orphans, 2U);
}

TEST_F(Index, RemovalDoesNotCascadeAndSkipsWhatIsUnknown) {
  store(a, std::nullopt, {{1, 1}, {2, 2}, {3, 3}});
  EXPECT_EQ(remove(a, {77, 2, 78}), 1U);
  EXPECT_THAT(find({1, 2, 3}), ElementsAre(Overlap{a, 1, 0, 0}));
  EXPECT_EQ(index.stats().counts.unknown_removals, 2U);
  // The child is still a parent, and counts again when the gap closes.
  EXPECT_EQ(store(a, 3, {{4, 4}}), StoreOutcome::Stored);
  EXPECT_EQ(store(a, 1, {{2, 2}}), StoreOutcome::Stored);
  EXPECT_THAT(find({1, 2, 3, 4}), ElementsAre(Overlap{a, 4, 0, 0}));
}

TEST_F(Index, EveryCopyNeedsItsOwnRemoval) {
  for (int i = 0; i < 40; ++i) {
    store(a, std::nullopt, {{1, 1}});
  }
  for (int i = 0; i < 39; ++i) {
    EXPECT_EQ(remove(a, {1}), 1U);
    ASSERT_THAT(find({1}), ElementsAre(Overlap{a, 1, 0, 0})) << i;
  }
  EXPECT_EQ(remove(a, {1}), 1U);
  EXPECT_THAT(find({1}), IsEmpty());
  EXPECT_EQ(remove(a, {1}), 0U);
}

TEST_F(Index, TwoEngineHashesOfOneContentAreTwoHolders) {
  store(a, std::nullopt, {{1, 9}});
  store(a, std::nullopt, {{2, 9}});
  remove(a, {1});
  EXPECT_THAT(find({9}), ElementsAre(Overlap{a, 1, 0, 0}));
  remove(a, {2});
  EXPECT_THAT(find({9}), IsEmpty());
}

TEST_F(Index, ClearConcernsOneTargetAndAllItsTiers) {
  store(a, std::nullopt, {{1, 1}});
  store(a, std::nullopt, {{1, 1}}, Tier::Host);
  store(b, std::nullopt, {{1, 1}});
  index.clear(a);
  EXPECT_THAT(find({1}), ElementsAre(Overlap{b, 1, 0, 0}));
  EXPECT_EQ(index.blocks(a), 0U);
  EXPECT_EQ(store(a, 1, {{2, 2}}), StoreOutcome::UnknownParent);
}

TEST_F(Index, LowerTiersAddToWhatTheTiersAboveReach) {
  store(a, std::nullopt, {{1, 1}, {2, 2}, {3, 3}, {4, 4}});
  store(a, 1, {{2, 2}}, Tier::Host);
  store(a, 2, {{3, 3}}, Tier::Disk);
  remove(a, {2, 3});
  EXPECT_THAT(find({1, 2, 3, 4}), ElementsAre(Overlap{a, 1, 1, 2}));
  EXPECT_EQ(remove(a, {2}, Tier::Disk), 0U);
  EXPECT_EQ(remove(a, {2}, Tier::Host), 1U);
  EXPECT_THAT(find({1, 2, 3, 4}), ElementsAre(Overlap{a, 1, 0, 0}));
}

TEST_F(Index, ExternalCopiesAreParentsButNobodysOwn) {
  store(a, std::nullopt, {{1, 1}}, Tier::External);
  EXPECT_THAT(find({1}), IsEmpty());
  EXPECT_EQ(store(a, 1, {{2, 2}}, Tier::External), StoreOutcome::Stored);
  EXPECT_EQ(remove(a, {1, 2}, Tier::External), 2U);
  EXPECT_EQ(index.blocks(a), 0U);
}

TEST_F(Index, ARemovedTargetIsGoneAndItsIdServesAgain) {
  store(a, std::nullopt, {{1, 1}});
  index.remove_target(a);
  EXPECT_THAT(find({1}), IsEmpty());
  EXPECT_EQ(store(a, std::nullopt, {{1, 1}}), StoreOutcome::UnknownTarget);
  const Result<TargetId> again = index.add_target();
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, a);
  EXPECT_THAT(find({1}), IsEmpty());
}

TEST_F(Index, ASnapshotRestoredElsewhereIsTheSame) {
  store(a, std::nullopt, {{1, 1}, {2, 2}});
  store(a, 1, {{2, 2}}, Tier::Host);
  std::vector<HeldBlock> held;
  index.snapshot(a, held);
  EXPECT_EQ(index.restore(b, held), StoreOutcome::Stored);
  EXPECT_THAT(find({1, 2}), ElementsAre(Overlap{a, 2, 0, 0}, Overlap{b, 2, 0, 0}));
  EXPECT_EQ(remove(b, {2}), 1U);
  EXPECT_THAT(find({1, 2}), ElementsAre(Overlap{a, 2, 0, 0}, Overlap{b, 1, 1, 0}));
}

TEST(IndexBounds, WhenFullWhatWasStoredStaysConsistent) {
  KvIndex index({.max_bytes = 200'000, .max_targets = 4});
  const TargetId target = *index.add_target();
  std::vector<StoredBlock> chain;
  std::vector<LocalHash> locals;
  for (std::uint64_t i = 1; i <= 20'000; ++i) {
    chain.push_back({i, i * 31});
    locals.push_back(i * 31);
  }
  EXPECT_EQ(index.store(target, Tier::Device, std::nullopt, chain), StoreOutcome::Full);
  const IndexStats stats = index.stats();
  EXPECT_LE(stats.bytes, stats.max_bytes);
  EXPECT_EQ(stats.counts.full, 1U);
  EXPECT_EQ(stats.counts.stored + stats.counts.refused, chain.size());
  ASSERT_GT(stats.counts.stored, 1000U);
  const auto found = sorted_find(index, prompt_of(locals));
  EXPECT_THAT(found,
              ElementsAre(Overlap{target, static_cast<std::uint32_t>(stats.counts.stored), 0, 0}));
  index.clear(target);
  EXPECT_EQ(index.store(target, Tier::Device, std::nullopt, std::span(chain).first(500)),
            StoreOutcome::Stored);
}

TEST(IndexModelTest, EqualsTheModelThroughRandomEvents) {
  std::mt19937_64 random(11);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  KvIndex index({});
  IndexModel model;
  std::vector<TargetId> targets;
  for (int i = 0; i < 90; ++i) {
    targets.push_back(*index.add_target());
  }
  // Few contents and names, so that prefixes are shared, names repeat and content changes its name.
  const auto blocks = [&] {
    std::vector<StoredBlock> chain;
    for (std::uint64_t n = 1 + below(5); n > 0; --n) {
      const LocalHash local = 1 + below(3);
      chain.push_back({below(400), local});
    }
    return chain;
  };
  for (int event = 0; event < 120'000; ++event) {
    TargetId& target = targets[below(8) == 0 ? below(90) : below(12)];
    const Tier tier = below(3) == 0 ? static_cast<Tier>(below(4)) : Tier::Device;
    const std::uint64_t kind = below(1000);
    if (kind < 550) {
      const auto chain = blocks();
      const std::optional<EngineHash> parent =
          below(3) == 0 ? std::nullopt : std::optional<EngineHash>(below(400));
      ASSERT_EQ(index.store(target, tier, parent, chain), model.store(target, tier, parent, chain));
    } else if (kind < 997) {
      std::vector<EngineHash> names;
      for (std::uint64_t n = 1 + below(6); n > 0; --n) {
        names.push_back(below(400));
      }
      ASSERT_EQ(index.remove(target, tier, names), model.remove(target, tier, names));
    } else if (kind < 999) {
      index.clear(target);
      model.targets[target].clear();
    } else {
      index.remove_target(target);
      model.targets.erase(target);
      target = *index.add_target();
      model.targets[target];
    }
    if (event % 20 == 0) {
      std::vector<LocalHash> locals;
      for (int i = 0; i < 8; ++i) {
        locals.push_back(1 + below(3));
      }
      const auto prompt = prompt_of(locals);
      ASSERT_EQ(sorted_find(index, prompt), model.find(prompt)) << event;
    }
  }
  for (const TargetId target : targets) {
    EXPECT_EQ(index.blocks(target), model.targets[target].size());
    index.remove_target(target);
  }
  EXPECT_EQ(index.stats().distinct_blocks, 0U);
  EXPECT_EQ(index.stats().held_blocks, 0U);
}

}  // namespace
}  // namespace fairlead::kv
