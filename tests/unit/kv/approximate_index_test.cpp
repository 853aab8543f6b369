#include "kv/approximate_index.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "kv/approximate_model.hpp"

namespace fairlead::kv {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ApproximateModel;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Prompt = std::vector<SequenceHash>;
using TimePoint = ApproximateIndex::TimePoint;

constexpr TimePoint kStart = TimePoint(std::chrono::hours(1));

Prompt chain(std::vector<LocalHash> blocks) {
  Prompt out;
  sequence_hashes(blocks, out);
  return out;
}

// The first hashes of a chain that shares none with those of other seeds, without hashing.
Prompt distinct(std::uint64_t seed, std::size_t blocks) {
  Prompt out(blocks);
  for (std::size_t i = 0; i < blocks; ++i) {
    out[i] = ((seed << 20U) + i + 1) * 0x9E3779B97F4A7C15ULL;
  }
  return out;
}

std::vector<Overlap> sorted_find(const ApproximateIndex& index, const Prompt& prompt,
                                 TimePoint now) {
  std::vector<Overlap> out;
  index.find(prompt, now, out);
  std::ranges::sort(out, {}, &Overlap::target);
  return out;
}

Overlap overlap(TargetId target, std::uint32_t blocks) {
  return {.target = target, .device = blocks, .host = 0, .disk = 0};
}

class Approximate : public ::testing::Test {
 protected:
  void insert(TargetId target, std::vector<LocalHash> blocks) {
    index.insert(target, chain(std::move(blocks)), now);
  }
  std::vector<Overlap> find(std::vector<LocalHash> blocks) {
    return sorted_find(index, chain(std::move(blocks)), now);
  }

  ApproximateIndex index{{.ttl = seconds(5)}};
  TimePoint now = kStart;
};

TEST_F(Approximate, ReportsTheDeepestSharedBlockOfEveryTarget) {
  insert(7, {1, 2, 3, 4});
  insert(3, {1, 2, 9});
  insert(5, {8});
  EXPECT_THAT(find({1, 2, 3, 4, 5}), ElementsAre(overlap(3, 2), overlap(7, 4)));
  EXPECT_THAT(find({1, 2, 9, 4}), ElementsAre(overlap(3, 3), overlap(7, 2)));
  EXPECT_THAT(find({1}), ElementsAre(overlap(3, 1), overlap(7, 1)));
  EXPECT_THAT(find({2, 3}), IsEmpty());
  EXPECT_THAT(find({}), IsEmpty());
}

TEST_F(Approximate, AppendsToWhatIsThere) {
  insert(7, {1, 2});
  insert(7, {1, 2, 3});
  std::vector<Overlap> out{overlap(1, 1)};
  index.find(chain({1, 2, 3}), now, out);
  EXPECT_THAT(out, ElementsAre(overlap(1, 1), overlap(7, 3)));
}

TEST_F(Approximate, CountsUntilTheTtlIsOverAndNotLonger) {
  insert(1, {1, 2});
  now += seconds(5) - milliseconds(1);
  EXPECT_THAT(find({1, 2}), ElementsAre(overlap(1, 2)));
  now += milliseconds(1);
  EXPECT_THAT(find({1, 2}), IsEmpty());
}

TEST_F(Approximate, AnInsertionRefreshesItsWholePrefixAndNothingElse) {
  insert(1, {1, 2, 3, 4});
  now += seconds(3);
  insert(1, {1, 2, 9});
  now += seconds(3);
  EXPECT_THAT(find({1, 2, 3, 4}), ElementsAre(overlap(1, 2)));
  EXPECT_THAT(find({1, 2, 9}), ElementsAre(overlap(1, 3)));
  index.expire(now);
  EXPECT_EQ(index.stats().blocks, 3U);
  EXPECT_EQ(index.stats().nodes, 1U) << "what is no branch any longer is one edge";
}

TEST_F(Approximate, AShorterPromptRefreshesOnlyWhatItHas) {
  insert(1, {1, 2, 3, 4});
  now += seconds(3);
  insert(1, {1, 2});
  now += seconds(3);
  EXPECT_THAT(find({1, 2, 3, 4}), ElementsAre(overlap(1, 2)));
}

TEST_F(Approximate, AnEarlierTimeCountsAsTheLatestOne) {
  insert(1, {1});
  now -= seconds(4);
  insert(2, {1});
  now = kStart + seconds(5) - milliseconds(1);
  EXPECT_THAT(find({1}), ElementsAre(overlap(1, 1), overlap(2, 1)));
}

TEST_F(Approximate, ARemovedTargetLeavesNothingToTheNextOfItsId) {
  insert(1, {1, 2, 3});
  insert(1, {1, 7});
  insert(2, {1, 2});
  index.remove_target(1);
  EXPECT_THAT(find({1, 2, 3}), ElementsAre(overlap(2, 2)));
  EXPECT_EQ(index.stats().blocks, 2U);
  insert(1, {1});
  EXPECT_THAT(find({1, 2, 3}), ElementsAre(overlap(1, 1), overlap(2, 2)));
  EXPECT_THAT(find({1, 7}), ElementsAre(overlap(1, 1), overlap(2, 1)));
  index.remove_target(9);
  index.remove_target(1);
  index.remove_target(2);
  EXPECT_EQ(index.stats().bytes, 0U);
}

TEST_F(Approximate, AConversationIsOneEdge) {
  std::vector<LocalHash> blocks;
  for (LocalHash block = 0; block < 100; ++block) {
    blocks.push_back(block);
    insert(1, blocks);
  }
  const ApproximateIndexStats stats = index.stats();
  EXPECT_EQ(stats.blocks, 100U);
  EXPECT_EQ(stats.nodes, 1U);
  EXPECT_EQ(stats.leases, 1U);
}

TEST(ApproximateBounds, WithoutATtlOrRoomItHoldsNothing) {
  for (const ApproximateIndexOptions& options :
       {ApproximateIndexOptions{.ttl = milliseconds(0)},
        ApproximateIndexOptions{.ttl = milliseconds(-1)},
        ApproximateIndexOptions{.ttl = seconds(5), .max_blocks = 0}}) {
    ApproximateIndex index(options);
    index.insert(1, chain({1, 2}), kStart);
    EXPECT_THAT(sorted_find(index, chain({1, 2}), kStart), IsEmpty());
    EXPECT_EQ(index.stats().bytes, 0U);
  }
}

TEST(ApproximateBounds, AnEndlessTtlIsAYear) {
  ApproximateIndex index({.ttl = milliseconds::max()});
  index.insert(1, chain({1}), kStart);
  EXPECT_THAT(sorted_find(index, chain({1}), kStart + std::chrono::hours(24 * 364)),
              ElementsAre(overlap(1, 1)));
}

TEST(ApproximateBounds, AtTheCapTheOldestGoFirstAndOfThoseTheDeepest) {
  ApproximateIndex index({.ttl = seconds(5), .max_blocks = 10, .prune_ratio = 0.5});
  index.insert(1, chain({1, 2, 3, 4}), kStart);
  index.insert(2, chain({5, 6, 7, 8}), kStart);
  index.insert(1, chain({1, 2}), kStart + seconds(1));
  EXPECT_EQ(index.stats().pruned, 0U);
  index.insert(3, chain({9, 10, 11}), kStart + seconds(1));  // 11 blocks: six have to go
  EXPECT_EQ(index.stats().pruned, 6U);
  EXPECT_EQ(index.stats().blocks, 5U);
  const TimePoint now = kStart + seconds(1);
  EXPECT_THAT(sorted_find(index, chain({1, 2, 3, 4}), now), ElementsAre(overlap(1, 2)));
  EXPECT_THAT(sorted_find(index, chain({5, 6, 7, 8}), now), IsEmpty());
  index.insert(4, chain({1, 2, 3, 4, 5, 6}), now);
  EXPECT_THAT(sorted_find(index, chain({1, 2, 3, 4, 5, 6}), now), ElementsAre(overlap(4, 5)));
}

TEST(ApproximateBounds, APromptLargerThanTheCapKeepsItsBeginning) {
  ApproximateIndex index({.ttl = seconds(5), .max_blocks = 1000});
  const Prompt prompt = distinct(0, 5000);
  index.insert(1, prompt, kStart);
  EXPECT_THAT(sorted_find(index, prompt, kStart), ElementsAre(overlap(1, 800)));
  EXPECT_LT(index.stats().bytes, 800U * 8U + 1000U);
}

// 200,000 prompts of 512 blocks that share nothing, within one TTL.
TEST(ApproximateBounds, AStreamOfDistinctPromptsStaysWithinItsMemory) {
  constexpr std::size_t kCap = 1U << 17U;
  ApproximateIndex index({.ttl = seconds(120), .max_blocks = kCap});
  std::size_t most = 0;
  TimePoint now = kStart;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    now += std::chrono::microseconds(100);
    const Prompt prompt = distinct(i, 512);
    index.insert(static_cast<TargetId>(i % 64), prompt, now);
    if (i % 64 == 0) {
      const ApproximateIndexStats stats = index.stats();
      ASSERT_LE(stats.blocks, kCap);
      most = std::max(most, stats.bytes);
    }
    if (i % 4096 == 0) {
      ASSERT_THAT(sorted_find(index, prompt, now),
                  ElementsAre(overlap(static_cast<TargetId>(i % 64), 512)));
    }
  }
  EXPECT_LT(most, kCap * 10);
  EXPECT_GT(index.stats().pruned, 190'000U * 512U);
  index.expire(now + seconds(120));
  EXPECT_EQ(index.stats().bytes, 0U);
}

// Every block is a branch: nodes of one block.
TEST(ApproximateBounds, PromptsThatDivergeAtEveryBlockStayWithinTheirMemory) {
  constexpr std::size_t kCap = 20'000;
  constexpr std::size_t kDepth = 1500;
  ApproximateIndex index({.ttl = seconds(120), .max_blocks = kCap});
  const Prompt trunk = distinct(0, kDepth);
  std::size_t most = 0;
  for (std::uint64_t round = 1; round <= 8; ++round) {
    for (std::size_t length = kDepth; length > 0; --length) {
      Prompt prompt(trunk.begin(), trunk.begin() + static_cast<std::ptrdiff_t>(length));
      prompt.push_back(round << 32U | length);
      index.insert(static_cast<TargetId>(round), prompt, kStart);
    }
    const ApproximateIndexStats stats = index.stats();
    ASSERT_LE(stats.blocks, kCap);
    ASSERT_LT(stats.nodes, 2 * stats.leases);
    most = std::max(most, stats.bytes);
    ASSERT_EQ(sorted_find(index, trunk, kStart).back(),
              overlap(static_cast<TargetId>(round), kDepth));
  }
  EXPECT_LT(most, kCap * 250);
  for (TargetId target = 1; target <= 4; ++target) {
    index.remove_target(target);
  }
  index.insert(8, trunk, kStart);
  EXPECT_EQ(sorted_find(index, trunk, kStart).back(), overlap(8, kDepth));
  index.expire(kStart + seconds(120));
  EXPECT_EQ(index.stats().bytes, 0U);
}

TEST(ApproximateBounds, EmptyingAWideNodeGivesItsMemoryBack) {
  ApproximateIndex index({.ttl = seconds(5)});
  const Prompt prompt = chain({1, 2, 3});
  for (TargetId target = 0; target < 4096; ++target) {
    index.insert(target, prompt, kStart);
  }
  EXPECT_EQ(sorted_find(index, prompt, kStart).size(), 4096U);
  index.insert(4095, prompt, kStart + seconds(4));
  index.expire(kStart + seconds(5));
  EXPECT_THAT(sorted_find(index, prompt, kStart + seconds(5)), ElementsAre(overlap(4095, 3)));
  // What is left is what is kept for each target there was.
  EXPECT_LT(index.stats().bytes, 4096U * 32U + 1000U);
  EXPECT_EQ(index.stats().nodes, 1U);
}

// Hashes that are no chain, as if many collided: what is found is wrong then, but never more than
// the prompt, and the books are kept.
TEST(ApproximateBounds, CollisionsCorruptNothing) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    ApproximateIndex index({.ttl = milliseconds(50), .max_blocks = 200});
    TimePoint now = kStart;
    for (int i = 0; i < 2000; ++i) {
      Prompt prompt(random() % 8);
      std::ranges::generate(prompt, [&] { return random() % (4 + round); });
      now += milliseconds(random() % 4);
      const auto target = static_cast<TargetId>(random() % 4);
      switch (random() % 8) {
        case 0: index.expire(now); break;
        case 1: index.remove_target(target); break;
        default: index.insert(target, prompt, now);
      }
      const auto found = sorted_find(index, prompt, now);
      ASSERT_LE(found.size(), 4U);
      ASSERT_TRUE(std::ranges::all_of(
          found, [&](const Overlap& o) { return o.device > 0 && o.device <= prompt.size(); }));
      const ApproximateIndexStats stats = index.stats();
      ASSERT_LE(stats.blocks, 200U);
      ASSERT_LE(stats.nodes, 2 * stats.leases);
    }
    index.expire(now + seconds(1));
    const ApproximateIndexStats stats = index.stats();
    ASSERT_EQ(stats.blocks, 0U);
    ASSERT_EQ(stats.distinct_blocks, 0U);
    ASSERT_EQ(stats.bytes, 0U);
  }
}

struct Mix {
  std::uint32_t seed;
  std::uint32_t alphabet;  // of blocks
  std::size_t longest;     // prompt
  TargetId targets;
  std::size_t max_blocks;
  milliseconds ttl = milliseconds(300);
  int operations = 25'000;
};

class ApproximateRandom : public ::testing::TestWithParam<Mix> {
 protected:
  Prompt any_prompt() {
    std::vector<LocalHash> blocks(random() % (GetParam().longest + 1));
    std::ranges::generate(blocks, [&] { return random() % GetParam().alphabet; });
    return chain(std::move(blocks));
  }
  void change() {
    const auto target = static_cast<TargetId>(random() % GetParam().targets);
    const std::uint32_t kind = random() % 100;
    if (kind < 94) {
      const Prompt prompt = any_prompt();
      index.insert(target, prompt, now);
      model.insert(target, prompt, now);
    } else if (kind < 97) {
      index.expire(now);
      model.expire(now);
    } else {
      index.remove_target(target);
      model.remove_target(target);
    }
  }

  std::mt19937 random{GetParam().seed};
  ApproximateIndexOptions options{.ttl = GetParam().ttl, .max_blocks = GetParam().max_blocks};
  ApproximateIndex index{options};
  ApproximateModel model{options};
  TimePoint now = kStart;
};

TEST_P(ApproximateRandom, AnswersAsTheModel) {
  for (int i = 0; i < GetParam().operations; ++i) {
    // Mostly forward, at times a little back, at times far ahead.
    now += milliseconds(random() % 8);
    now -= milliseconds(random() % 16 == 0 ? 4 : 0);
    now += milliseconds(random() % 500 == 0 ? 400 : 0);
    change();
    const Prompt asked = any_prompt();
    ASSERT_EQ(sorted_find(index, asked, now), model.find(asked, now)) << i;
    const ApproximateIndexStats stats = index.stats();
    ASSERT_EQ(stats.blocks, model.blocks()) << i;
    ASSERT_EQ(stats.pruned, model.pruned) << i;
    if (i % 16 == 0) {
      ASSERT_EQ(stats.distinct_blocks, model.distinct_blocks()) << i;
      ASSERT_EQ(stats.leases, model.leases()) << i;
      ASSERT_TRUE(stats.nodes < 2 * stats.leases || stats.leases == 0) << i;
    }
  }
  EXPECT_EQ(model.pruned > 0, GetParam().max_blocks < 100'000);
  index.expire(now + 2 * options.ttl);
  EXPECT_EQ(index.stats().bytes, 0U);
}

// The last one has so much to prune that it takes several insertions.
INSTANTIATE_TEST_SUITE_P(
    Mixes, ApproximateRandom,
    ::testing::Values(
        Mix{.seed = 1, .alphabet = 2, .longest = 10, .targets = 3, .max_blocks = 1U << 20U},
        Mix{.seed = 2, .alphabet = 3, .longest = 6, .targets = 8, .max_blocks = 200},
        Mix{.seed = 3, .alphabet = 1, .longest = 30, .targets = 4, .max_blocks = 60},
        Mix{.seed = 4, .alphabet = 2, .longest = 40, .targets = 2, .max_blocks = 900},
        Mix{.seed = 5, .alphabet = 2, .longest = 12, .targets = 40, .max_blocks = 300},
        Mix{.seed = 6,
            .alphabet = 2,
            .longest = 100,
            .targets = 4,
            .max_blocks = 8000,
            .ttl = seconds(3),
            .operations = 5'000}));

// For the thread sanitizer; and nothing is lost that nobody removes.
TEST(ApproximateThreads, WritersAndAReader) {
  ApproximateIndex index({.ttl = seconds(5), .max_blocks = 3000});
  std::atomic<int> writing{2};
  const auto write = [&](TargetId own) {
    std::mt19937 random(own);
    for (int i = 0; i < 3000; ++i) {
      const TimePoint now = kStart + milliseconds(i);
      index.insert(own, distinct(random() % 50, 1 + random() % 40), now);
      if (i % 100 == 0) {
        index.expire(now);
      }
      if (i % 500 == 0) {
        index.remove_target(own);
      }
    }
    index.insert(own, distinct(99, 10), kStart + seconds(3));
    --writing;
  };
  std::thread first(write, 0);
  std::thread second(write, 1);
  std::vector<Overlap> out;
  for (std::uint64_t i = 0; writing > 0; ++i) {
    out.clear();
    index.find(distinct(i % 50, 40), kStart + seconds(1), out);
    EXPECT_LE(out.size(), 2U);
    EXPECT_LE(index.stats().blocks, 3000U);
  }
  first.join();
  second.join();
  EXPECT_THAT(sorted_find(index, distinct(99, 10), kStart + seconds(3)),
              ElementsAre(overlap(0, 10), overlap(1, 10)));
}

}  // namespace
}  // namespace fairlead::kv
