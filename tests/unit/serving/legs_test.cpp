#include <gtest/gtest.h>

#include "serving/generation_fixture.hpp"
#include "serving/leg.hpp"

// Prefill and decode on two engines, and going on on another engine.

namespace fairlead::serving {
namespace {

using engine::Backend;
using engine::Leg;
using fleet::Role;
using testing::finished;
using testing::ids_of;

constexpr std::string_view kHeld =
    R"({"do_remote_prefill":true,"remote_engine_id":"e","remote_host":"h","remote_port":5600,)"
    R"("remote_block_ids":[1]})";

engine::Finish prefilled(std::string_view params = kHeld) {
  engine::Finish finish = finished(1);
  finish.cached_prompt_tokens = 2;
  finish.kv_transfer_params = *json::parse(params);
  return finish;
}

class LegsTest : public testing::GenerationFixture {
 protected:
  explicit LegsTest(Backend backend = Backend::Vllm, ServiceOptions options = default_options())
      : GenerationFixture(std::move(options)) {
    set_model(
        {make_set(1, Role::Prefill, backend, 1, 2), make_set(2, Role::Decode, backend, 11, 2)});
  }
  // Ends the prefill leg of stream `i`.
  void end_prefill(std::size_t i, const engine::Finish& finish) {
    in_turn([&] { engines_.tokens(i, "?", &finish); });
  }
  std::uint64_t in_flight(std::uint64_t worker) { return router_.in_flight(worker); }
  void fail(std::size_t i, ErrorCode code) {
    in_turn([&] { engines_.streams[i].sink->on_error({code, "gone", {}}); });
  }
};

TEST_F(LegsTest, DecodeBeginsWhenThePromptIsComputed) {
  GenerationSpec s = spec("abc");
  s.request.extra_args = json::Object({json::Member{.key = "x", .value = 1}});
  start(std::move(s));
  ASSERT_EQ(engines_.streams.size(), 1u);
  EXPECT_EQ(engines_.streams[0].authority, "engine1");
  EXPECT_EQ(engines_.streams[0].request.leg, Leg::Prefill);
  EXPECT_EQ(engines_.streams[0].request.stop.max_tokens, 1u);
  EXPECT_EQ(json::dump(engines_.streams[0].request.kv_transfer_params),
            R"({"do_remote_decode":true})");
  EXPECT_EQ(in_flight(1), 1u);
  EXPECT_EQ(in_flight(11), 1u);
  end_prefill(0, prefilled());
  ASSERT_EQ(engines_.streams.size(), 2u);
  EXPECT_EQ(in_flight(1), 0u);  // freed at the hand-off
  const auto& decode = engines_.streams[1].request;
  EXPECT_EQ(engines_.streams[1].authority, "engine11");
  EXPECT_EQ(decode.leg, Leg::Decode);
  EXPECT_EQ(decode.stop.max_tokens, 10u);
  EXPECT_EQ(decode.prompt, ids_of("abc"));
  EXPECT_EQ(json::dump(decode.kv_transfer_params), kHeld);
  EXPECT_EQ(json::dump(decode.extra_args), json::dump(engines_.streams[0].request.extra_args));
  engine::Finish finish = finished(2);
  finish.cached_prompt_tokens = 3;  // all of it came from elsewhere
  in_turn([&] { engines_.tokens(1, "hi", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "hi");  // nothing of the prefill engine's token
  EXPECT_EQ((*outcome_)->completion_tokens, 2u);
  EXPECT_EQ((*outcome_)->cached_tokens, 2u);  // the prefill engine's
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(LegsTest, APrefillWithoutHandOffIsAnErrorThatNamesIt) {
  start(spec("abc"));
  end_prefill(0, finished(1));
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::HandOffMissing);
  EXPECT_EQ(outcome_->error().param, "kv_transfer_params");
  EXPECT_EQ(engines_.streams.size(), 1u);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(LegsTest, AFailedPrefillGoesToAnotherPrefillWorker) {
  start(spec("abc"));
  fail(0, ErrorCode::EngineUnreachable);
  ASSERT_EQ(engines_.streams.size(), 2u);
  EXPECT_EQ(engines_.streams[1].authority, "engine2");
  EXPECT_EQ(engines_.streams[1].request.leg, Leg::Prefill);
  EXPECT_EQ(reported_, (std::vector<std::uint64_t>{1}));
}

TEST_F(LegsTest, ARefusedPrefillNeverReachesDecode) {
  start(spec("abc"));
  fail(0, ErrorCode::EngineRejected);
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(engines_.streams.size(), 1u);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(LegsTest, AnotherDecodeWorkerComesForTheCache) {
  start(spec("abc"));
  end_prefill(0, prefilled());
  fail(1, ErrorCode::EngineDisconnected);
  ASSERT_EQ(engines_.streams.size(), 3u);
  EXPECT_EQ(engines_.streams[2].authority, "engine12");
  EXPECT_EQ(engines_.streams[2].request.leg, Leg::Decode);
  EXPECT_EQ(json::dump(engines_.streams[2].request.kv_transfer_params), kHeld);
}

TEST_F(LegsTest, AClientThatLeavesBeforeTheFirstTokenLeavesTheDecodeEngineToItsTransfer) {
  start(spec("abc"));
  end_prefill(0, prefilled());
  in_turn([&] { tasks_.reset(); });
  ASSERT_NE(engines_.streams[1].sink, nullptr);
  EXPECT_EQ(in_flight(11), 1u);
  EXPECT_EQ(service_.metrics("m").releases_pending.get(), 1);
  in_turn([&] { engines_.tokens(1, "x"); });
  EXPECT_TRUE(engines_.streams[1].aborted);
  EXPECT_EQ(service_.metrics("m").releases_pending.get(), 0);
  EXPECT_EQ(service_.metrics("m").releases[0].get(), 1);
  EXPECT_TRUE(encoder_.text.empty());
  expect_nothing_left();
}

TEST_F(LegsTest, AClientThatLeavesLaterOrEarlierAbortsAtOnce) {
  start(spec("abc"));
  end_prefill(0, prefilled());
  in_turn([&] { engines_.tokens(1, "x"); });
  in_turn([&] { tasks_.reset(); });
  EXPECT_TRUE(engines_.streams[1].aborted);
  start(spec("abc"));
  in_turn([&] { tasks_.reset(); });
  EXPECT_TRUE(engines_.streams[2].aborted);
  EXPECT_EQ(service_.metrics("m").releases_pending.get(), 0);
  expect_nothing_left();
}

TEST_F(LegsTest, WithoutAPrefillWorkerDecodeServesAlone) {
  set_model({make_set(2, Role::Decode, Backend::Vllm, 11, 1)});
  start(spec("abc"));
  ASSERT_EQ(engines_.streams.size(), 1u);
  EXPECT_EQ(engines_.streams[0].request.leg, Leg::Whole);
  EXPECT_TRUE(engines_.streams[0].request.kv_transfer_params.is_null());
}

TEST_F(LegsTest, PromptLogprobsAreThePrefillEngines) {
  GenerationSpec s = spec("abc");
  s.request.output.prompt_logprobs = 1;
  start(std::move(s));
  EXPECT_EQ(engines_.streams[0].request.output.prompt_logprobs, 1u);
  in_turn([&] {
    const std::vector<engine::TokenLogprob> logprobs(3);
    engines_.streams[0].sink->on_prompt({.prompt_tokens = 3, .logprobs = logprobs});
  });
  end_prefill(0, prefilled());
  ASSERT_EQ(engines_.streams.size(), 2u);
  EXPECT_FALSE(engines_.streams[1].request.output.prompt_logprobs.has_value());
  const auto finish = finished(1);
  in_turn([&] { engines_.tokens(1, "x", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
}

class MeetingLegsTest : public LegsTest {
 protected:
  MeetingLegsTest() : LegsTest(Backend::Sglang) {}
};

TEST_F(MeetingLegsTest, BothBeginAtOnceInOneRoom) {
  GenerationSpec s = spec("abc");
  s.request.output.logprobs = 1;
  start(std::move(s));
  ASSERT_EQ(engines_.streams.size(), 2u);
  const auto& prefill = engines_.streams[0].request;
  const auto& decode = engines_.streams[1].request;
  EXPECT_EQ(prefill.leg, Leg::Prefill);
  EXPECT_EQ(decode.leg, Leg::Decode);
  ASSERT_TRUE(prefill.bootstrap.has_value());
  EXPECT_EQ(prefill.bootstrap, decode.bootstrap);
  EXPECT_EQ(prefill.bootstrap->host, "host1");
  EXPECT_EQ(prefill.output.logprobs, 1u);  // of the first token
  EXPECT_EQ(decode.output.logprobs, 1u);
  EXPECT_EQ(in_flight(1) + in_flight(11), 2u);
}

TEST_F(MeetingLegsTest, OutputIsTheDecodeEnginesAndThePromptThePrefills) {
  start(spec("abc"));
  end_prefill(0, prefilled("null"));
  EXPECT_EQ(in_flight(1), 0u);
  const auto finish = finished(2);
  in_turn([&] { engines_.tokens(1, "hi", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "hi");
  EXPECT_EQ((*outcome_)->cached_tokens, 2u);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(MeetingLegsTest, AnErrorOfEitherEndsBoth) {
  for (const std::size_t failing : {0, 1}) {
    const std::size_t first = engines_.streams.size();
    start(spec("abc"));
    fail(first + failing, ErrorCode::EngineRejected);
    ASSERT_TRUE(outcome_ && !*outcome_);
    EXPECT_TRUE(engines_.streams[first].aborted);
    EXPECT_TRUE(engines_.streams[first + 1].aborted);
    tasks_.reset();
    expect_nothing_left();
    outcome_.reset();
  }
}

TEST_F(MeetingLegsTest, AFailedPairIsTriedAgainInAnotherRoom) {
  start(spec("abc"));
  fail(0, ErrorCode::EngineDisconnected);
  ASSERT_EQ(engines_.streams.size(), 4u);
  EXPECT_TRUE(engines_.streams[1].aborted);
  EXPECT_EQ(engines_.streams[2].authority, "engine2");
  EXPECT_NE(engines_.streams[2].request.bootstrap->room,
            engines_.streams[0].request.bootstrap->room);
}

TEST_F(MeetingLegsTest, ALeavingClientAbortsBothOnceTheyHaveArrived) {
  start(spec("abc"));
  in_turn([&] { tasks_.reset(); });
  // An abort may overtake its request inside the engine.
  EXPECT_FALSE(engines_.streams[0].aborted);
  EXPECT_FALSE(engines_.streams[1].aborted);
  EXPECT_TRUE(net::testing::run_until(
      reactor_, [&] { return engines_.streams[0].aborted && engines_.streams[1].aborted; }));
  EXPECT_EQ(service_.metrics("m").releases[2].get(), 2);
  EXPECT_EQ(service_.metrics("m").releases_pending.get(), 0);
  expect_nothing_left();
}

TEST_F(MeetingLegsTest, AClientThatLeavesDuringOutputAbortsAtOnce) {
  start(spec("abc"));
  end_prefill(0, prefilled("null"));
  in_turn([&] { engines_.tokens(1, "x"); });
  in_turn([&] { tasks_.reset(); });
  EXPECT_TRUE(engines_.streams[1].aborted);
  expect_nothing_left();
}

TEST_F(MeetingLegsTest, OutputWaitsForThePromptsLogprobs) {
  GenerationSpec s = spec("abc");
  s.request.output.prompt_logprobs = 1;
  start(std::move(s));
  ASSERT_EQ(engines_.streams.size(), 2u);
  EXPECT_TRUE(engines_.streams[1].paused);
  EXPECT_FALSE(engines_.streams[1].request.output.prompt_logprobs.has_value());
  in_turn([&] {
    const std::vector<engine::TokenLogprob> logprobs(3);
    engines_.streams[0].sink->on_prompt({.prompt_tokens = 3, .logprobs = logprobs});
  });
  end_prefill(0, prefilled("null"));
  EXPECT_FALSE(engines_.streams[1].paused);
  const auto finish = finished(1);
  in_turn([&] { engines_.tokens(1, "x", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
}

TEST_F(MeetingLegsTest, APromptThatIsToldBehindTheFirstTokenTakesNothingBack) {
  start(spec("abc"));
  in_turn([&] { engines_.tokens(1, "x"); });
  in_turn([&] { engines_.streams[0].sink->on_prompt({.prompt_tokens = 3, .logprobs = {}}); });
  end_prefill(0, prefilled("null"));
  const auto finish = finished(2);
  in_turn([&] { engines_.tokens(1, "y", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "xy");
  EXPECT_TRUE(encoder_.before_prompt.empty());
  EXPECT_EQ((*outcome_)->cached_tokens, 2u);
}

TEST_F(MeetingLegsTest, APrefillEngineThatIsLastToSpeakIsHeardOut) {
  start(spec("abc"));
  const auto finish = finished(1);
  in_turn([&] { engines_.tokens(1, "x", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  ASSERT_NE(engines_.streams[0].sink, nullptr);
  EXPECT_EQ(service_.metrics("m").releases_pending.get(), 1);
  end_prefill(0, prefilled("null"));
  EXPECT_FALSE(engines_.streams[0].aborted);
  tasks_.reset();
  expect_nothing_left();
}

class MigrationRunTest : public LegsTest {
 protected:
  static ServiceOptions migrating() {
    ServiceOptions options = default_options();
    options.stream_timeout = net::Duration(0);
    options.migration_limit = 2;
    return options;
  }
  MigrationRunTest() : LegsTest(Backend::Vllm, migrating()) {
    set_model({make_set(1, Role::Aggregated, Backend::Vllm, 1, 4)});
  }
};

TEST_F(MigrationRunTest, OutputGoesOnFromWhereItStands) {
  GenerationSpec s = spec("abc");
  s.request.stop.min_tokens = 4;
  s.stop_strings = {"loX"};
  start(std::move(s));
  in_turn([&] { engines_.tokens(0, "hel"); });
  fail(0, ErrorCode::EngineDisconnected);
  ASSERT_EQ(engines_.streams.size(), 2u);
  const auto& second = engines_.streams[1].request;
  EXPECT_EQ(second.prompt, ids_of("abchel"));
  EXPECT_EQ(second.stop.max_tokens, 7u);
  EXPECT_EQ(second.stop.min_tokens, 1u);
  EXPECT_EQ(second.request_id, "r");
  in_turn([&] { engines_.tokens(1, "lo"); });
  fail(1, ErrorCode::EngineUnreachable);
  ASSERT_EQ(engines_.streams.size(), 3u);
  EXPECT_EQ(engines_.streams[2].request.prompt, ids_of("abchello"));
  EXPECT_EQ(engines_.streams[2].request.stop.max_tokens, 5u);
  const auto finish = finished(2);
  in_turn([&] { engines_.tokens(2, "!?", &finish); });
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(encoder_.text[0], "hello!?");
  EXPECT_EQ((*outcome_)->prompt_tokens, 3u);
  EXPECT_EQ((*outcome_)->completion_tokens, 7u);
  EXPECT_EQ(service_.metrics("m").migrations[1].get(), 2);
  EXPECT_EQ(reported_.size(), 2u);
  tasks_.reset();
  expect_nothing_left();
}

TEST_F(MigrationRunTest, NoMoreOftenThanTheLimit) {
  start(spec("abc"));
  for (std::size_t i = 0; i < 3; ++i) {
    in_turn([&] { engines_.tokens(i, "x"); });
    fail(i, ErrorCode::EngineDisconnected);
  }
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(engines_.streams.size(), 3u);
  EXPECT_EQ(encoder_.text[0], "xxx");
}

TEST_F(MigrationRunTest, ALostEndIsMadeUp) {
  start(spec("abc"));
  in_turn([&] { engines_.tokens(0, "0123456789"); });
  fail(0, ErrorCode::EngineDisconnected);
  ASSERT_TRUE(outcome_ && *outcome_);
  EXPECT_EQ(engines_.streams.size(), 1u);
  EXPECT_EQ(encoder_.text[0], "0123456789");
  EXPECT_EQ(encoder_.ends[0], EndReason::Length);
}

TEST_F(MigrationRunTest, WhatCannotGoOnFails) {
  GenerationSpec s = spec("abc");
  s.request.sampling.presence_penalty = 1;
  start(std::move(s));
  in_turn([&] { engines_.tokens(0, "x"); });
  fail(0, ErrorCode::EngineDisconnected);
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(engines_.streams.size(), 1u);
  start(spec("abc"));
  in_turn([&] { engines_.tokens(1, "x"); });
  fail(1, ErrorCode::EngineRejected);  // says something about the request
  EXPECT_EQ(engines_.streams.size(), 2u);
}

TEST_F(MigrationRunTest, WhereItGoesOnIsCheckedLikeTheFirstWorker) {
  const auto with = [&](engine::CapabilitySet capabilities) {
    auto set =
        std::make_shared<fleet::WorkerSet>(*make_set(1, Role::Aggregated, Backend::Vllm, 1, 2));
    for (auto& worker : set->workers) {
      auto changed = std::make_shared<fleet::Worker>(*worker);
      changed->capabilities = capabilities;
      worker = std::move(changed);
    }
    return set;
  };
  set_model({with({engine::Capability::VllmXargs, engine::Capability::LogprobTokenIds})});
  GenerationSpec s = spec("abc");
  s.request.output.logprob_token_ids = {5};
  start(std::move(s));
  ASSERT_EQ(engines_.streams.size(), 1u);
  const auto ids = ids_of("x");
  const std::vector<engine::TokenLogprob> logprobs(1);
  in_turn([&] { engines_.streams[0].sink->on_tokens({ids, logprobs, nullptr}); });
  // The other engine was replaced by one that cannot do it.
  in_turn([&] { set_model({with({})}); });
  fail(0, ErrorCode::EngineDisconnected);
  ASSERT_TRUE(outcome_ && !*outcome_);
  EXPECT_EQ(outcome_->error().code, ErrorCode::CapabilityUnsupported);
  EXPECT_EQ(engines_.streams.size(), 1u);  // nothing was sent
  tasks_.reset();
  expect_nothing_left();
}

}  // namespace
}  // namespace fairlead::serving
