#include "serving/generation.hpp"

#include <gtest/gtest.h>

#include "net/testing.hpp"
#include "serving/fake_engines.hpp"
#include "serving/testing.hpp"

namespace fairlead::serving {
namespace {

using net::testing::run_until;
using testing::byte_tokenizer;
using testing::Engines;
using testing::FakeClient;
using testing::ids_of;
using testing::Recorder;

class GenerationTest : public ::testing::Test {
 protected:
  GenerationTest()
      : router_(routing::RouterMode::RoundRobin, 1),
        pool_({.threads = 1, .queue_jobs = 4}),
        registry_("fairlead_frontend", 1),
        service_(
            reactor_,
            [this](const engine::ClientOptions& options) {
              return std::make_unique<FakeClient>(engines_, options.authority);
            },
            router_, pool_, registry_, options(),
            [this](std::uint64_t worker, std::uint64_t) { reported_.push_back(worker); }) {
    auto set = std::make_shared<fleet::WorkerSet>();
    set->id = 1;
    set->slot_count = 2;
    for (std::size_t slot = 0; slot < 2; ++slot) {
      auto worker = std::make_shared<fleet::Worker>();
      worker->id = slot + 1;
      worker->slot = slot;
      worker->healthy = true;
      worker->endpoint.authority = "engine" + std::to_string(slot + 1);
      set->workers.push_back(std::move(worker));
    }
    auto model = std::make_shared<fleet::Model>();
    model->name = "m";
    model->worker_sets.push_back(std::move(set));
    model_ = model;
    auto fleet = std::make_shared<fleet::Fleet>();
    fleet->models.push_back(std::move(model));
    service_.set_fleet(std::move(fleet));
    auto assets = std::make_shared<ModelContext>();
    assets->tokenizer = byte_tokenizer();
    assets->eos_token_ids = {256};
    assets_ = std::move(assets);
  }

  static ServiceOptions options() {
    ServiceOptions options;
    options.stream_timeout = std::chrono::milliseconds(1);
    return options;
  }

  GenerationSpec spec(std::string_view prompt) {
    GenerationSpec spec;
    spec.model = model_;
    spec.assets = assets_;
    spec.request.stop.max_tokens = 10;
    spec.prompts = {ids_of(prompt)};
    spec.request_id = "r";
    return spec;
  }

  // Starts the generation; the outcome lands in `outcome_`.
  void start(GenerationSpec spec) {
    reactor_.post([this, spec = std::move(spec)]() mutable {
      tasks_.emplace();
      tasks_->spawn(run(std::move(spec)));
    });
    turn();
  }

  net::Task<> run(GenerationSpec spec) {
    observe::RequestScope scope(service_.metrics("m"), observe::Endpoint::Completions,
                                observe::RequestType::Stream, service_.seconds());
    Generation generation(service_, std::move(spec), encoder_, scope);
    outcome_ = co_await generation.run();
    scope.finish(outcome_->has_value() ? nullptr : &outcome_->error(), service_.seconds());
  }

  // Runs `job` inside a turn, then the turn that follows from it.
  void in_turn(std::function<void()> job) {
    reactor_.post(std::move(job));
    turn();
  }
  void turn() {
    reactor_.run_turn(std::chrono::milliseconds(0));
    reactor_.run_turn(std::chrono::milliseconds(0));
  }

  void expect_nothing_left() {
    EXPECT_EQ(router_.in_flight(1), 0u);
    EXPECT_EQ(router_.in_flight(2), 0u);
    EXPECT_EQ(service_.metrics("m").inflight.get(), 0);
    EXPECT_EQ(service_.metrics("m").queued.get(), 0);
    for (const auto& stream : engines_.streams) {
      EXPECT_EQ(stream.sink, nullptr);
    }
  }

  net::Reactor reactor_;
  Engines engines_;
  routing::Router router_;
  CpuPool pool_;
  observe::Registry registry_;
  std::vector<std::uint64_t> reported_;
  Service service_;
  std::shared_ptr<const fleet::Model> model_;
  std::shared_ptr<const ModelContext> assets_;
  Recorder encoder_;
  std::optional<Result<Usage>> outcome_;
  std::optional<net::TaskGroup> tasks_;
};

engine::Finish finished(std::uint32_t tokens) {
  engine::Finish finish;
  finish.reason = engine::FinishReason::Length;
  finish.output_tokens = tokens;
  finish.cached_prompt_tokens = 1;
  return finish;
}

TEST_F(GenerationTest, FoldsTokensIntoTextAndUsage) {
  start(spec("abc"));
  ASSERT_EQ(engines_.streams.size(), 1u);
  EXPECT_EQ(engines_.streams[0].request.request_id, "r");
  in_turn([&] { engines_.tokens(0, "he"); });
  const auto finish = finished(5);
  in_turn([&] { engines_.tokens(0, "llo", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "hello");
  EXPECT_EQ((*outcome_)->prompt_tokens, 3u);
  EXPECT_EQ((*outcome_)->completion_tokens, 5u);
  EXPECT_EQ((*outcome_)->cached_tokens, 1u);
  EXPECT_FALSE(engines_.streams[0].aborted);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(GenerationTest, EveryPromptTimesNIsOneChoiceWithItsOwnSeed) {
  GenerationSpec s = spec("a");
  s.prompts.push_back(ids_of("bc"));
  s.n = 2;
  s.request.sampling.seed = 7;
  start(std::move(s));
  ASSERT_EQ(engines_.streams.size(), 4u);
  const auto finish = finished(1);
  in_turn([&] {
    for (std::size_t i : {3, 1, 0, 2}) {
      engines_.tokens(i, std::string(1, static_cast<char>('p' + i)), &finish);
    }
  });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text,
            (std::map<std::uint32_t, std::string>{{0, "p"}, {1, "q"}, {2, "r"}, {3, "s"}}));
  EXPECT_EQ((*outcome_)->prompt_tokens, 3u);
  EXPECT_EQ((*outcome_)->completion_tokens, 4u);
  EXPECT_EQ(engines_.streams[0].request.sampling.seed, 7);
  EXPECT_EQ(engines_.streams[1].request.sampling.seed, 8);
  EXPECT_EQ(engines_.streams[2].request.request_id, "r-2");
  EXPECT_EQ(engines_.streams[3].request.prompt, ids_of("bc"));
}

TEST_F(GenerationTest, ALocalStopAbortsTheEngine) {
  GenerationSpec s = spec("a");
  s.stop_strings = {"ll"};
  start(std::move(s));
  in_turn([&] { engines_.tokens(0, "hello"); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "he");
  EXPECT_EQ(encoder_.usages[0].completion_tokens, 4u);
  EXPECT_TRUE(engines_.streams[0].aborted);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(GenerationTest, MovesToAnotherWorkerWhileNothingWasOutput) {
  start(spec("a"));
  in_turn([&] { engines_.streams[0].sink->on_error({ErrorCode::EngineUnreachable, "gone", {}}); });
  ASSERT_EQ(engines_.streams.size(), 2u);
  EXPECT_NE(engines_.streams[0].authority, engines_.streams[1].authority);
  EXPECT_EQ(reported_.size(), 1u);
  const auto finish = finished(1);
  in_turn([&] { engines_.tokens(1, "x", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "x");
}

TEST_F(GenerationTest, AFailureAfterOutputIsTheRequestsEnd) {
  start(spec("a"));
  in_turn([&] { engines_.tokens(0, "x"); });
  in_turn([&] { engines_.streams[0].sink->on_error({ErrorCode::EngineDisconnected, "gone", {}}); });
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::EngineDisconnected);
  EXPECT_EQ(engines_.streams.size(), 1u);
  EXPECT_EQ(reported_.size(), 1u);
}

TEST_F(GenerationTest, ARejectionIsNeverTriedElsewhereNorHeldAgainstTheWorker) {
  start(spec("a"));
  in_turn([&] { engines_.streams[0].sink->on_error({ErrorCode::EngineRejected, "top_p", {}}); });
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().message, "top_p");
  EXPECT_EQ(engines_.streams.size(), 1u);
  EXPECT_TRUE(reported_.empty());
}

TEST_F(GenerationTest, AllWorkersDownGivesTheLastFailure) {
  engines_.refuse = {{"engine1", {ErrorCode::EngineUnreachable, "no 1", {}}},
                     {"engine2", {ErrorCode::EngineUnreachable, "no 2", {}}}};
  start(spec("a"));
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::EngineUnreachable);
  EXPECT_EQ(reported_.size(), 2u);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(GenerationTest, OneFailedChoiceEndsItsSiblings) {
  GenerationSpec s = spec("a");
  s.n = 3;
  start(std::move(s));
  in_turn([&] { engines_.tokens(0, "x"); });
  in_turn([&] { engines_.streams[1].sink->on_error({ErrorCode::EngineUnknown, "boom", {}}); });
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_TRUE(engines_.streams[0].aborted);
  EXPECT_TRUE(engines_.streams[2].aborted);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(GenerationTest, ALeavingClientAbortsEverything) {
  GenerationSpec s = spec("a");
  s.n = 2;
  start(std::move(s));
  in_turn([&] { engines_.tokens(0, "x"); });
  in_turn([&] { tasks_.reset(); });
  EXPECT_FALSE(outcome_);
  EXPECT_TRUE(engines_.streams[0].aborted);
  EXPECT_TRUE(engines_.streams[1].aborted);
  expect_nothing_left();
}

TEST_F(GenerationTest, AnAbortOnTheEngineIsNotASuccess) {
  start(spec("a"));
  in_turn([&] { engines_.tokens(0, "x"); });
  engine::Finish finish = finished(1);
  finish.reason = engine::FinishReason::Aborted;
  in_turn([&] { engines_.tokens(0, "", &finish); });
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::EngineCancelled);
  EXPECT_TRUE(encoder_.ends.empty());
}

TEST_F(GenerationTest, ACongestedClientPausesItsEngines) {
  start(spec("a"));
  encoder_.full = true;
  in_turn([&] { engines_.tokens(0, "x"); });
  EXPECT_TRUE(engines_.streams[0].paused);
  in_turn([&] { encoder_.drained(); });
  EXPECT_FALSE(engines_.streams[0].paused);
}

TEST_F(GenerationTest, ASilentEngineFailsTheRequest) {
  start(spec("a"));
  in_turn([&] { engines_.tokens(0, "x"); });
  EXPECT_TRUE(run_until(reactor_, [&] { return outcome_.has_value(); }));
  ASSERT_FALSE(*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::EngineSilent);
  EXPECT_EQ(reported_, (std::vector<std::uint64_t>{1}));
}

TEST_F(GenerationTest, SilenceBeforeAWholeAnswerIsExpected) {
  GenerationSpec s = spec("a");
  s.n = 2;
  start(std::move(s));
  in_turn([&] {
    engines_.streams[0].silent = true;
    engines_.tokens(1, "x");
  });
  // Both are quiet for as long; only the other one's engine is at fault.
  EXPECT_TRUE(run_until(reactor_, [&] { return outcome_.has_value(); }));
  ASSERT_FALSE(*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::EngineSilent);
  EXPECT_EQ(engines_.streams.size(), 2u);
  EXPECT_EQ(reported_, (std::vector<std::uint64_t>{2}));
}

}  // namespace
}  // namespace fairlead::serving
