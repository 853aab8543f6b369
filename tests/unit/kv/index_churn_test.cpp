#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kv/index.hpp"
#include "kv/index_model.hpp"

namespace fairlead::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::sorted_find;

std::vector<StoredBlock> chain_of(std::uint64_t seed, std::size_t length) {
  std::mt19937_64 random(seed);
  std::vector<StoredBlock> chain(length);
  for (StoredBlock& block : chain) {
    block = {.engine = random(), .local = random()};
  }
  return chain;
}

std::vector<SequenceHash> prompt_of(std::span<const StoredBlock> chain) {
  std::vector<LocalHash> locals;
  for (const StoredBlock& block : chain) {
    locals.push_back(block.local);
  }
  std::vector<SequenceHash> hashes;
  sequence_hashes(locals, hashes);
  return hashes;
}

TEST(IndexChurn, AThousandTargetsThatCameAndWentLeaveNothingBehind) {
  KvIndex index({.max_targets = 8});
  const TargetId resident = *index.add_target();
  const auto shared = chain_of(1, 2000);
  ASSERT_EQ(index.store(resident, Tier::Device, std::nullopt, shared), StoreOutcome::Stored);
  ASSERT_EQ(index.store(resident, Tier::Host, std::nullopt, std::span(shared).first(500)),
            StoreOutcome::Stored);
  const auto resident_prompt = prompt_of(shared);

  std::set<TargetId> ids;
  std::size_t first_round = 0;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    const Result<TargetId> target = index.add_target();
    ASSERT_TRUE(target) << round;
    ids.insert(*target);
    // A part of the resident's prompt, chains of its own, copies and a second name for a content.
    const auto own = chain_of(100 + round, 400);
    index.store(*target, Tier::Device, std::nullopt, std::span(shared).first(300));
    index.store(*target, Tier::Device, std::nullopt, own);
    index.store(*target, Tier::Disk, std::nullopt, std::span(own).first(50));
    for (int copy = 0; copy < 10; ++copy) {
      index.store(*target, Tier::Device, std::nullopt, std::span(own).first(2));
    }
    const std::vector<StoredBlock> alias{{.engine = 7, .local = own[0].local}};
    index.store(*target, Tier::Device, std::nullopt, alias);
    ASSERT_EQ(index.blocks(*target), 701U);
    if (round % 100 == 0) {
      EXPECT_THAT(sorted_find(index, prompt_of(own)), ElementsAre(Overlap{*target, 400, 0, 0}));
    }
    index.remove_target(*target);
    if (round == 0) {
      first_round = index.stats().bytes;
    }
    if (round % 100 == 0) {
      EXPECT_THAT(sorted_find(index, prompt_of(own)), IsEmpty());
      EXPECT_THAT(sorted_find(index, resident_prompt), ElementsAre(Overlap{resident, 2000, 0, 0}));
    }
  }
  const IndexStats stats = index.stats();
  EXPECT_EQ(stats.targets, 1U);
  EXPECT_EQ(stats.held_blocks, shared.size());
  EXPECT_EQ(stats.distinct_blocks, shared.size());
  EXPECT_NEAR(static_cast<double>(stats.bytes), static_cast<double>(first_round),
              0.05 * static_cast<double>(first_round));
  // An id may only be late by the readers there are: here there are none.
  EXPECT_LE(ids.size(), 2U);

  // And when the last one goes, only what ids take remains.
  index.remove_target(resident);
  EXPECT_EQ(index.stats().distinct_blocks, 0U);
  EXPECT_LT(index.stats().bytes, 4096U);
}

TEST(IndexChurn, ATargetThatTurnsOverItsBlocksKeepsItsMemory) {
  KvIndex index({});
  const TargetId target = *index.add_target();
  constexpr std::size_t kLength = 100;
  constexpr std::size_t kHeld = 100;  // chains
  std::size_t full = 0;
  for (std::uint64_t round = 0; round < 1500; ++round) {
    ASSERT_EQ(index.store(target, Tier::Device, std::nullopt, chain_of(round, kLength)),
              StoreOutcome::Stored);
    if (round >= kHeld) {
      std::vector<EngineHash> names;
      for (const StoredBlock& block : chain_of(round - kHeld, kLength)) {
        names.push_back(block.engine);
      }
      ASSERT_EQ(index.remove(target, Tier::Device, names), kLength);
    }
    if (round == 2 * kHeld) {
      full = index.stats().bytes;
    }
  }
  const IndexStats stats = index.stats();
  EXPECT_EQ(stats.distinct_blocks, kLength * kHeld);
  EXPECT_LE(stats.bytes - stats.retired_bytes, full + full / 4);
  EXPECT_LE(stats.bytes - stats.retired_bytes, stats.held_blocks * 64);
}

TEST(IndexChurn, ABurstOfDistinctPromptsStaysBelowTheCapAndHarmsNothing) {
  constexpr std::size_t kCap = 3'000'000;
  KvIndex index({.max_bytes = kCap, .max_targets = 16});
  std::vector<TargetId> targets;
  for (int i = 0; i < 8; ++i) {
    targets.push_back(*index.add_target());
  }
  const auto early = chain_of(5, 50);
  ASSERT_EQ(index.store(targets[0], Tier::Device, std::nullopt, early), StoreOutcome::Stored);

  std::uint64_t cut_short = 0;
  std::uint64_t offered = early.size();
  for (std::uint64_t prompt = 0; prompt < 100'000; ++prompt) {
    const auto chain = chain_of(1000 + prompt, 2);
    const StoreOutcome outcome =
        index.store(targets[prompt % 8], Tier::Device, std::nullopt, chain);
    ASSERT_TRUE(outcome == StoreOutcome::Stored || outcome == StoreOutcome::Full);
    cut_short += outcome == StoreOutcome::Full ? 1 : 0;
    offered += chain.size();
    if (prompt % 1000 == 0) {
      ASSERT_LE(index.stats().bytes, kCap);
    }
  }
  EXPECT_EQ(offered, 200'050U);
  const IndexStats stats = index.stats();
  EXPECT_LE(stats.bytes, kCap);
  EXPECT_GT(cut_short, 0U);
  EXPECT_EQ(stats.counts.full, cut_short);
  EXPECT_EQ(stats.counts.stored + stats.counts.refused, offered);
  EXPECT_EQ(stats.held_blocks, stats.counts.stored);
  EXPECT_EQ(stats.distinct_blocks, stats.counts.stored);
  EXPECT_GT(stats.held_blocks, kCap / 100);

  // What was there before is there still, and what was refused is not.
  EXPECT_THAT(sorted_find(index, prompt_of(early)), ElementsAre(Overlap{targets[0], 50, 0, 0}));
  std::size_t reported = 0;
  for (std::uint64_t prompt = 0; prompt < 100'000; ++prompt) {
    const auto found = sorted_find(index, prompt_of(chain_of(1000 + prompt, 2)));
    ASSERT_LE(found.size(), 1U);
    for (const Overlap& overlap : found) {
      ASSERT_EQ(overlap.target, targets[prompt % 8]);
      reported += overlap.device;
    }
  }
  EXPECT_EQ(reported + early.size(), stats.held_blocks);

  // Removals make room again.
  for (std::size_t i = 1; i < targets.size(); ++i) {
    index.clear(targets[i]);
  }
  const auto late = chain_of(6, 1000);
  EXPECT_EQ(index.store(targets[1], Tier::Device, std::nullopt, late), StoreOutcome::Stored);
  EXPECT_THAT(sorted_find(index, prompt_of(late)), ElementsAre(Overlap{targets[1], 1000, 0, 0}));
}

}  // namespace
}  // namespace fairlead::kv
