#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "kv/index.hpp"
#include "kv/index_model.hpp"

namespace fairlead::kv {
namespace {

using testing::IndexModel;
using testing::sorted_find;

constexpr std::size_t kWriters = 3;
constexpr std::size_t kOwnTargets = 12;  // of a writer
constexpr int kEvents = 6000;            // of a writer
constexpr std::uint64_t kNames = 300;
constexpr std::size_t kDepth = 10;

// A prompt of few contents, so that targets share prefixes.
std::vector<SequenceHash> some_prompt(std::mt19937_64& random) {
  std::vector<LocalHash> locals(kDepth);
  for (LocalHash& local : locals) {
    local = 1 + random() % 2;
  }
  std::vector<SequenceHash> hashes;
  sequence_hashes(locals, hashes);
  return hashes;
}

std::vector<StoredBlock> some_chain(std::mt19937_64& random) {
  std::vector<StoredBlock> chain(1 + random() % 6);
  for (StoredBlock& block : chain) {
    block = {.engine = random() % kNames, .local = 1 + random() % 2};
  }
  return chain;
}

std::vector<HeldBlock> by_name(std::vector<HeldBlock> held) {
  std::ranges::sort(held, {}, &HeldBlock::engine);
  return held;
}

// Applies random events to targets of its own, to the index and to a model of its own.
class Writer {
 public:
  Writer(KvIndex& index, std::uint64_t seed) : index_(index), random_(seed) {
    for (std::size_t i = 0; i < kOwnTargets; ++i) {
      targets_.push_back(*index_.add_target());
      model_.targets[targets_.back()];
    }
  }

  void run() {
    for (int i = 0; i < kEvents; ++i) {
      step();
    }
  }

  const IndexModel& model() const { return model_; }
  // Answers that differed from the model's.
  int wrong() const { return wrong_; }

 private:
  void step() {
    TargetId& target = targets_[random_() % kOwnTargets];
    const Tier tier = random_() % 3 == 0 ? static_cast<Tier>(random_() % 4) : Tier::Device;
    const std::uint64_t kind = random_() % 1000;
    if (kind < 580) {
      const auto chain = some_chain(random_);
      const auto parent =
          random_() % 3 == 0 ? std::nullopt : std::optional<EngineHash>(random_() % kNames);
      check(index_.store(target, tier, parent, chain) == model_.store(target, tier, parent, chain));
    } else if (kind < 980) {
      std::vector<EngineHash> names(1 + random_() % 6);
      std::ranges::generate(names, [&] { return random_() % kNames; });
      check(index_.remove(target, tier, names) == model_.remove(target, tier, names));
    } else if (kind < 985) {
      index_.clear(target);
      model_.targets[target].clear();
    } else {
      move(target);
    }
  }

  // The target leaves, and another one takes over what it held.
  void move(TargetId& target) {
    std::vector<HeldBlock> held;
    index_.snapshot(target, held);
    const auto blocks = std::move(model_.targets[target]);
    model_.targets.erase(target);
    index_.remove_target(target);
    target = *index_.add_target();
    check(index_.restore(target, held) == StoreOutcome::Stored);
    check(held.size() == blocks.size());
    model_.targets[target] = blocks;
  }

  void check(bool right) { wrong_ += right ? 0 : 1; }

  KvIndex& index_;
  std::mt19937_64 random_;
  IndexModel model_;
  std::vector<TargetId> targets_;
  int wrong_ = 0;
};

TEST(IndexConcurrency, WritersReadersAndChangingTargetsLeaveWhatAModelHas) {
  KvIndex index({.max_targets = 256});
  // This target never changes: every answer, at any time, has it with the same depth.
  const TargetId constant = *index.add_target();
  std::vector<SequenceHash> constant_prompt;
  {
    const std::vector<StoredBlock> chain{{1, 1}, {2, 2}, {3, 1}, {4, 2}};
    ASSERT_EQ(index.store(constant, Tier::Device, std::nullopt, chain), StoreOutcome::Stored);
    sequence_hashes(std::vector<LocalHash>{1, 2, 1, 2, 9}, constant_prompt);
  }
  std::vector<std::unique_ptr<Writer>> writers;
  for (std::uint64_t i = 0; i < kWriters; ++i) {
    writers.push_back(std::make_unique<Writer>(index, 100 + i));
  }
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> answers{0};
  std::vector<std::thread> readers;
  for (std::uint64_t i = 0; i < 2; ++i) {
    readers.emplace_back([&, i] {
      std::mt19937_64 random(i);
      std::vector<Overlap> found;
      std::vector<HeldBlock> held;
      while (!stop.load(std::memory_order_relaxed)) {
        index.find(constant_prompt, found);
        const auto mine = std::ranges::find(found, constant, &Overlap::target);
        wrong += mine == found.end() || *mine != Overlap{constant, 4, 0, 0} ? 1 : 0;
        const auto prompt = some_prompt(random);
        index.find(prompt, found);
        std::ranges::sort(found, {}, &Overlap::target);
        for (std::size_t at = 0; at < found.size(); ++at) {
          const Overlap& overlap = found[at];
          const std::uint32_t depth = overlap.device + overlap.host + overlap.disk;
          wrong += depth == 0 || depth > prompt.size() ? 1 : 0;
          wrong += at > 0 && found[at - 1].target == overlap.target ? 1 : 0;
        }
        held.clear();
        index.snapshot(static_cast<TargetId>(random() % 64), held);
        for (const HeldBlock& block : held) {
          wrong += block.copies == TierCopies{} ? 1 : 0;
        }
        wrong += index.stats().bytes == 0 ? 1 : 0;
        answers.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  {
    std::vector<std::thread> threads;
    for (const auto& writer : writers) {
      threads.emplace_back([&writer] { writer->run(); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
  stop = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answers, 0U);

  // Now nothing runs: the union of the writers' models is what the index must be.
  IndexModel all;
  const std::vector<StoredBlock> chain{{1, 1}, {2, 2}, {3, 1}, {4, 2}};
  all.store(constant, Tier::Device, std::nullopt, chain);
  for (const auto& writer : writers) {
    EXPECT_EQ(writer->wrong(), 0);
    for (const auto& [target, blocks] : writer->model().targets) {
      ASSERT_TRUE(all.targets.emplace(target, blocks).second) << "two writers got one id";
    }
  }
  for (const auto& [target, blocks] : all.targets) {
    std::vector<HeldBlock> held;
    index.snapshot(target, held);
    std::vector<HeldBlock> expected;
    for (const auto& [engine, block] : blocks) {
      expected.push_back({slot_key(engine), block.sequence, block.copies});
    }
    ASSERT_EQ(by_name(held), by_name(expected)) << target;
    EXPECT_EQ(index.blocks(target), blocks.size());
  }
  std::mt19937_64 random(77);
  for (int i = 0; i < 200; ++i) {
    const auto prompt = some_prompt(random);
    ASSERT_EQ(sorted_find(index, prompt), all.find(prompt));
  }
}

TEST(IndexConcurrency, TablesThatGrowAndShrinkBesideReadersLoseNoBlock) {
  KvIndex index({});
  const TargetId kept = *index.add_target();
  const TargetId changing = *index.add_target();
  std::vector<StoredBlock> chain;
  std::vector<LocalHash> locals;
  for (std::uint64_t i = 1; i <= 400; ++i) {
    chain.push_back({i, i});
    locals.push_back(i);
  }
  std::vector<SequenceHash> prompt;
  sequence_hashes(locals, prompt);
  ASSERT_EQ(index.store(kept, Tier::Device, std::nullopt, chain), StoreOutcome::Stored);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::thread reader([&] {
    std::vector<Overlap> found;
    while (!stop.load(std::memory_order_relaxed)) {
      index.find(prompt, found);
      const auto mine = std::ranges::find(found, kept, &Overlap::target);
      wrong += mine == found.end() || mine->device != prompt.size() ? 1 : 0;
    }
  });
  for (std::uint64_t round = 0; round < 12; ++round) {
    std::vector<StoredBlock> others = chain;
    for (std::uint64_t i = 0; i < 6000; ++i) {
      others.push_back({1000 + i, (round << 32U) + i});
    }
    EXPECT_EQ(index.store(changing, Tier::Device, std::nullopt, others), StoreOutcome::Stored);
    std::vector<EngineHash> names;
    for (const StoredBlock& block : others) {
      names.push_back(block.engine);
    }
    if (round % 2 == 0) {
      EXPECT_EQ(index.remove(changing, Tier::Device, names), names.size());
    } else {
      index.clear(changing);
    }
  }
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(index.stats().distinct_blocks, chain.size());
}

}  // namespace
}  // namespace fairlead::kv
