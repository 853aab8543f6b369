#include "serving/generation.hpp"

#include <gtest/gtest.h>

#include "serving/generation_fixture.hpp"

namespace fairlead::serving {
namespace {

using net::testing::run_until;
using testing::finished;
using testing::ids_of;

class GenerationTest : public testing::GenerationFixture {};

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
  s.request.stop.max_tokens = 100'000;
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

TEST_F(GenerationTest, AWholeAnswerTakesNoLongerThanItsTokensMay) {
  start(spec("a"));
  in_turn([&] { engines_.streams[0].silent = true; });
  ASSERT_TRUE(run_until(reactor_, [&] { return engines_.streams.size() == 2; }));
  EXPECT_EQ(reported_, (std::vector<std::uint64_t>{1}));
  const engine::Finish finish = finished(1);
  in_turn([&] { engines_.tokens(1, "x", &finish); });
  EXPECT_TRUE(outcome_ && *outcome_);
}

TEST_F(GenerationTest, HowRequestsEndIsReportedWhereItMatters) {
  start(spec("a"));
  in_turn([&] { engines_.streams[0].sink->on_error({ErrorCode::EngineUnknown, "broken", {}}); });
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcomes_, std::vector{fleet::Outcome::Failed});
  EXPECT_TRUE(reported_.empty());
}

}  // namespace
}  // namespace fairlead::serving
