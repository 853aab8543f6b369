#include "fleet/canary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fleet/fake_engines.hpp"
#include "net/task_group.hpp"
#include "net/testing.hpp"

namespace fairlead::fleet {
namespace {

using ::testing::ElementsAre;
using testing::FakeClient;
using testing::FakeEngine;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

class CanaryTest : public ::testing::Test {
 protected:
  CanaryTest() {
    options.wait = 10s;
    options.timeout = 5s;
    options.busy_stall = 60s;
  }
  static net::Task<> into(Canary& canary, engine::EngineClient& client, std::string model,
                          CanaryPart part, std::optional<Result<>>& out) {
    out = co_await canary.run(client, model, part);
  }
  /// The outcome of one canary.
  Result<> run(const std::string& model = "m", CanaryPart part = {}) {
    std::optional<Result<>> out;
    net::testing::run_task(reactor, into(canary, client, model, part, out));
    return out.value_or(fail(ErrorCode::Internal, "did not end"));
  }
  std::int64_t counted(CanaryResult result) const { return counters.get(result); }

  net::Reactor reactor;
  CanaryOptions options;
  const CanaryCounters& counters = *options.counters;
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
  Canary canary{options, *activity, "42"};
  FakeEngine fake;
  FakeClient client{fake};
};

TEST_F(CanaryTest, ByDefaultAsksForOneTokenAndSendsNoSamplingValue) {
  ASSERT_TRUE(run().has_value());
  ASSERT_TRUE(run().has_value());
  EXPECT_EQ(counted(CanaryResult::Success), 2);
  ASSERT_EQ(fake.generations.size(), 2U);
  const engine::GenerateRequest& sent = fake.generations[0];
  EXPECT_TRUE(sent.sampling.unset);
  EXPECT_THAT(sent.prompt, ElementsAre(1));
  EXPECT_EQ(sent.stop.max_tokens, 1U);
  EXPECT_TRUE(sent.extra_args.is_null());
  EXPECT_TRUE(engine::required_capabilities(sent).empty());
  EXPECT_THAT(sent.request_id, HasSubstr("canary-42-"));
  EXPECT_NE(sent.request_id, fake.generations[1].request_id);
  EXPECT_EQ(fake.streams, 0);
}

TEST_F(CanaryTest, ThePromptIsTheModelsBos) {
  options.bos = [](std::string_view model) { return model == "m" ? 99U : 1U; };
  ASSERT_TRUE(run("m").has_value());
  ASSERT_TRUE(run("other").has_value());
  EXPECT_THAT(fake.generations[0].prompt, ElementsAre(99));
  EXPECT_THAT(fake.generations[1].prompt, ElementsAre(1));
}

TEST_F(CanaryTest, AModelsOwnPayloadWins) {
  options.payload = *parse_canary_payload(R"({"token_ids":[5,6]})");
  options.per_model["special"] = *parse_canary_payload(
      R"({"sampling_options":{"temperature":0.5,"extra_args":{"steps":2}},
          "stop_conditions":{"max_tokens":3}})");
  ASSERT_TRUE(run("m").has_value());
  ASSERT_TRUE(run("special").has_value());
  EXPECT_THAT(fake.generations[0].prompt, ElementsAre(5, 6));
  EXPECT_TRUE(fake.generations[0].sampling.unset);
  EXPECT_FALSE(fake.generations[1].sampling.unset);
  EXPECT_EQ(fake.generations[1].sampling.temperature, 0.5F);
  EXPECT_EQ(fake.generations[1].stop.max_tokens, 3U);
  EXPECT_EQ(json::dump(fake.generations[1].extra_args), R"({"steps":2})");
  EXPECT_TRUE(fake.generations[1].extra_args_required);
}

TEST_F(CanaryTest, ErrorsOfTheEngineAreFailures) {
  for (const ErrorCode code : {ErrorCode::EngineRejected, ErrorCode::EngineUnreachable,
                               ErrorCode::EngineDisconnected, ErrorCode::EngineProtocol}) {
    fake.fails = Error{code, "no temperature, please", {}};
    const Result<> outcome = run();
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().message, "canary failed: no temperature, please");
  }
  EXPECT_EQ(counted(CanaryResult::Failure), 4);
  fake.fails.reset();
  fake.reason = engine::FinishReason::Aborted;
  EXPECT_FALSE(run().has_value());
  EXPECT_EQ(counted(CanaryResult::Failure), 5);
}

TEST_F(CanaryTest, AnEndWithoutTokensIsAnAnswer) {
  fake.answer.clear();
  fake.reason = engine::FinishReason::Stop;
  EXPECT_TRUE(run().has_value());
}

TEST_F(CanaryTest, SilenceIsATimeoutAndTheGenerationIsAborted) {
  options.timeout = 20ms;
  fake.silent = true;
  const Result<> outcome = run();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "canary failed: no output within 20 ms");
  EXPECT_EQ(counted(CanaryResult::Timeout), 1);
  EXPECT_EQ(fake.streams, 0);
}

TEST_F(CanaryTest, TokensBeforeTheDeadlineAreEnough) {
  options.timeout = 50ms;
  fake.unfinished = true;
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(counted(CanaryResult::Success), 1);
  EXPECT_EQ(fake.streams, 0);
}

TEST_F(CanaryTest, RefusalsSayNothingAgainstTheWorker) {
  fake.refuses = Error{ErrorCode::UnsupportedField, "`vllm_xargs` is not supported", "vllm_xargs"};
  EXPECT_TRUE(run().has_value());
  fake.refuses->code = ErrorCode::CapabilityUnavailable;
  EXPECT_TRUE(run().has_value());
  fake.refuses.reset();
  fake.fails = Error{ErrorCode::EngineExhausted, "enough to do", {}};
  EXPECT_TRUE(run().has_value());
  EXPECT_EQ(counted(CanaryResult::Refused), 3);
  EXPECT_EQ(counted(CanaryResult::Failure), 0);
}

TEST_F(CanaryTest, GivingUpAbortsTheGeneration) {
  fake.silent = true;
  std::optional<Result<>> out;
  net::TaskGroup group;
  bool done = false;
  reactor.post([&] { group.spawn(into(canary, client, "m", {}, out)); });
  ASSERT_TRUE(net::testing::run_until(reactor, [&] { return fake.streams == 1; }));
  reactor.post([&] {
    group.cancel();
    done = true;
  });
  ASSERT_TRUE(net::testing::run_until(reactor, [&] { return done; }));
  EXPECT_EQ(fake.streams, 0);
  EXPECT_FALSE(out.has_value());
  EXPECT_EQ(counted(CanaryResult::Cancelled), 1);
}

TEST_F(CanaryTest, AnIdleWorkerIsDueAfterTheWaitTime) {
  ASSERT_TRUE(run().has_value());
  const net::TimePoint tried = reactor.now();
  EXPECT_LE(canary.due(), tried + 10s);
  EXPECT_GT(canary.due(), tried + 9s);
  const Activity::Request request(activity, tried + 4s);
  request.progress(tried + 4s);
  EXPECT_EQ(canary.due(), tried + 4s + 60s) << "busy";
}

TEST_F(CanaryTest, TrafficPutsItOff) {
  const net::TimePoint start = net::Clock::now();
  {
    const Activity::Request request(activity, start);
    EXPECT_EQ(canary.due(), start + 60s) << "nothing came, but it was only just sent";
    request.progress(start + 3s);
    EXPECT_EQ(canary.due(), start + 63s);
    request.progress(start + 3s + Activity::kGrain / 2);
    EXPECT_EQ(canary.due(), start + 63s) << "coarse on purpose";
    request.progress(start + 5s);
  }
  EXPECT_FALSE(activity->busy());
  EXPECT_EQ(canary.due(), start + 15s);
  {
    // A request without any output puts nothing off.
    const Activity::Request request(activity, start + 14s);
    EXPECT_EQ(canary.due(), start + 74s);
  }
  EXPECT_EQ(canary.due(), start + 15s);
}

TEST_F(CanaryTest, OthersThatCameLaterDoNotHideAStall) {
  const net::TimePoint start = net::Clock::now();
  const Activity::Request stuck(activity, start);
  const Activity::Request later(activity, start + 50s);
  EXPECT_EQ(canary.due(), start + 60s);
}

TEST_F(CanaryTest, SleepsNoLongerThanTheWaitTime) {
  const net::TimePoint start = net::Clock::now();
  const Activity::Request request(activity, start);
  request.progress(start);
  EXPECT_EQ(canary.pause(start), 10s) << "the request may end at any time";
  EXPECT_EQ(canary.pause(start + 55s), 5s);
  EXPECT_EQ(canary.pause(start + 100s), net::TimerWheel::kTick);
}

TEST_F(CanaryTest, FailedWorkersAreTriedLessAndLessOften) {
  fake.fails = Error{ErrorCode::EngineUnknown, "x", {}};
  std::vector<net::Duration> delays;
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(run().has_value());
    delays.push_back(canary.retry_delay());
  }
  EXPECT_THAT(delays, ElementsAre(1s, 2s, 4s, 8s, 10s, 10s));
  fake.fails.reset();
  EXPECT_TRUE(run().has_value());
  fake.fails = Error{ErrorCode::EngineUnknown, "x", {}};
  EXPECT_FALSE(run().has_value());
  EXPECT_EQ(canary.retry_delay(), net::Duration(1s));
  options.wait = 200ms;
  EXPECT_EQ(canary.retry_delay(), net::Duration(200ms));
}

TEST_F(CanaryTest, ResultsAreCountedByName) {
  ASSERT_TRUE(run().has_value());
  std::string text;
  observe::TextWriter writer(text, "fairlead_frontend");
  counters.collect(writer);
  EXPECT_THAT(text, HasSubstr("# TYPE fairlead_frontend_canary_requests_total counter"));
  EXPECT_THAT(text, HasSubstr("fairlead_frontend_canary_requests_total{result=\"success\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fairlead_frontend_canary_requests_total{result=\"timeout\"} 0\n"));
}

TEST(CanaryPayloads, TheFormOfOtherFrontendsIsRead) {
  const auto payload = parse_canary_payload(R"({
    "token_ids": [1],
    "sampling_options": {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "seed": 3},
    "stop_conditions": {"max_tokens": 2, "stop": null, "stop_token_ids": [9, 4],
                        "include_stop_str_in_output": false, "ignore_eos": true, "min_tokens": 1},
    "eos_token_ids": [], "annotations": [], "_HEALTH_CHECK": true})");
  ASSERT_TRUE(payload.has_value()) << payload.error().message;
  EXPECT_THAT(payload->token_ids, ElementsAre(1));
  EXPECT_FALSE(payload->sampling.unset);
  EXPECT_EQ(payload->sampling.temperature, 0.0F);
  EXPECT_EQ(payload->sampling.top_k, 0U);
  EXPECT_EQ(payload->sampling.seed, 3);
  EXPECT_EQ(payload->stop.max_tokens, 2U);
  EXPECT_EQ(payload->stop.min_tokens, 1U);
  EXPECT_TRUE(payload->stop.ignore_eos);
  EXPECT_THAT(payload->stop.stop_token_ids, ElementsAre(4, 9));
}

TEST(CanaryPayloads, NothingGivenIsTheDefault) {
  for (const std::string text :
       {"{}", R"({"token_ids":null,"sampling_options":null,"stop_conditions":null})",
        R"({"sampling_options":{"temperature":null,"top_p":null},"stop_conditions":{}})"}) {
    const auto payload = parse_canary_payload(text);
    ASSERT_TRUE(payload.has_value()) << payload.error().message;
    EXPECT_TRUE(payload->sampling.unset) << text;
    EXPECT_TRUE(payload->token_ids.empty());
    EXPECT_EQ(payload->stop.max_tokens, 1U);
    EXPECT_FALSE(payload->stop.ignore_eos);
  }
}

TEST(CanaryPayloads, MistakesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"{", "not a JSON object: "},
      {R"({"tokens":[1],"prompt":"Test"})",
       "unknown key(s) `tokens`, `prompt`; known are token_ids, sampling_options, "
       "stop_conditions, "},
      {R"({"sampling_options":{"temprature":1}})", "unknown key(s) `sampling_options.temprature`"},
      {R"({"stop_conditions":{"max":1}})", "unknown key(s) `stop_conditions.max`"},
      {R"({"bootstrap_info":{}})", "unknown key(s) `bootstrap_info`"},
      {R"({"token_ids":[]})", "`token_ids` must not be empty"},
      {R"({"token_ids":[-1]})", "`token_ids` must hold token ids"},
      {R"({"token_ids":1})", "`token_ids` must be an array"},
      {R"({"sampling_options":[]})", "`sampling_options` must be an object"},
      {R"({"sampling_options":{"temperature":"0"}})",
       "`sampling_options.temperature` must be a number"},
      {R"({"sampling_options":{"top_k":1.5}})", "`sampling_options.top_k` must be a whole number"},
      {R"({"sampling_options":{"extra_args":{"kv_transfer_params":{}}}})",
       "`sampling_options.extra_args.kv_transfer_params` is not allowed"},
      {R"({"stop_conditions":{"max_tokens":0}})", "must be a whole number from 1"},
      {R"({"stop_conditions":{"stop":["a"]}})", "`stop_conditions.stop` must be null or empty"},
      {R"({"stop_conditions":{"ignore_eos":1}})", "must be true or false"},
      {R"({"stop_conditions":{"min_tokens":2}})",
       "`stop_conditions.min_tokens` must not exceed max_tokens"},
  };
  for (const auto& [text, message] : rows) {
    const auto payload = parse_canary_payload(text);
    ASSERT_FALSE(payload.has_value()) << text;
    EXPECT_THAT(payload.error().message, HasSubstr(message)) << text;
    EXPECT_EQ(payload.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(CanaryTest, APrefillEngineIsAskedForAHandOver) {
  ASSERT_TRUE(run("m", {.role = Role::Prefill}).has_value());
  const engine::GenerateRequest& sent = fake.generations.at(0);
  EXPECT_EQ(sent.leg, engine::Leg::Prefill);
  EXPECT_EQ(json::dump(sent.kv_transfer_params),
            R"({"do_remote_decode":true,"do_remote_prefill":false})");
  EXPECT_FALSE(sent.bootstrap.has_value());
}

TEST_F(CanaryTest, ADecodeEngineThatRefusesAWholeRequestIsWell) {
  fake.fails = Error{ErrorCode::EngineRejected, "a decode engine needs a prefill", {}};
  EXPECT_TRUE(run("m", {.role = Role::Decode}).has_value());
  EXPECT_EQ(counted(CanaryResult::Refused), 1);
  EXPECT_EQ(fake.generations.at(0).leg, engine::Leg::Whole);
  EXPECT_FALSE(run("m", {.role = Role::Prefill}).has_value());
  EXPECT_FALSE(run().has_value()) << "others have no such excuse";
  fake.fails = Error{ErrorCode::EngineUnknown, "broken", {}};
  EXPECT_FALSE(run("m", {.role = Role::Decode}).has_value());
}

TEST_F(CanaryTest, EnginesThatTellTheirRoleMeetNoPeer) {
  for (const Role role : {Role::Prefill, Role::Decode}) {
    ASSERT_TRUE(run("m", {.role = role, .meets_peer = true}).has_value());
    const engine::GenerateRequest& sent = fake.generations.back();
    EXPECT_EQ(sent.leg, role == Role::Prefill ? engine::Leg::Prefill : engine::Leg::Decode);
    ASSERT_TRUE(sent.bootstrap.has_value());
    EXPECT_EQ(sent.bootstrap->host, "2.2.2.2");
    EXPECT_NE(sent.bootstrap->port, 0);
    EXPECT_GE(sent.bootstrap->room, 0);
    EXPECT_TRUE(sent.kv_transfer_params.is_null());
  }
  EXPECT_NE(fake.generations[0].bootstrap->room, fake.generations[1].bootstrap->room);
}

}  // namespace
}  // namespace fairlead::fleet
