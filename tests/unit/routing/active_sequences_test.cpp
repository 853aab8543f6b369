#include "routing/active_sequences.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <span>
#include <vector>

namespace fairlead::routing {
namespace {

using Prompt = std::vector<kv::SequenceHash>;

// Sequence hashes of a chain of block contents.
Prompt chain(std::span<const kv::LocalHash> blocks) {
  Prompt out;
  kv::sequence_hashes(blocks, out);
  return out;
}

// The same figures, block by block.
class Model {
 public:
  std::uint32_t add(const Prompt& prompt, TargetIndex target) {
    std::uint32_t fresh = 0;
    for (const auto hash : prompt) {
      fresh += counts_[target][hash]++ == 0 ? 1 : 0;
    }
    return fresh;
  }
  std::uint32_t remove(const Prompt& prompt, TargetIndex target) {
    std::uint32_t freed = 0;
    for (const auto hash : prompt) {
      freed += --counts_[target][hash] == 0 ? 1 : 0;
    }
    return freed;
  }
  std::uint32_t depth(const Prompt& prompt, TargetIndex target) {
    std::uint32_t depth = 0;
    while (depth < prompt.size() && counts_[target][prompt[depth]] > 0) {
      ++depth;
    }
    return depth;
  }
  std::uint32_t unshared(const Prompt& prompt, TargetIndex target) {
    return static_cast<std::uint32_t>(
        std::ranges::count_if(prompt, [&](auto hash) { return counts_[target][hash] == 1; }));
  }

 private:
  std::map<TargetIndex, std::map<kv::SequenceHash, int>> counts_;
};

TEST(ActiveSequences, SharedPrefixesCountOncePerTarget) {
  ActiveSequences sequences;
  ActiveSequences::Path path;
  const Prompt longer = chain(std::vector<kv::LocalHash>{1, 2, 3, 4});
  const Prompt other = chain(std::vector<kv::LocalHash>{1, 2, 9});
  sequences.match(longer, path);
  const auto first = sequences.add(longer, path, 5);
  EXPECT_EQ(first.fresh, 4u);
  sequences.match(other, path);
  EXPECT_EQ(ActiveSequences::depth(path, 5), 2u);
  EXPECT_EQ(ActiveSequences::depth(path, 6), 0u);
  const auto second = sequences.add(other, path, 5);
  EXPECT_EQ(second.fresh, 1u);
  sequences.match(other, path);
  const auto third = sequences.add(other, path, 6);
  EXPECT_EQ(third.fresh, 3u) << "another target has a cache of its own";
  EXPECT_EQ(ActiveSequences::unshared(first.leaf, 5), 2u);
  EXPECT_EQ(sequences.remove(first.leaf, 5), 2u);
  EXPECT_EQ(sequences.remove(second.leaf, 5), 3u);
  EXPECT_EQ(sequences.remove(third.leaf, 6), 3u);
  EXPECT_EQ(sequences.nodes(), 0u);
}

TEST(ActiveSequences, RandomMixesEqualABlockwiseModel) {
  std::mt19937 random(7);
  ActiveSequences sequences;
  Model model;
  struct Running {
    Prompt prompt;
    TargetIndex target;
    ActiveSequences::Node* leaf;
  };
  std::vector<Running> running;
  ActiveSequences::Path path;
  for (int step = 0; step < 20'000; ++step) {
    if (running.empty() || (random() % 100 < 55 && running.size() < 200)) {
      std::vector<kv::LocalHash> blocks(1 + random() % 12);
      for (auto& block : blocks) {
        block = 1 + random() % 2;  // few contents, many shared prefixes
      }
      Prompt prompt = chain(blocks);
      const auto target = static_cast<TargetIndex>(random() % 5);
      sequences.match(prompt, path);
      for (TargetIndex each = 0; each < 5; ++each) {
        ASSERT_EQ(ActiveSequences::depth(path, each), model.depth(prompt, each));
      }
      const auto added = sequences.add(prompt, path, target);
      ASSERT_EQ(added.fresh, model.add(prompt, target));
      ASSERT_EQ(added.untracked, 0u);
      running.push_back({std::move(prompt), target, added.leaf});
    } else {
      std::swap(running[random() % running.size()], running.back());
      Running& ends = running.back();
      ASSERT_EQ(ActiveSequences::unshared(ends.leaf, ends.target),
                model.unshared(ends.prompt, ends.target));
      ASSERT_EQ(sequences.remove(ends.leaf, ends.target), model.remove(ends.prompt, ends.target));
      running.pop_back();
    }
    ASSERT_LE(sequences.nodes(), 2 * running.size()) << "paths are compressed";
  }
  for (const Running& ends : running) {
    sequences.remove(ends.leaf, ends.target);
  }
  EXPECT_EQ(sequences.nodes(), 0u);
}

TEST(ActiveSequences, CollidingHashesCorruptNothing) {
  std::mt19937 random(11);
  ActiveSequences sequences;
  ActiveSequences::Path path;
  struct Running {
    ActiveSequences::Node* leaf;
    TargetIndex target;
  };
  std::vector<Running> running;
  std::int64_t blocks = 0;
  std::uint64_t conflicts = 0;
  const auto end_one = [&] {
    std::swap(running[random() % running.size()], running.back());
    blocks -= sequences.remove(running.back().leaf, running.back().target);
    running.pop_back();
  };
  for (int step = 0; step < 50'000; ++step) {
    if (running.empty() || random() % 2 == 0) {
      Prompt prompt(1 + random() % 8);
      for (auto& hash : prompt) {
        hash = random() % 6;  // hashes that say nothing about what is before them
      }
      const auto target = static_cast<TargetIndex>(random() % 3);
      sequences.match(prompt, path);
      const auto added = sequences.add(prompt, path, target);
      ASSERT_LE(added.fresh + added.untracked, prompt.size());
      conflicts += added.untracked > 0 ? 1 : 0;
      blocks += added.fresh;
      if (added.leaf) {
        running.push_back({added.leaf, target});
      }
    } else {
      end_one();
    }
  }
  while (!running.empty()) {
    end_one();
  }
  EXPECT_GT(conflicts, 1000u);
  EXPECT_EQ(blocks, 0);
  EXPECT_EQ(sequences.nodes(), 0u);
}

}  // namespace
}  // namespace fairlead::routing
