#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "mock/engine_fixture.hpp"
#include "mock/logprobs.hpp"
#include "net/http_client.hpp"
#include "net/task_group.hpp"

namespace fairlead::mock {
namespace {

constexpr std::size_t kPrompt = 30'000;

::vllm::GenerateRequest scored(std::string id, std::size_t prompt, std::uint32_t top_n) {
  ::vllm::GenerateRequest request = request_of(std::move(id), prompt, 1);
  request.mutable_response()->set_prompt_logprobs(true);
  request.mutable_response()->mutable_prompt_candidates()->set_top_n(top_n);
  return request;
}

/// Prompts whose log-probabilities are more work than any test has time for.
class PromptLogprobs : public Engine {
 protected:
  void start_with_all_logprobs(Interface interface = Interface::Grpc) {
    MockOptions options = instant();
    options.max_logprobs = -1;
    options.interface = interface;
    start(options);
  }
  static ::vllm::GenerateRequest endless() { return scored("endless", kPrompt, 30'000); }
  void expect_computing() {
    ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().waiting == 1; }));
  }
  void expect_gone() {
    ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().aborted_total == 1; }));
    EXPECT_EQ(engine_->counts().finished_total, 0U);
    expect_idle();
  }
};

TEST_F(PromptLogprobs, ManyPiecesMakeOneMessage) {
  start_with_all_logprobs();
  const auto stream = run(scored("req-1", 3000, 5));
  ASSERT_TRUE(stream->prompt_info && stream->finish);
  EXPECT_EQ(stream->messages, 2U);
  const auto& info = *stream->prompt_info;
  EXPECT_EQ(info.num_prompt_tokens(), 3000U);
  ASSERT_EQ(info.logprobs_size(), 3000);
  ASSERT_EQ(info.ranks_size(), 3000);
  ASSERT_EQ(info.candidate_tokens_size(), 3000);
  EXPECT_EQ(info.logprobs(0), 0);
  EXPECT_EQ(info.ranks(0), 0U);
  EXPECT_EQ(info.candidate_tokens(0).tokens_size(), 0);
  CandidateChoice choice;
  choice.top_n = 5;
  for (int i = 1; i < 3000; ++i) {
    const ScoredToken expected = score(static_cast<TokenId>(1000 + i), choice, 32'000, true);
    ASSERT_EQ(info.logprobs(i), expected.token.logprob) << i;
    ASSERT_EQ(info.ranks(i), 1U) << i;
    ASSERT_EQ(info.candidate_tokens(i).tokens_size(), 5) << i;
    for (int k = 0; k < 5; ++k) {
      const auto& token = info.candidate_tokens(i).tokens(k);
      const Candidate& wanted = expected.candidates[static_cast<std::size_t>(k)];
      ASSERT_EQ(token.id(), wanted.id);
      ASSERT_EQ(token.logprob(), wanted.logprob);
      ASSERT_EQ(token.rank(), wanted.rank);
    }
  }
}

TEST_F(PromptLogprobs, OthersAreServedMeanwhileAndALeavingClientEndsThem) {
  start_with_all_logprobs();
  auto leaving = open(endless());
  expect_computing();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(request_of(std::to_string(i), 10, 5))->ids.size(), 5U);
  }
  EXPECT_EQ(leaving->messages, 0U);
  EXPECT_EQ(engine_->counts().waiting, 1U);
  cancel(leaving);
  ASSERT_TRUE(run_until(reactor_, [&] { return engine_->counts().aborted_total == 1; }));
  expect_idle();
}

TEST_F(PromptLogprobs, AnAbortEndsThemWithoutAnyLogprob) {
  start_with_all_logprobs();
  const auto stream = open(endless());
  expect_computing();
  abort("endless");
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  ASSERT_TRUE(stream->prompt_info && stream->finish);
  EXPECT_EQ(stream->finish->finish_reason(), ::vllm::FinishInfo::ABORTED);
  EXPECT_EQ(stream->prompt_info->num_prompt_tokens(), kPrompt);
  EXPECT_EQ(stream->prompt_info->logprobs_size(), 0);
  expect_idle();
}

// What SIGTERM does to the command.
TEST_F(PromptLogprobs, TheLoopCanBeStoppedAmongThem) {
  start_with_all_logprobs();
  const auto stream = open(endless());
  expect_computing();
  reactor_.post([&] { reactor_.stop(); });
  reactor_.run();
  EXPECT_EQ(engine_->counts().waiting, 1U);
  on_reactor([&] { engine_->stop(); });
  ASSERT_TRUE(run_until(reactor_, [&] { return stream->status.has_value(); }));
  EXPECT_FALSE(stream->status->ok());
  EXPECT_EQ(stream->messages, 0U);
}

TEST_F(PromptLogprobs, OverHttpALeavingClientEndsThem) {
  start_with_all_logprobs(Interface::Http);
  net::http::ClientRequest request;
  request.method = "POST";
  request.target = "/inference/v1/generate";
  request.headers.add("content-type", "application/json");
  request.body = R"({"token_ids":[1)";
  for (std::size_t i = 1; i < kPrompt; ++i) {
    request.body += ",1";
  }
  request.body += R"(],"sampling_params":{"max_tokens":1,"prompt_logprobs":-1}})";
  {
    net::http::Client client(dialer_, "engine", {addresses_->engine});
    net::TaskGroup tasks;
    on_reactor([&] {
      tasks.spawn([](net::http::Client& to, net::http::ClientRequest what) -> net::Task<> {
        co_await to.send(std::move(what), net::Clock::now() + std::chrono::hours(1));
      }(client, std::move(request)));
    });
    expect_computing();
    on_reactor([&] { tasks.cancel(); });
    expect_gone();
  }
}

}  // namespace
}  // namespace fairlead::mock
