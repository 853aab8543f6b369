#include "api/openai/encoder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "api/openai/unary_encoder.hpp"
#include "api/testing.hpp"
#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

using observe::Endpoint;
using serving::EndReason;

AnswerInfo info(Endpoint endpoint = Endpoint::ChatCompletions) {
  return {.endpoint = endpoint, .id = "chatcmpl-1", .model = "m\"x", .created = 1700000000};
}

constexpr std::string_view kChatHead =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
    R"("model":"m\"x","choices":[)";

std::string chunk(std::string_view inner, std::string_view behind = "") {
  return std::string(kChatHead) + std::string(inner) + "]" + std::string(behind) + "}\n\n";
}

const std::string kRole =
    R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null})";

TEST(ChatStream, OneChoiceFromRoleToDone) {
  FakeExchange exchange;
  const ApiOptions options;
  StreamEncoder encoder(exchange, options, info());
  EXPECT_FALSE(exchange.started()) << "an error could still get its own status";
  encoder.on_delta(0, {.text = "", .ids = {}, .logprobs = {}}, {});
  EXPECT_FALSE(exchange.started()) << "an incomplete character is no output";
  encoder.on_delta(0, {.text = "a\n\"", .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.find("content-type"), "text/event-stream");
  EXPECT_EQ(exchange.take(),
            chunk(kRole) + chunk(R"({"index":0,"delta":{"content":"a\n\""},"logprobs":null,)"
                                 R"("finish_reason":null})"));
  encoder.on_delta(0, {.text = "b", .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(exchange.take(),
            chunk(R"({"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null})"));
  encoder.on_end(0, {.reason = EndReason::Stop, .matched = std::string("\n")}, {});
  EXPECT_EQ(exchange.take(), chunk(R"({"index":0,"delta":{},"logprobs":null,)"
                                   R"("finish_reason":"stop","stop_reason":"\n"})"));
  encoder.finish({.prompt_tokens = 3, .completion_tokens = 2});
  EXPECT_EQ(exchange.take(), "data: [DONE]\n\n");
  EXPECT_TRUE(exchange.finished());
}

TEST(ChatStream, EveryChoiceHasItsRoleAndOneReason) {
  FakeExchange exchange;
  const ApiOptions options;
  AnswerInfo two = info();
  two.choices = 2;
  StreamEncoder encoder(exchange, options, two);
  encoder.on_delta(1, {.text = "x", .ids = {}, .logprobs = {}}, {});
  encoder.on_end(0, {.reason = EndReason::Length, .matched = {}}, {});
  encoder.on_end(1, {.reason = EndReason::Stop, .matched = engine::TokenId{7}}, {});
  EXPECT_EQ(
      exchange.take(),
      chunk(R"({"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null})") +
          chunk(R"({"index":1,"delta":{"content":"x"},"logprobs":null,"finish_reason":null})") +
          chunk(kRole) +
          chunk(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length",)"
                R"("stop_reason":null})") +
          chunk(R"({"index":1,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                R"("stop_reason":7})"));
}

TEST(ChatStream, UsageComesLastAndOnlyWhenAsked) {
  FakeExchange exchange;
  const ApiOptions options;
  AnswerInfo asked = info();
  asked.include_usage = true;
  StreamEncoder encoder(exchange, options, asked);
  encoder.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}}, {});
  encoder.on_end(0, {}, {});
  exchange.take();
  encoder.finish(
      {.prompt_tokens = 10, .completion_tokens = 4, .cached_tokens = 8, .cached_known = true});
  EXPECT_EQ(exchange.take(),
            chunk("", R"(,"usage":{"prompt_tokens":10,"total_tokens":14,"completion_tokens":4,)"
                      R"("prompt_tokens_details":{"cached_tokens":8}})") +
                "data: [DONE]\n\n");
}

TEST(ChatStream, ContinuousUsageRidesOnEveryChunk) {
  FakeExchange exchange;
  const ApiOptions options;
  AnswerInfo asked = info();
  asked.include_usage = asked.continuous_usage = true;
  StreamEncoder encoder(exchange, options, asked);
  encoder.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}},
                   {.prompt_tokens = 2, .completion_tokens = 1});
  encoder.on_end(0, {}, {.prompt_tokens = 2, .completion_tokens = 2});
  EXPECT_EQ(exchange.take(),
            chunk(kRole) +
                chunk(R"({"index":0,"delta":{"content":"x"},"logprobs":null,"finish_reason":null})",
                      R"(,"usage":{"prompt_tokens":2,"total_tokens":3,"completion_tokens":1})") +
                chunk(R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop",)"
                      R"("stop_reason":null})",
                      R"(,"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2})"));

  FakeExchange alone;
  AnswerInfo without = info();
  without.continuous_usage = true;
  StreamEncoder plain(alone, options, without);
  plain.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}}, {.prompt_tokens = 2});
  EXPECT_THAT(alone.take(), ::testing::Not(::testing::HasSubstr("usage")));
}

TEST(ChatStream, AFailureIsToldInBand) {
  FakeExchange exchange;
  const ApiOptions options;
  StreamEncoder encoder(exchange, options, info());
  encoder.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}}, {});
  exchange.take();
  encoder.fail({ErrorCode::EngineDisconnected, "secret of the engine", {}});
  EXPECT_EQ(exchange.take(),
            R"(data: {"error":{"message":"The engine failed while serving the request",)"
            R"("type":"server_error","param":null,"code":"engine_disconnected"}})"
            "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(exchange.finished());
}

TEST(ChatStream, SilenceIsFilledWithComments) {
  FakeExchange exchange;
  ApiOptions options;
  options.keep_alive = std::chrono::seconds(15);
  StreamEncoder encoder(exchange, options, info());
  encoder.on_tick(14);
  EXPECT_FALSE(exchange.started());
  encoder.on_tick(15.5);
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.take(), ": keep-alive\n\n");
  encoder.on_tick(29);
  EXPECT_EQ(exchange.take(), "");
  encoder.on_tick(30.6);
  EXPECT_EQ(exchange.take(), ": keep-alive\n\n");
  encoder.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}}, {});
  exchange.take();
  encoder.on_tick(15.1);
  EXPECT_EQ(exchange.take(), ": keep-alive\n\n") << "silence is counted from the last output";

  ApiOptions off;
  off.keep_alive = net::Duration(0);
  FakeExchange quiet;
  StreamEncoder silent(quiet, off, info());
  silent.on_tick(1e6);
  EXPECT_FALSE(quiet.started());
}

TEST(ChatStream, ASlowReaderIsCongestionUntilItDrains) {
  FakeExchange exchange;
  ApiOptions options;
  options.high_mark_bytes = 100;
  int resumed = 0;
  {
    StreamEncoder encoder(exchange, options, info());
    encoder.set_on_resume([&] { ++resumed; });
    exchange.unsent_bytes = 100;
    EXPECT_FALSE(encoder.congested());
    exchange.unsent_bytes = 101;
    EXPECT_TRUE(encoder.congested());
    exchange.drain();
    EXPECT_EQ(resumed, 1);
  }
  exchange.drain();
  EXPECT_EQ(resumed, 1) << "the encoder is gone";
}

TEST(ChatStream, TheRequestIdCanBeAskedForAsAnEvent) {
  net::http::Request request;
  request.headers.add("x-request-id", "mine");
  FakeExchange exchange(std::move(request));
  const ApiOptions options;
  AnswerInfo asked = info();
  asked.annotated_request_id = "abc";
  StreamEncoder encoder(exchange, options, asked);
  encoder.on_delta(0, {.text = "x", .ids = {}, .logprobs = {}}, {});
  EXPECT_TRUE(exchange.take().starts_with("event: request_id\n: \"abc\"\n\ndata: {"));
  EXPECT_EQ(exchange.headers.find("x-request-id"), "mine");
}

TEST(CompletionStream, TextWithoutRole) {
  FakeExchange exchange;
  const ApiOptions options;
  AnswerInfo completion = info(Endpoint::Completions);
  completion.id = "cmpl-1";
  completion.include_usage = true;
  StreamEncoder encoder(exchange, options, completion);
  encoder.on_delta(0, {.text = "é", .ids = {}, .logprobs = {}}, {});
  encoder.on_end(0, {.reason = EndReason::Length, .matched = {}}, {});
  encoder.finish({.prompt_tokens = 1, .completion_tokens = 1});
  const std::string head =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,)"
      R"("model":"m\"x","choices":[)";
  EXPECT_EQ(exchange.take(),
            head + R"({"index":0,"text":"é","logprobs":null,"finish_reason":null}],"usage":null})" +
                "\n\n" + head +
                R"({"index":0,"text":"","logprobs":null,"finish_reason":"length",)"
                R"("stop_reason":null}],"usage":null})"
                "\n\n" +
                head +
                R"(],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}})"
                "\n\ndata: [DONE]\n\n");
}

TEST(UnaryAnswer, ChatInOneDocument) {
  FakeExchange exchange;
  AnswerInfo two = info();
  two.choices = 2;
  const serving::ServiceOptions options;
  UnaryEncoder encoder(exchange, two, options);
  encoder.on_delta(1, {.text = "B", .ids = {}, .logprobs = {}}, {});
  encoder.on_delta(0, {.text = "a", .ids = {}, .logprobs = {}}, {});
  encoder.on_delta(0, {.text = "b", .ids = {}, .logprobs = {}}, {});
  encoder.on_end(0, {.reason = EndReason::Length, .matched = {}}, {});
  encoder.on_end(1, {.reason = EndReason::Stop, .matched = std::string("END")}, {});
  EXPECT_FALSE(exchange.started());
  encoder.finish({.prompt_tokens = 5, .completion_tokens = 3});
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.find("content-type"), "application/json");
  EXPECT_EQ(exchange.take(),
            R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,)"
            R"("model":"m\"x","choices":[{"index":0,"message":{"role":"assistant","content":"ab"},)"
            R"("logprobs":null,"finish_reason":"length","stop_reason":null},)"
            R"({"index":1,"message":{"role":"assistant","content":"B"},)"
            R"("logprobs":null,"finish_reason":"stop","stop_reason":"END"}],)"
            R"("usage":{"prompt_tokens":5,"total_tokens":8,"completion_tokens":3}})");
}

TEST(UnaryAnswer, CompletionsInOneDocument) {
  FakeExchange exchange;
  const serving::ServiceOptions options;
  UnaryEncoder encoder(exchange, info(Endpoint::Completions), options);
  encoder.on_end(0, {.reason = EndReason::Stop, .matched = engine::TokenId{9}}, {});
  encoder.finish({.prompt_tokens = 5, .cached_tokens = 0, .cached_known = true});
  EXPECT_EQ(exchange.take(),
            R"({"id":"chatcmpl-1","object":"text_completion","created":1700000000,)"
            R"("model":"m\"x","choices":[{"index":0,"text":"","logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":9}],"usage":{"prompt_tokens":5,)"
            R"("total_tokens":5,"completion_tokens":0,"prompt_tokens_details":)"
            R"({"cached_tokens":0}}})");
}

TEST(UnaryAnswer, WhatOutgrowsItsBoundFailsForGood) {
  FakeExchange exchange;
  AnswerInfo two = info();
  two.choices = 2;
  serving::ServiceOptions options;
  options.answer_bytes = 10;
  UnaryEncoder encoder(exchange, two, options);
  encoder.on_delta(0, {.text = "abcd", .ids = {}, .logprobs = {}}, {});
  encoder.on_delta(1, {.text = "efgh\n", .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(encoder.failure(), nullptr) << "all choices count, as JSON: ten bytes";
  encoder.on_delta(0, {.text = "i", .ids = {}, .logprobs = {}}, {});
  ASSERT_NE(encoder.failure(), nullptr);
  EXPECT_EQ(encoder.failure()->code, ErrorCode::AnswerTooLarge);
  EXPECT_EQ(encoder.failure()->param, "stream");
  EXPECT_EQ(traits(encoder.failure()->code).http_status, 400);
  EXPECT_THAT(encoder.failure()->message, ::testing::HasSubstr("9.537e-06 MiB"));
  encoder.on_delta(1, {.text = "", .ids = {}, .logprobs = {}}, {});
  EXPECT_NE(encoder.failure(), nullptr);
  EXPECT_FALSE(exchange.started());
}

TEST(UnaryAnswer, WhatEnginesHaveNotFinishedCounts) {
  FakeExchange exchange;
  serving::ServiceOptions options;
  options.answer_bytes = 1'000'000;
  options.answers = std::make_shared<net::http::BodyBudget>(10'000'000);
  UnaryEncoder encoder(exchange, info(), options);
  encoder.on_unfinished(900'000);
  EXPECT_EQ(encoder.failure(), nullptr);
  EXPECT_GE(options.answers->used(), 900'000U);
  encoder.on_unfinished(0);
  EXPECT_LT(options.answers->used(), 100'000U) << "handed on";
  encoder.on_delta(0, {.text = std::string(600'000, 'x'), .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(encoder.failure(), nullptr);
  encoder.on_unfinished(500'000);
  ASSERT_NE(encoder.failure(), nullptr) << "together with what is gathered";
  EXPECT_EQ(encoder.failure()->code, ErrorCode::AnswerTooLarge);
}

TEST(ChatStream, WhatEnginesHaveNotFinishedCounts) {
  FakeExchange exchange;
  const ApiOptions options;
  serving::ServiceOptions bounds;
  bounds.answer_bytes = 1'000'000;
  bounds.answers = std::make_shared<net::http::BodyBudget>(1'500'000);
  StreamEncoder first(exchange, options, info(), bounds);
  first.on_unfinished(900'000);
  EXPECT_EQ(first.failure(), nullptr);
  {
    StreamEncoder second(exchange, options, info(), bounds);
    second.on_unfinished(900'000);
    ASSERT_NE(second.failure(), nullptr);
    EXPECT_EQ(second.failure()->code, ErrorCode::Overloaded);
  }
  first.on_unfinished(1'000'001);
  ASSERT_NE(first.failure(), nullptr);
  EXPECT_EQ(first.failure()->code, ErrorCode::AnswerTooLarge);
}

TEST(UnaryAnswer, AllAnswersTogetherHaveABound) {
  serving::ServiceOptions options;
  options.answers = std::make_shared<net::http::BodyBudget>(300'000);
  const std::string large(200'000, 'x');
  FakeExchange first_exchange;
  std::optional<UnaryEncoder> first;
  first.emplace(first_exchange, info(), options);
  first->on_delta(0, {.text = large.substr(0, 16'000), .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(options.answers->used(), 0U) << "small answers do not count";
  first->on_delta(0, {.text = large, .ids = {}, .logprobs = {}}, {});
  EXPECT_EQ(first->failure(), nullptr);
  EXPECT_GE(options.answers->used(), 216'000U);
  {
    FakeExchange exchange;
    UnaryEncoder second(exchange, info(), options);
    second.on_delta(0, {.text = large, .ids = {}, .logprobs = {}}, {});
    ASSERT_NE(second.failure(), nullptr);
    EXPECT_EQ(second.failure()->code, ErrorCode::Overloaded);
  }
  EXPECT_GE(options.answers->used(), 216'000U);
  first->finish({});
  EXPECT_EQ(first_exchange.status, 200);
  EXPECT_EQ(options.answers->used(), 0U) << "this client has taken it";
}

}  // namespace
}  // namespace fairlead::api::openai
