#include "mock/scheduler.hpp"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace fairlead::mock {
namespace {

using std::chrono::milliseconds;

std::vector<TokenId> range(TokenId first, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Drives a scheduler in virtual time.
class Rig : public SequenceObserver {
 public:
  explicit Rig(std::size_t blocks, std::size_t block_size = 4, SchedulerOptions options = {},
               TimingModel timing = TimingModel(0, 0))
      : pool(blocks, block_size, true), scheduler(options, timing, pool) {
    pool.set_recording(true);
  }

  Sequence& add(std::vector<TokenId> prompt, std::uint32_t max_new) {
    auto& sequence = *sequences.emplace_back(std::make_unique<Sequence>());
    sequence.prompt_tokens = prompt.size();
    sequence.tokens = std::move(prompt);
    sequence.reply = Reply(TokenFormula(42, std::to_string(sequences.size())), 0);
    sequence.stop.max_new_tokens = max_new;
    sequence.observer = this;
    scheduler.add(sequence);
    return sequence;
  }

  // One whole step; false when nothing could run.
  bool step() {
    const auto step = scheduler.begin_step(now);
    if (!step.work) {
      return false;
    }
    now += step.duration;
    last = step;
    scheduler.finish_step(now);
    return true;
  }

  void run() {
    while (step()) {
    }
  }

  void on_output(Sequence& sequence, const StepOutput& output) override {
    finished += output.finish != FinishReason::None;
    outputs[&sequence].push_back(output);
    order.push_back(&sequence);
  }

  void on_admitted(Sequence& sequence) override { admitted.push_back(&sequence); }

  BlockPool pool;
  Scheduler scheduler;
  Scheduler::Step last;
  Nanos now{1};
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::map<const Sequence*, std::vector<StepOutput>> outputs;
  std::vector<const Sequence*> order;
  std::vector<const Sequence*> admitted;
  std::size_t finished = 0;
};

TEST(Scheduler, RunsASequenceToItsEndAndFreesItsBlocks) {
  Rig rig(16);
  const Sequence& sequence = rig.add(range(1000, 10), 5);
  rig.run();
  EXPECT_EQ(rig.outputs[&sequence].size(), 5U);
  EXPECT_EQ(sequence.tokens.size(), 15U);
  EXPECT_EQ(rig.pool.used(), 0U);
  EXPECT_EQ(rig.scheduler.running() + rig.scheduler.waiting(), 0U);
}

TEST(Scheduler, SecondRequestOfTheSamePromptIsCached) {
  Rig rig(16);
  const Sequence& first = rig.add(range(1000, 10), 1);
  rig.run();
  const Sequence& second = rig.add(range(1000, 10), 1);
  rig.run();
  EXPECT_EQ(first.cached, 0U);
  EXPECT_EQ(second.cached, 8U);
}

TEST(Scheduler, LastBlockOfAnExactMultipleIsComputedAgain) {
  Rig rig(16);
  rig.add(range(1000, 8), 1);
  rig.run();
  const Sequence& again = rig.add(range(1000, 8), 1);
  rig.run();
  EXPECT_EQ(again.cached, 4U);
}

TEST(Scheduler, SaltSeparatesAndBypassReadsNothing) {
  Rig rig(32);
  rig.add(range(1000, 10), 1);
  rig.run();
  Sequence& salted = rig.add(range(1000, 10), 1);
  rig.scheduler.remove(salted);
  salted.hashes.clear();
  salted.cache_key.salt = "tenant";
  rig.scheduler.add(salted);
  Sequence& bypass = rig.add(range(1000, 10), 1);
  bypass.skip_cache_read = true;
  rig.run();
  EXPECT_EQ(salted.cached, 0U);
  EXPECT_EQ(bypass.cached, 0U);
}

TEST(Scheduler, LongPromptIsComputedInChunks) {
  Rig rig(64, 4, {.max_batched_tokens = 8});
  const Sequence& sequence = rig.add(range(1000, 20), 1);
  EXPECT_TRUE(rig.step());
  EXPECT_TRUE(rig.step());
  EXPECT_TRUE(rig.outputs[&sequence].empty());
  EXPECT_TRUE(rig.step());
  EXPECT_EQ(rig.outputs[&sequence].size(), 1U);
}

TEST(Scheduler, WithoutChunkingALongPromptRunsAlone) {
  Rig rig(64, 4, {.max_batched_tokens = 8, .chunked_prefill = false});
  rig.add(range(5000, 6), 1);
  const Sequence& sequence = rig.add(range(1000, 20), 1);
  EXPECT_TRUE(rig.step());
  EXPECT_TRUE(rig.outputs[&sequence].empty());
  EXPECT_TRUE(rig.step());
  EXPECT_EQ(rig.outputs[&sequence].size(), 1U);
}

TEST(Scheduler, RunsNoMoreThanTheLimitAtOnce) {
  Rig rig(64, 4, {.max_running = 2});
  for (int i = 0; i < 5; ++i) {
    rig.add(range(static_cast<TokenId>(1000 * (i + 1)), 4), 3);
  }
  rig.step();
  EXPECT_EQ(rig.scheduler.running(), 2U);
  EXPECT_EQ(rig.scheduler.waiting(), 3U);
  rig.run();
  EXPECT_EQ(rig.finished, 5U);
}

TEST(Scheduler, StepTimesFollowThePolynomials) {
  Rig rig(1024, 64, {}, TimingModel(1, 1));
  rig.add(range(1000, 1000), 2);
  rig.step();
  // 4.209989e-7 * 1000^2 + 1.518344e-2 * 1000 + 16.50142
  EXPECT_NEAR(static_cast<double>(rig.last.duration.count()) / 1e6, 32.1059, 0.001);
  rig.step();
  const double u = 1001.0 / (1023.0 * 64);
  EXPECT_NEAR(static_cast<double>(rig.last.duration.count()) / 1e6,
              -25.74 * u * u + 54.01 * u + 5.74, 0.001);
}

TEST(Scheduler, SpeedupDividesAndZeroRemovesDelays) {
  EXPECT_NEAR(static_cast<double>(TimingModel(2, 1).prefill(100).count()) * 2,
              static_cast<double>(TimingModel(1, 1).prefill(100).count()), 2);
  EXPECT_LT(TimingModel(2, 4).decode(1, 100), TimingModel(2, 1).decode(1, 100));
  EXPECT_EQ(TimingModel(0, 1).prefill(100), Nanos(0));
  EXPECT_EQ(TimingModel(0, 1).decode(1, 100), Nanos(0));
  EXPECT_EQ(TimingModel(1, 1).prefill(0), Nanos(0));
}

TEST(Scheduler, IntervalKeepsEachSequenceOnItsGrid) {
  Rig rig(64);
  Sequence& sequence = rig.add(range(1000, 4), 3);
  sequence.interval = milliseconds(6);
  sequence.ready_at = rig.now = milliseconds(100);
  EXPECT_TRUE(rig.step());
  EXPECT_FALSE(rig.step());
  EXPECT_EQ(rig.scheduler.next_ready(rig.now), milliseconds(106));
  rig.now = milliseconds(107);
  EXPECT_TRUE(rig.step());
  EXPECT_EQ(sequence.ready_at, milliseconds(112));
  rig.now = milliseconds(200);
  EXPECT_TRUE(rig.step());
  EXPECT_EQ(rig.outputs[&sequence].size(), 3U);
}

TEST(Scheduler, PausedSequenceKeepsItsBlocksAndOthersGoOn) {
  Rig rig(64);
  Sequence& paused = rig.add(range(1000, 4), 10);
  const Sequence& other = rig.add(range(2000, 4), 10);
  rig.step();
  rig.scheduler.pause(paused);
  rig.run();
  EXPECT_EQ(rig.outputs[&paused].size(), 1U);
  EXPECT_EQ(rig.outputs[&other].size(), 10U);
  EXPECT_GT(rig.pool.used(), 0U);
  rig.scheduler.resume(paused);
  rig.run();
  EXPECT_EQ(rig.outputs[&paused].size(), 10U);
  EXPECT_EQ(rig.pool.used(), 0U);
}

TEST(Scheduler, NewestGivesWayWhenBlocksRunOut) {
  // Each needs 5 blocks at its end, 7 are usable.
  Rig rig(8);
  const Sequence& older = rig.add(range(1000, 8), 12);
  const Sequence& newer = rig.add(range(2000, 8), 12);
  rig.run();
  EXPECT_EQ(older.preemptions, 0U);
  EXPECT_GT(newer.preemptions, 0U);
  EXPECT_EQ(rig.outputs[&older].size(), 12U);
  EXPECT_EQ(rig.outputs[&newer].size(), 12U) << "nothing is generated twice";
  EXPECT_EQ(rig.pool.used(), 0U);
}

TEST(Scheduler, OldestGivesWayWhenAskedFor) {
  Rig rig(8, 4, {.preemption = PreemptionMode::Oldest});
  const Sequence& older = rig.add(range(1000, 8), 12);
  const Sequence& newer = rig.add(range(2000, 8), 12);
  rig.run();
  EXPECT_GT(older.preemptions, 0U);
  EXPECT_EQ(newer.preemptions, 0U);
  EXPECT_EQ(rig.finished, 2U);
}

TEST(Scheduler, ArrivingPromptNeedsNoPrefill) {
  Rig rig(1024, 64, {}, TimingModel(1, 1));
  Sequence& sequence = rig.add(range(1000, 1000), 2);
  sequence.prompt_arrives = true;
  rig.step();
  EXPECT_LT(rig.last.duration, milliseconds(8));
  EXPECT_EQ(rig.outputs[&sequence].size(), 1U);
  EXPECT_EQ(sequence.cached, 999U);
}

TEST(Scheduler, RemovalInsideAStepIsNotAnswered) {
  Rig rig(64);
  Sequence& gone = rig.add(range(1000, 4), 5);
  const Sequence& stays = rig.add(range(2000, 4), 5);
  ASSERT_TRUE(rig.scheduler.begin_step(rig.now).work);
  rig.scheduler.remove(gone);
  rig.scheduler.finish_step(rig.now);
  EXPECT_TRUE(rig.outputs[&gone].empty());
  EXPECT_EQ(rig.outputs[&stays].size(), 1U);
}

TEST(Scheduler, NothingLeaksAfterRandomArrivalsPausesAndRemovals) {
  std::mt19937 random(7);
  Rig rig(40, 4, {.max_running = 6, .max_batched_tokens = 24});
  std::vector<Sequence*> live;
  for (int i = 0; i < 4000; ++i) {
    switch (random() % 6) {
      case 0:
        live.push_back(
            &rig.add(range(static_cast<TokenId>(1000 + random() % 3 * 500), 1 + random() % 40),
                     static_cast<std::uint32_t>(1 + random() % 60)));
        break;
      case 1:
        if (!live.empty()) {
          rig.scheduler.remove(*live[random() % live.size()]);
        }
        break;
      case 2:
        if (!live.empty()) {
          live[random() % live.size()]->paused = random() % 3 == 0;
        }
        break;
      default: rig.step();
    }
    ASSERT_LE(rig.scheduler.running(), 6U);
    ASSERT_LE(rig.pool.used(), rig.pool.usable());
  }
  for (Sequence* sequence : live) {
    sequence->paused = false;
  }
  rig.run();
  EXPECT_EQ(rig.scheduler.running() + rig.scheduler.waiting(), 0U);
  EXPECT_EQ(rig.pool.used(), 0U);
  for (const auto& [sequence, outputs] : rig.outputs) {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      ASSERT_EQ(outputs[i].token, sequence->reply.at(i, {}));
    }
  }
}

TEST(Scheduler, ASequenceThatComesForItsCacheLaterIsLetInThen) {
  Rig rig(16);
  Sequence& later = rig.add(range(1000, 10), 3);
  later.prompt_arrives = true;
  later.awaits_kv = true;
  later.ready_at = rig.now + milliseconds(7);
  EXPECT_FALSE(rig.scheduler.begin_step(rig.now).work);
  EXPECT_TRUE(rig.admitted.empty());
  EXPECT_EQ(rig.scheduler.next_ready(rig.now), later.ready_at);
  EXPECT_FALSE(rig.scheduler.begin_step(later.ready_at).work);
  EXPECT_EQ(rig.admitted, std::vector<const Sequence*>{&later});
  EXPECT_FALSE(rig.scheduler.next_ready(later.ready_at));
}

TEST(Scheduler, ASequenceThatAwaitsItsCacheHoldsItsBlocks) {
  Rig rig(16);
  Sequence& waiting = rig.add(range(1000, 10), 3);
  waiting.prompt_arrives = true;
  waiting.awaits_kv = true;
  Sequence& other = rig.add(range(2000, 10), 2);
  rig.run();
  EXPECT_EQ(rig.admitted, std::vector<const Sequence*>{&waiting});
  EXPECT_EQ(rig.outputs[&other].size(), 2U);
  EXPECT_TRUE(rig.outputs[&waiting].empty());
  EXPECT_EQ(rig.pool.used(), 3U);
  EXPECT_FALSE(rig.scheduler.next_ready(rig.now));
  waiting.awaits_kv = false;
  rig.run();
  EXPECT_EQ(rig.outputs[&waiting].size(), 3U);
  EXPECT_EQ(rig.pool.used(), 0U);
}

TEST(Scheduler, BlocksCanOutliveTheirSequence) {
  Rig rig(16);
  Sequence& sequence = rig.add(range(1000, 10), 1);
  sequence.keep_blocks = true;
  rig.run();
  EXPECT_EQ(rig.scheduler.running(), 0U);
  EXPECT_EQ(sequence.kept.size(), 3U);
  EXPECT_EQ(rig.pool.used(), 3U);
  EXPECT_FALSE(rig.pool.reset());
  rig.pool.release(sequence.kept);
  EXPECT_EQ(rig.pool.used(), 0U);
}

TEST(Scheduler, GeneratedBlocksCanBeStoredAtTheEnd) {
  Rig rig(16, 4, {.output_stored_at_end = true});
  const Sequence& sequence = rig.add(range(1000, 10), 8);
  EXPECT_TRUE(rig.step());
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(rig.step());
    EXPECT_EQ(rig.pool.cached().size(), 2U);
  }
  rig.run();
  EXPECT_EQ(sequence.tokens.size(), 18U);
  EXPECT_EQ(rig.pool.cached().size(), 4U);  // the last token is not computed
}

}  // namespace
}  // namespace fairlead::mock
