#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "kv/index.hpp"
#include "kv_sim/engine.hpp"
#include "kv_sim/report.hpp"
#include "kv_sim/simulation.hpp"
#include "kv_sim/trace.hpp"

namespace fairlead::kv_sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr StepTime kRound{
    .base_ms = 10, .prefill_token_ms = 1, .decode_request_ms = 2, .kv_block_ms = 0.5};

Job make_job(const Workload& workload, std::size_t request, std::uint32_t block_size) {
  Job job;
  job.request = request;
  job.prompt_tokens = workload.record(request).input_tokens;
  job.output_tokens = workload.record(request).output_tokens;
  workload.prompt(request, block_size, job.locals, job.hashes);
  return job;
}

// Runs an engine until it has nothing to do; the milliseconds of its steps. `each(job)` is told
// every token.
template <class Each>
std::vector<int> run_out(Engine& engine, std::vector<CacheEvent>& events, Each&& each) {
  std::vector<int> steps;
  while (const auto duration = engine.begin_step()) {
    steps.push_back(static_cast<int>(duration->count() / 1'000'000));
    StepOutput out;
    engine.finish_step(out);
    for (Job* job : out.advanced) {
      each(*job);
    }
    events.insert(events.end(), out.events.begin(), out.events.end());
  }
  return steps;
}

TEST(Engine, StepsTakeWhatTheyCompute) {
  Engine engine({.block_size = 16, .blocks = 64, .step_tokens = 40, .time = kRound});
  const Workload workload{.records = burst(2, 100, 3)};
  Job first = make_job(workload, 0, 16);
  Job second = make_job(workload, 1, 16);
  engine.add(first);
  std::vector<CacheEvent> events;
  // 40 + 40 + 20 tokens of the prompt, then two decode steps over 7 blocks.
  EXPECT_THAT(run_out(engine, events, [](Job&) {}), ElementsAre(50, 50, 30, 15, 15));
  EXPECT_EQ(first.cached, 0U);
  // The same again: six whole blocks are cached, four tokens are not.
  engine.add(second);
  EXPECT_THAT(run_out(engine, events, [](Job&) {}), ElementsAre(14, 15, 15));
  EXPECT_EQ(second.cached, 96U);
  EXPECT_EQ(engine.totals().computed_tokens, 104U);
  EXPECT_EQ(engine.cache().free(), 64U);
}

TEST(Engine, APromptIsNeverCachedAsAWhole) {
  Engine engine({.block_size = 16, .blocks = 64, .time = kRound});
  const Workload workload{.records = burst(2, 64, 1)};
  Job first = make_job(workload, 0, 16);
  Job second = make_job(workload, 1, 16);
  std::vector<CacheEvent> events;
  engine.add(first);
  run_out(engine, events, [](Job&) {});
  engine.add(second);
  run_out(engine, events, [](Job&) {});
  EXPECT_EQ(second.cached, 48U);
}

// Many requests through a cache that is too small for them: each gets all its tokens, and whoever
// follows the events knows what is cached.
TEST(Engine, EventsSayWhatIsCachedThroughEvictionsAndPreemptions) {
  const EngineOptions options{
      .block_size = 16, .blocks = 150, .step_tokens = 256, .max_running = 8, .time = kRound};
  Workload workload;
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    // A chain of one of six documents, as long as it happens to be.
    const auto input = static_cast<std::uint32_t>(1 + random() % 1500);
    const std::uint64_t document = random() % 6;
    workload.records.push_back({.at = Nanos(0),
                                .input_tokens = input,
                                .output_tokens = static_cast<std::uint32_t>(1 + random() % 300),
                                .ids = {document * 3, document * 3 + 1, document * 3 + 2}});
  }
  Engine engine(options);
  std::deque<Job> jobs;
  for (std::size_t i = 0; i < workload.size(); ++i) {
    ASSERT_TRUE(
        Engine::fits(options, workload.record(i).input_tokens, workload.record(i).output_tokens));
    jobs.push_back(make_job(workload, i, 16));
    engine.add(jobs.back());
  }
  std::vector<CacheEvent> events;
  std::size_t tokens = 0;
  run_out(engine, events, [&](Job& job) {
    ++tokens;
    EXPECT_LE(job.generated, job.output_tokens);
  });
  std::size_t expected = 0;
  for (const Record& record : workload.records) {
    expected += record.output_tokens;
  }
  EXPECT_EQ(tokens, expected);
  EXPECT_GT(engine.totals().preemptions, 0U);
  EXPECT_EQ(engine.cache().free(), options.blocks);

  kv::KvIndex index({});
  const kv::TargetId target = *index.add_target();
  std::set<kv::EngineHash> held;
  for (const CacheEvent& event : events) {
    if (event.stored) {
      ASSERT_EQ(index.store(target, kv::Tier::Device, event.parent, event.blocks),
                kv::StoreOutcome::Stored);
      for (const kv::StoredBlock& block : event.blocks) {
        EXPECT_TRUE(held.insert(block.engine).second);
      }
    } else {
      EXPECT_EQ(index.remove(target, kv::Tier::Device, event.removed), event.removed.size());
      for (const kv::EngineHash hash : event.removed) {
        EXPECT_EQ(held.erase(hash), 1U);
      }
    }
  }
  EXPECT_EQ(held.size(), engine.cache().published());
  for (const kv::EngineHash hash : held) {
    EXPECT_TRUE(engine.cache().holds(hash));
  }
}

TEST(BlockCache, EvictsTheLeastRecentlyFreedAndTheEndOfASequenceFirst) {
  BlockCache cache(4);
  std::vector<BlockId> blocks;
  std::vector<kv::EngineHash> evicted;
  ASSERT_TRUE(cache.allocate(3, blocks, evicted));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cache.publish(blocks[i], 10 + i), blocks[i]);
  }
  EXPECT_FALSE(cache.allocate(2, blocks, evicted));
  cache.release(blocks);
  std::vector<BlockId> others;
  ASSERT_TRUE(cache.allocate(2, others, evicted));  // the unused one, then the end
  EXPECT_THAT(evicted, ElementsAre(12));
  std::vector<BlockId> found;
  cache.acquire_prefix(std::vector<kv::SequenceHash>{10, 11, 12}, found);
  EXPECT_THAT(found, ElementsAre(blocks[0], blocks[1]));
  EXPECT_EQ(cache.free(), 0U);
}

TEST(Trace, SaysWhichLineItCannotRead) {
  std::istringstream good(
      R"({"timestamp": 5, "input_length": 600, "output_length": 0, "hash_ids": [7, 9]})"
      "\n"
      R"({"timestamp": 3000, "input_length": 6, "output_length": 2, "hash_ids": [7]})");
  const auto records = read_trace(good, std::chrono::seconds(2));
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 1U);  // the other one is too late
  EXPECT_EQ(records->front().output_tokens, 1U);
  EXPECT_EQ(records->front().at, std::chrono::milliseconds(5));
  for (const char* bad :
       {"{", "{}", R"({"timestamp": 5, "input_length": 600, "output_length": 0, "hash_ids": [7]})",
        R"({"timestamp": -5, "input_length": 6, "output_length": 0, "hash_ids": [7]})",
        R"({"timestamp": 5, "input_length": 6, "output_length": 0, "hash_ids": ["7"]})"}) {
    std::istringstream in(bad);
    const auto read = read_trace(in, std::chrono::seconds(2));
    ASSERT_FALSE(read) << bad;
    EXPECT_THAT(read.error().message, HasSubstr("line 1: "));
  }
}

TEST(Trace, CopiesShareNothingWithEachOther) {
  Workload workload{.records = burst(2, 1024, 1), .copies = 2};
  const auto prompt = [&](std::size_t n) {
    std::vector<kv::LocalHash> locals;
    std::vector<kv::SequenceHash> hashes;
    workload.prompt(n, 64, locals, hashes);
    return hashes;
  };
  EXPECT_EQ(prompt(0).size(), 16U);
  EXPECT_EQ(prompt(0), prompt(2));
  EXPECT_EQ(prompt(1), prompt(3));
  EXPECT_NE(prompt(0).front(), prompt(1).front());
  workload.reuse = false;
  EXPECT_NE(prompt(0).front(), prompt(2).front());
}

SimulationOptions fleet_of(std::uint32_t workers, routing::RouterMode mode) {
  return {.workers = workers,
          .engine = {.block_size = 16, .blocks = 4096},
          .router = {.mode = mode, .seed = 3}};
}

Summary simulate(const SimulationOptions& options, const Workload& workload) {
  const auto results = Simulation(options, workload).run();
  EXPECT_TRUE(results);
  if (!results) {
    return {};
  }
  EXPECT_TRUE(results->drained);
  EXPECT_TRUE(results->exact);
  EXPECT_EQ(results->index_unknown_parents, 0U);
  EXPECT_EQ(results->rejected, 0U);
  EXPECT_EQ(results->outcomes.size(), workload.size());
  return summarize(*results);
}

Workload documents() {
  return {.records = hot({.requests = 600,
                          .rate = 12,
                          .prefix_tokens = 1024,
                          .documents = 60,
                          .document_tokens = 8192,
                          .exponent = 0.8,
                          .question_tokens = 300,
                          .output_tokens = 60,
                          .seed = 2})};
}

// What every run's last check relies on.
TEST(Simulation, ARouterIsIdleWhenNothingIsBooked) {
  const auto set = std::make_shared<fleet::WorkerSet>();
  auto worker = std::make_shared<fleet::Worker>();
  worker->id = 1;
  worker->healthy = true;
  set->id = 1;
  set->slot_count = 1;
  set->workers.push_back(std::move(worker));
  for (const auto mode : {routing::RouterMode::Kv, routing::RouterMode::LeastLoaded}) {
    routing::Router router(mode, 1);
    auto held = router.choose(set, {}, {});
    ASSERT_TRUE(held);
    EXPECT_FALSE(idle(router));
    held->release();
    EXPECT_TRUE(idle(router));
  }
}

TEST(Simulation, KvBeatsTheOtherModesWherePromptsShareTheirBeginnings) {
  const Workload workload = documents();
  const Summary kv = simulate(fleet_of(4, routing::RouterMode::Kv), workload);
  for (const auto mode : {routing::RouterMode::RoundRobin, routing::RouterMode::LeastLoaded,
                          routing::RouterMode::Random, routing::RouterMode::PowerOfTwo}) {
    const Summary other = simulate(fleet_of(4, mode), workload);
    EXPECT_GT(kv.hit_rate, other.hit_rate * 1.2);
    EXPECT_LT(kv.ttft_mean, other.ttft_mean * 0.8);
    EXPECT_LT(kv.ttft_p99, other.ttft_p99);
  }
  EXPECT_LT(kv.prefill_balance, 1.5);
}

TEST(Simulation, WithoutReuseKvIsNoWorseThanLeastLoaded) {
  Workload workload = documents();
  workload.reuse = false;
  workload.speed = 0.3;
  const Summary kv = simulate(fleet_of(4, routing::RouterMode::Kv), workload);
  const Summary other = simulate(fleet_of(4, routing::RouterMode::LeastLoaded), workload);
  EXPECT_EQ(kv.hit_rate, 0);
  EXPECT_EQ(other.hit_rate, 0);
  EXPECT_LT(kv.ttft_mean, other.ttft_mean * 1.02);
  EXPECT_LT(kv.prefill_balance, other.prefill_balance * 1.02);
}

TEST(Simulation, ABurstOfEqualPromptsLandsOnFewWorkersWhenChoicesArePredicted) {
  const Workload workload{.records = burst(64, 8192, 50)};
  SimulationOptions options = fleet_of(8, routing::RouterMode::Kv);
  const Summary predicted = simulate(options, workload);
  EXPECT_LE(predicted.workers_used, 3U);
  options.predicted_ttl = Nanos(0);
  const Summary blind = simulate(options, workload);
  EXPECT_EQ(blind.workers_used, 8U);
  EXPECT_LT(predicted.prediction_error, blind.prediction_error);
}

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  const Workload workload = documents();
  for (const auto mode : {routing::RouterMode::Kv, routing::RouterMode::Random}) {
    const auto outcomes = [&] {
      std::vector<std::pair<std::uint32_t, Nanos>> out;
      for (const Outcome& one : Simulation(fleet_of(4, mode), workload).run()->outcomes) {
        out.emplace_back(one.worker, one.ended);
      }
      return out;
    };
    EXPECT_EQ(outcomes(), outcomes());
  }
}

TEST(Simulation, RequestsThatNoEngineCouldHoldAreRejected) {
  const Workload workload{.records = burst(3, 4096 * 16, 1)};
  const auto results = Simulation(fleet_of(2, routing::RouterMode::Kv), workload).run();
  ASSERT_TRUE(results);
  EXPECT_EQ(results->rejected, 3U);
  EXPECT_TRUE(results->drained);
}

}  // namespace
}  // namespace fairlead::kv_sim
