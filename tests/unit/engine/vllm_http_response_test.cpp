#include "engine/vllm_http/response.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/testing.hpp"

namespace fairlead::engine::vllm_http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::plain_request;
using testing::RecordingSink;
using ::testing::SizeIs;

/// One stream under test.
struct Bench {
  explicit Bench(const GenerateRequest& request = plain_request()) : translator(request) {}

  Result<> feed(std::string_view event) { return translator.feed_event(scratch, event, sink); }
  Result<> answer(std::string_view body) {
    return translator.feed_answer(scratch, std::string(body), sink);
  }
  /// The failure of an event that must fail.
  Error failure(std::string_view event) {
    const Result<> fed = feed(event);
    EXPECT_FALSE(fed) << event;
    EXPECT_FALSE(translator.finished());
    return fed ? Error{} : fed.error();
  }

  ResponseScratch scratch;
  ResponseTranslator translator;
  RecordingSink sink;
};

std::string tokens(std::string_view ids, std::string_view more = "") {
  return fmt::format(R"({{"request_id":"r","choices":[{{"index":0,"token_ids":[{}]{}}}]}})", ids,
                     more);
}

std::string finish(std::string_view ids, std::string_view reason = "stop",
                   std::string_view more = "") {
  return tokens(ids, fmt::format(R"(,"finish_reason":"{}"{})", reason, more));
}

std::string counted(std::string_view ids, int total, std::string_view more = "") {
  return fmt::format(
      R"({{"choices":[{{"index":0,"token_ids":[{}]{}}}],"usage":{{"completion_tokens":{}}}}})", ids,
      more, total);
}

std::string entry(TokenId id, double logprob, int rank, std::string_view top = "") {
  return fmt::format(R"({{"token_id":{},"logprob":{},"rank":{},"top_logprobs":[{}]}})", id, logprob,
                     rank, top);
}

std::string top(TokenId id, double logprob, int rank) {
  return fmt::format(R"({{"token_id":{},"logprob":{},"rank":{}}})", id, logprob, rank);
}

std::string scored(std::string_view ids, std::string_view entries) {
  return tokens(ids, fmt::format(R"(,"logprobs":{{"content":[{}]}})", entries));
}

GenerateRequest scoring_request(std::uint32_t count = 2) {
  GenerateRequest request = plain_request();
  request.output.logprobs = count;
  return request;
}

TEST(VllmHttpResponse, AStreamEndsWithWhatTheUsageSays) {
  Bench bench;
  ASSERT_TRUE(bench.feed(tokens("5")));
  EXPECT_THAT(bench.sink.ids, ElementsAre(5));
  ASSERT_TRUE(bench.feed(finish("6,7", "length")));
  EXPECT_FALSE(bench.sink.finish);  // held
  EXPECT_TRUE(bench.translator.decided());
  ASSERT_TRUE(bench.feed(
      R"({"choices":[],"usage":{"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}})"));
  ASSERT_TRUE(bench.sink.finish);
  EXPECT_THAT(bench.sink.ids, ElementsAre(5, 6, 7));
  EXPECT_EQ(bench.sink.chunks, 2);
  EXPECT_EQ(bench.sink.finish->reason, FinishReason::Length);
  EXPECT_EQ(bench.sink.finish->output_tokens, 3U);
  EXPECT_EQ(bench.sink.finish->cached_prompt_tokens, 2U);
  // Nothing behind the end counts.
  EXPECT_TRUE(bench.feed("[DONE]"));
  EXPECT_TRUE(bench.feed("rubbish"));
  EXPECT_TRUE(bench.translator.end(bench.sink));
}

TEST(VllmHttpResponse, TheFinishWaitsForNothingButTheNextEventOrTheEnd) {
  for (const std::string_view next : {"[DONE]", "{\"choices\":[]}", "rubbish",
                                      "{\"error\":{\"message\":\"late\",\"code\":500}}"}) {
    Bench bench;
    ASSERT_TRUE(bench.feed(finish("5")));
    ASSERT_TRUE(bench.feed(next)) << next;
    EXPECT_TRUE(bench.sink.finish) << next;
    EXPECT_FALSE(bench.sink.finish->cached_prompt_tokens);
  }
  Bench cut;
  ASSERT_TRUE(cut.feed(finish("5")));
  ASSERT_TRUE(cut.translator.end(cut.sink));
  EXPECT_TRUE(cut.sink.finish);
}

TEST(VllmHttpResponse, TokensNeedNotWaitForTheFinish) {
  Bench length;
  ASSERT_TRUE(length.feed(tokens("5")));
  length.translator.release_tokens(length.sink);
  EXPECT_EQ(length.sink.chunks, 1);  // nothing is held
  ASSERT_TRUE(length.feed(finish("6,7", "length")));
  EXPECT_THAT(length.sink.ids, ElementsAre(5));
  length.translator.release_tokens(length.sink);
  EXPECT_THAT(length.sink.ids, ElementsAre(5, 6, 7));
  EXPECT_FALSE(length.sink.finish);
  length.translator.release_tokens(length.sink);
  EXPECT_EQ(length.sink.chunks, 2);
  ASSERT_TRUE(length.feed(
      R"({"choices":[],"usage":{"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}})"));
  ASSERT_TRUE(length.sink.finish);
  EXPECT_EQ(length.sink.chunks, 3);
  EXPECT_EQ(length.sink.finish->output_tokens, 3U);
  EXPECT_EQ(length.sink.finish->cached_prompt_tokens, 2U);

  // A token that ended the answer comes with the finish, which says so.
  Bench stop(scoring_request(0));
  const std::string entries = entry(5, -0.5, 1) + "," + entry(6, -1.5, 1);
  ASSERT_TRUE(stop.feed(tokens(
      "5,6", fmt::format(R"(,"logprobs":{{"content":[{}]}},"finish_reason":"stop")", entries))));
  stop.translator.release_tokens(stop.sink);
  EXPECT_THAT(stop.sink.ids, ElementsAre(5));
  EXPECT_THAT(stop.sink.logprobs, SizeIs(1));
  ASSERT_TRUE(stop.translator.end(stop.sink));
  EXPECT_THAT(stop.sink.ids, ElementsAre(5, 6));
  ASSERT_THAT(stop.sink.logprobs, SizeIs(2));
  EXPECT_FLOAT_EQ(stop.sink.logprobs[1].logprob, -1.5F);
  EXPECT_EQ(stop.sink.finish->eos_token_id, 6U);
}

TEST(VllmHttpResponse, AStreamWithoutAFinishReasonWasCutShort) {
  Bench bench;
  ASSERT_TRUE(bench.feed(tokens("5")));
  EXPECT_EQ(bench.failure("[DONE]").code, ErrorCode::EngineDisconnected);
  Bench silent;
  const Result<> ended = silent.translator.end(silent.sink);
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::EngineDisconnected);
}

TEST(VllmHttpResponse, ReasonsAreMapped) {
  const auto run = [](std::string_view reason, std::string_view more) {
    Bench bench;
    EXPECT_TRUE(bench.feed(finish("5,9", reason, more)));
    EXPECT_TRUE(bench.feed("[DONE]"));
    return bench.sink.finish.value_or(Finish{});
  };
  const Finish stop = run("stop", R"(,"stop_reason":9)");
  EXPECT_EQ(stop.reason, FinishReason::Stop);
  EXPECT_EQ(stop.stop_token_id, 9U);
  EXPECT_FALSE(stop.eos_token_id);
  const Finish eos = run("stop", R"(,"stop_reason":null)");
  EXPECT_EQ(eos.eos_token_id, 9U);
  EXPECT_FALSE(eos.stop_token_id);
  const Finish other = run("stop", R"(,"stop_reason":"repetition")");
  EXPECT_FALSE(other.stop_token_id || other.eos_token_id);
  EXPECT_EQ(run("abort", "").reason, FinishReason::Aborted);
  EXPECT_FALSE(run("length", "").eos_token_id);
  Bench failed;
  EXPECT_EQ(failed.failure(finish("5", "error")).code, ErrorCode::EngineUnknown);
  Bench unknown;
  const Error error = unknown.failure(finish("5", "boredom"));
  EXPECT_EQ(error.code, ErrorCode::EngineProtocol);
  EXPECT_THAT(error.message, HasSubstr("boredom"));
}

TEST(VllmHttpResponse, WhatMakesNoSenseIsAProtocolError) {
  const std::string events[] = {
      "{",
      "[]",
      "{}",
      R"({"choices":{}})",
      R"({"choices":[{"index":1,"token_ids":[5]}]})",
      R"({"choices":[{"index":0,"token_ids":[5]},{"index":1,"token_ids":[6]}]})",
      R"({"choices":[{"index":0}]})",
      R"({"choices":[{"index":0,"token_ids":null}]})",
      R"({"choices":[{"index":0,"token_ids":"5"}]})",
      R"({"choices":[{"index":0,"token_ids":[5.5]}]})",
      R"({"choices":[{"index":0,"token_ids":[-1]}]})",
      R"({"choices":[{"index":0,"token_ids":[4294967296]}]})",
      R"({"choices":[{"index":0,"token_ids":[5],"finish_reason":3}]})",
      tokens("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"),
      counted("5", 3),
  };
  for (const std::string& event : events) {
    Bench bench;
    EXPECT_EQ(bench.failure(event).code, ErrorCode::EngineProtocol) << event;
    EXPECT_THAT(bench.sink.ids, IsEmpty());
  }
  Bench counts;
  ASSERT_TRUE(counts.feed(finish("5")));
  EXPECT_EQ(counts.failure(R"({"choices":[],"usage":{"completion_tokens":2}})").code,
            ErrorCode::EngineProtocol);
}

TEST(VllmHttpResponse, ErrorsInTheStreamAreMappedLikeStatuses) {
  const std::pair<const char*, ErrorCode> cases[] = {
      {R"({"message":"m","type":"BadRequestError","code":400})", ErrorCode::EngineRejected},
      {R"({"message":"m","type":"NotFoundError","code":404})", ErrorCode::EngineUnreachable},
      {R"({"message":"m","type":"x","code":429})", ErrorCode::EngineExhausted},
      {R"({"message":"m","type":"x","code":503})", ErrorCode::EngineUnreachable},
      {R"({"message":"m","type":"InternalServerError","code":500})", ErrorCode::EngineUnknown},
      {R"({"message":"m","type":"invalid_request_error","code":"model_not_found"})",
       ErrorCode::EngineUnreachable},
      {R"({"message":"m","type":"server_error","code":"internal_error"})",
       ErrorCode::EngineUnknown},
  };
  for (const auto& [error, code] : cases) {
    Bench bench;
    ASSERT_TRUE(bench.feed(tokens("5")));
    const Error failure = bench.failure(fmt::format(R"({{"error": {}}})", error));
    EXPECT_EQ(failure.code, code) << error;
    EXPECT_THAT(failure.message, HasSubstr("generate: m"));
  }
}

TEST(VllmHttpResponse, RunningTotalsTellCumulativeMessages) {
  Bench bench;
  ASSERT_TRUE(bench.feed(counted("5", 1)));
  ASSERT_TRUE(bench.feed(counted("5,5", 2)));
  ASSERT_TRUE(bench.feed(counted("5,5,6,7", 4)));
  ASSERT_TRUE(bench.feed(counted("5,5,6,7", 4, R"(,"finish_reason":"length")")));
  ASSERT_TRUE(bench.feed("[DONE]"));
  EXPECT_THAT(bench.sink.ids, ElementsAre(5, 5, 6, 7));
  EXPECT_EQ(bench.sink.finish->output_tokens, 4U);
}

// Each of these deltas begins with all that came before it.
TEST(VllmHttpResponse, RunningTotalsTellDeltasThatLookCumulative) {
  Bench bench;
  ASSERT_TRUE(bench.feed(counted("5", 1)));
  ASSERT_TRUE(bench.feed(counted("5,5", 3)));
  ASSERT_TRUE(bench.feed(counted("5,5,5,8", 7, R"(,"finish_reason":"stop")")));
  ASSERT_TRUE(bench.feed("[DONE]"));
  EXPECT_THAT(bench.sink.ids, ElementsAre(5, 5, 5, 5, 5, 5, 8));
}

TEST(VllmHttpResponse, WithoutTotalsMessagesAreDeltas) {
  Bench bench;
  ASSERT_TRUE(bench.feed(tokens("5")));
  ASSERT_TRUE(bench.feed(tokens("5,6")));
  ASSERT_TRUE(bench.feed(finish("")));
  ASSERT_TRUE(bench.feed("[DONE]"));
  EXPECT_THAT(bench.sink.ids, ElementsAre(5, 5, 6));
}

TEST(VllmHttpResponse, MessagesThatRepeatSomethingElseAreRefused) {
  Bench other;
  ASSERT_TRUE(other.feed(counted("5", 1)));
  EXPECT_EQ(other.failure(counted("6,7", 2)).code, ErrorCode::EngineProtocol);
  Bench mixed;
  ASSERT_TRUE(mixed.feed(counted("5", 1)));
  ASSERT_TRUE(mixed.feed(counted("5,6", 2)));
  EXPECT_EQ(mixed.failure(counted("7", 3)).code, ErrorCode::EngineProtocol);
  Bench decided;
  ASSERT_TRUE(decided.feed(counted("5", 1)));
  ASSERT_TRUE(decided.feed(counted("6", 2)));
  EXPECT_EQ(decided.failure(counted("5,6,7", 3)).code, ErrorCode::EngineProtocol);
}

TEST(VllmHttpResponse, CumulativeLogprobsAreCutAtWhatWasSent) {
  Bench bench(scoring_request(0));
  const auto event = [](std::string_view ids, int total, std::string_view entries) {
    return counted(ids, total, fmt::format(R"(,"logprobs":{{"content":[{}]}})", entries));
  };
  ASSERT_TRUE(bench.feed(event("5", 1, entry(5, -0.5, 1))));
  ASSERT_TRUE(bench.feed(event("5,6", 2, entry(5, -0.5, 1) + "," + entry(6, -1.5, 3))));
  ASSERT_THAT(bench.sink.logprobs, SizeIs(2));
  EXPECT_FLOAT_EQ(bench.sink.logprobs[1].logprob, -1.5F);
  EXPECT_EQ(bench.failure(event("5,6,7", 3, entry(7, -2, 1))).code, ErrorCode::EngineProtocol);
}

TEST(VllmHttpLogprobs, CandidatesAreTheMostLikelyOnes) {
  Bench bench(scoring_request());
  // Lists lead with the sampled token. It stays only if it is among the two best.
  const std::string first =
      entry(9, -6.5, 91, top(9, -6.5, 91) + "," + top(1, -2.25, 1) + "," + top(2, -2.75, 2));
  const std::string second =
      entry(2, -2.75, 2, top(2, -2.75, 2) + "," + top(1, -2.25, 1) + "," + top(3, -3, 3));
  ASSERT_TRUE(bench.feed(scored("9,2", first + "," + second)));
  ASSERT_THAT(bench.sink.logprobs, SizeIs(2));
  for (const TokenLogprob& token : bench.sink.logprobs) {
    ASSERT_THAT(token.candidates, SizeIs(2));
    EXPECT_EQ(token.candidates[0].id, 1U);
    EXPECT_EQ(token.candidates[0].rank, 1U);
    EXPECT_EQ(token.candidates[1].id, 2U);
  }
  EXPECT_FLOAT_EQ(bench.sink.logprobs[0].logprob, -6.5F);
  EXPECT_EQ(bench.sink.logprobs[0].rank, 91U);
}

TEST(VllmHttpLogprobs, RequestedIdsComeInTheirOrderAndWithoutRanks) {
  GenerateRequest request = plain_request();
  request.output.logprob_token_ids = {7, 5, 8};
  Bench bench(request);
  // As vllm-rs answers ids that were sent as 7, 5, 8, 8.
  ASSERT_TRUE(bench.feed(scored("5", entry(5, -1, 1,
                                           top(5, -1, 1) + "," + top(7, -20, 1) + "," +
                                               top(8, -30, 3) + "," + top(8, -30, 4)))));
  ASSERT_THAT(bench.sink.logprobs, SizeIs(1));
  const std::vector<Candidate>& candidates = bench.sink.logprobs[0].candidates;
  ASSERT_THAT(candidates, SizeIs(3));
  EXPECT_EQ(candidates[0].id, 7U);
  EXPECT_EQ(candidates[1].id, 5U);
  EXPECT_FLOAT_EQ(candidates[1].logprob, -1);
  EXPECT_EQ(candidates[2].id, 8U);
  EXPECT_EQ(candidates[2].rank, 0U);
  EXPECT_EQ(bench.sink.logprobs[0].rank, 0U);  // it is one of them
}

TEST(VllmHttpLogprobs, CountZeroMeansTheSampledTokenOnly) {
  Bench bench(scoring_request(0));
  ASSERT_TRUE(bench.feed(scored("5", entry(5, -0.5, 1, top(5, -0.5, 1)))));
  EXPECT_FLOAT_EQ(bench.sink.logprobs[0].logprob, -0.5F);
  EXPECT_THAT(bench.sink.logprobs[0].candidates, IsEmpty());
}

TEST(VllmHttpLogprobs, TheOlderFormNamesTokensByTheirIds) {
  Bench bench(scoring_request(1));
  ASSERT_TRUE(bench.feed(
      scored("7042", R"({"token":"token_id:7042","logprob":-0.5,"bytes":null,"top_logprobs":[)"
                     R"({"token":"token_id:7042","logprob":-0.5,"bytes":null},)"
                     R"({"token":"token_id:260","logprob":-2.5,"bytes":null}]})")));
  ASSERT_THAT(bench.sink.logprobs, SizeIs(1));
  EXPECT_FALSE(bench.sink.logprobs[0].missing);
  EXPECT_FLOAT_EQ(bench.sink.logprobs[0].logprob, -0.5F);
  ASSERT_THAT(bench.sink.logprobs[0].candidates, SizeIs(1));
  EXPECT_EQ(bench.sink.logprobs[0].candidates[0].id, 7042U);
}

TEST(VllmHttpLogprobs, SingleBadEntriesAreHeldByPlaceholders) {
  const std::string bad[] = {
      "null",
      "3",
      "{}",
      R"({"token_id":6,"logprob":null,"rank":1,"top_logprobs":[]})",
      R"({"token_id":6,"logprob":NaN,"rank":1,"top_logprobs":[]})",
      R"({"token_id":6,"logprob":-Infinity,"rank":1})",
      R"({"token_id":6,"logprob":1e999,"rank":1,"top_logprobs":[]})",
      R"({"token_id":6,"logprob":-1.5E+400,"rank":1})",
      fmt::format(R"({{"token_id":6,"logprob":-{}.0,"rank":1}})", std::string(400, '9')),
      fmt::format(R"({{"token_id":6,"logprob":-{},"rank":1}})", std::string(400, '9')),
      R"({"token_id":6,"logprob":"-1","rank":1})",
      R"({"token_id":7,"logprob":-1.0,"rank":1})",
      R"({"token":"token_id:7","logprob":-1.0})",
      R"({"token_id":6,"logprob":-9999.0,"rank":null,"top_logprobs":[]})",
  };
  for (const std::string& middle : bad) {
    Bench bench(scoring_request());
    ASSERT_TRUE(bench.feed(scored(
        "5,6,7", entry(5, -0.5, 1) + "," + middle + "," + entry(7, -1.5, 2, top(7, -1.5, 2)))))
        << middle;
    ASSERT_THAT(bench.sink.logprobs, SizeIs(3)) << middle;
    EXPECT_TRUE(bench.sink.logprobs[1].missing) << middle;
    EXPECT_EQ(bench.sink.logprobs[1].logprob, kLowestLogprob);
    EXPECT_THAT(bench.sink.logprobs[1].candidates, IsEmpty());
    EXPECT_FALSE(bench.sink.logprobs[0].missing || bench.sink.logprobs[2].missing);
    EXPECT_FLOAT_EQ(bench.sink.logprobs[2].logprob, -1.5F);
  }
}

TEST(VllmHttpLogprobs, CandidatesThatAreNotFiniteAreLeftOut) {
  for (const std::string_view bad : {"NaN", "-Infinity", "-1e999", "1e999"}) {
    Bench bench(scoring_request());
    const std::string list = fmt::format(R"({},{{"token_id":6,"logprob":{},"rank":2}},{})",
                                         top(5, -0.5, 1), bad, top(7, -2.5, 2));
    ASSERT_TRUE(bench.feed(scored("5", entry(5, -0.5, 1, list)))) << bad;
    ASSERT_THAT(bench.sink.logprobs, SizeIs(1));
    EXPECT_FALSE(bench.sink.logprobs[0].missing);
    ASSERT_THAT(bench.sink.logprobs[0].candidates, SizeIs(2)) << bad;
    EXPECT_EQ(bench.sink.logprobs[0].candidates[1].id, 7U);
  }
}

// What is no JSON but for its numbers stays none, and texts keep what looks like one of them.
TEST(VllmHttpLogprobs, OnlyNumbersAreReadLeniently) {
  for (const std::string_view bad :
       {"01e999", "1.e999", ".5e999", "1e", "+1e999", "1e999x", "--1e999"}) {
    Bench bench(scoring_request());
    const std::string event =
        scored("5", fmt::format(R"({{"token_id":5,"logprob":{},"rank":1}})", bad));
    EXPECT_EQ(bench.failure(event).code, ErrorCode::EngineProtocol) << bad;
  }
  Bench bench(scoring_request(0));
  ASSERT_TRUE(
      bench.feed(scored("5,6", R"({"token":"token_id:5","logprob":1e-999,"x":"\"1e999, NaN"},)"
                               R"({"token":"token_id:6","logprob":1e999})")));
  ASSERT_THAT(bench.sink.logprobs, SizeIs(2));
  EXPECT_FALSE(bench.sink.logprobs[0].missing);
  EXPECT_EQ(bench.sink.logprobs[0].logprob, 0);
  EXPECT_TRUE(bench.sink.logprobs[1].missing);
}

TEST(VllmHttpLogprobs, AListThatIsAbsentOrOfAnotherLengthFailsTheRequest) {
  for (const std::string& event :
       {tokens("5"), tokens("5", R"(,"logprobs":null)"), tokens("5", R"(,"logprobs":{})"),
        tokens("5", R"(,"logprobs":{"content":null})"), scored("5", ""),
        scored("5", entry(5, -1, 1) + "," + entry(6, -1, 1)), scored("5,6", entry(5, -1, 1))}) {
    Bench bench(scoring_request());
    EXPECT_EQ(bench.failure(event).code, ErrorCode::EngineProtocol) << event;
    EXPECT_THAT(bench.sink.ids, IsEmpty());
  }
}

std::string whole(std::string_view prompt_logprobs, std::string_view more = "") {
  return fmt::format(
      R"({{"request_id":"r","choices":[{{"index":0,"logprobs":null,"finish_reason":"length",)"
      R"("stop_reason":null,"token_ids":[5,6]}}],"prompt_logprobs":{},"kv_transfer_params":null{}}})",
      prompt_logprobs, more);
}

GenerateRequest prompt_request() {
  GenerateRequest request = plain_request({1, 2, 3});
  request.output.prompt_logprobs = 1;
  return request;
}

TEST(VllmHttpAnswer, CarriesThePromptsLogprobs) {
  Bench bench(prompt_request());
  ASSERT_TRUE(bench.answer(whole(R"([null,{"9":{"logprob":-0.5,"rank":1,"decoded_token":"x"},)"
                                 R"("2":{"logprob":-7.5,"rank":40,"decoded_token":"token_id:2"}},)"
                                 R"({"3":{"logprob":-0.25,"rank":1,"decoded_token":null}}])")));
  EXPECT_EQ(bench.sink.prompt_tokens, 3U);
  ASSERT_THAT(bench.sink.prompt_logprobs, SizeIs(3));
  EXPECT_EQ(bench.sink.prompt_logprobs[0].rank, 0U);
  EXPECT_EQ(bench.sink.prompt_logprobs[0].logprob, 0);
  EXPECT_FLOAT_EQ(bench.sink.prompt_logprobs[1].logprob, -7.5F);
  EXPECT_EQ(bench.sink.prompt_logprobs[1].rank, 40U);
  ASSERT_THAT(bench.sink.prompt_logprobs[1].candidates, SizeIs(1));
  EXPECT_EQ(bench.sink.prompt_logprobs[1].candidates[0].id, 9U);
  EXPECT_FLOAT_EQ(bench.sink.prompt_logprobs[2].logprob, -0.25F);
  EXPECT_THAT(bench.sink.ids, ElementsAre(5, 6));
  ASSERT_TRUE(bench.sink.finish);
  EXPECT_EQ(bench.sink.finish->reason, FinishReason::Length);
}

TEST(VllmHttpAnswer, BadPositionsOfThePromptAreHeldByPlaceholders) {
  for (const std::string_view middle :
       {"null", "{}", "7", R"({"9":{"logprob":-1,"rank":1}})", R"({"2":{"logprob":NaN,"rank":1}})",
        R"({"2":null})", R"({"2":{"logprob":-1e999,"rank":1}})"}) {
    Bench bench(prompt_request());
    ASSERT_TRUE(bench.answer(
        whole(fmt::format(R"([null,{},{{"3":{{"logprob":-0.25,"rank":1}}}}])", middle))))
        << middle;
    EXPECT_TRUE(bench.sink.prompt_logprobs[1].missing) << middle;
    EXPECT_FALSE(bench.sink.prompt_logprobs[2].missing) << middle;
    EXPECT_FLOAT_EQ(bench.sink.prompt_logprobs[2].logprob, -0.25F);
  }
}

TEST(VllmHttpAnswer, ThePromptsListMustBeThereAndFit) {
  for (const std::string_view list : {"null", "{}", "[]", "[null,{}]", "[null,{},{},{}]"}) {
    Bench bench(prompt_request());
    const Result<> fed = bench.answer(whole(list));
    ASSERT_FALSE(fed) << list;
    EXPECT_EQ(fed.error().code, ErrorCode::EngineProtocol);
    EXPECT_FALSE(bench.sink.prompt_tokens || bench.sink.ended());
  }
}

TEST(VllmHttpAnswer, CarriesTransferParametersWhole) {
  GenerateRequest request = plain_request();
  request.kv_transfer_params = json::Object();
  Bench bench(request);
  const std::string params =
      R"({"remote_block_ids":[[1,18446744073709551615]],"remote_port":5600})";
  ASSERT_TRUE(bench.answer(
      R"({"choices":[{"index":0,"finish_reason":"length","token_ids":[5]}],"kv_transfer_params":)" +
      params + R"(,"ec_transfer_params":{"a":1},"usage":{"completion_tokens":1,)" +
      R"("prompt_tokens_details":{"cached_tokens":64}}})"));
  ASSERT_TRUE(bench.sink.finish);
  EXPECT_EQ(json::dump(bench.sink.finish->kv_transfer_params), params);
  EXPECT_EQ(json::dump(bench.sink.finish->ec_transfer_params), R"({"a":1})");
  EXPECT_EQ(bench.sink.finish->cached_prompt_tokens, 64U);
}

TEST(VllmHttpAnswer, BadAnswersFail) {
  const std::pair<const char*, ErrorCode> cases[] = {
      {"", ErrorCode::EngineProtocol},
      {"[]", ErrorCode::EngineProtocol},
      {R"({"choices":[]})", ErrorCode::EngineProtocol},
      {R"({"choices":[{"index":0,"token_ids":[5]}]})", ErrorCode::EngineProtocol},
      {R"({"choices":[{"index":0,"finish_reason":"error","token_ids":[]}]})",
       ErrorCode::EngineUnknown},
      {R"({"error":{"message":"m","code":400}})", ErrorCode::EngineRejected},
  };
  for (const auto& [body, code] : cases) {
    Bench bench;
    const Result<> fed = bench.answer(body);
    ASSERT_FALSE(fed) << body;
    EXPECT_EQ(fed.error().code, code) << body;
    EXPECT_FALSE(bench.sink.ended());
  }
}

// The short decoder and the full parser lead to the same calls.
TEST(VllmHttpResponse, BothDecodersAgree) {
  const std::string compact[] = {counted("5", 1), counted("5,6", 3), tokens("7"),
                                 counted("8", 5, R"(,"stop_reason":null,"logprobs":null)")};
  RecordingSink sinks[2];
  for (const bool spaced : {false, true}) {
    Bench bench;
    for (std::string event : compact) {
      if (spaced) {
        event.insert(1, " ");
      }
      ASSERT_TRUE(bench.feed(event)) << event;
    }
    sinks[spaced ? 1 : 0] = bench.sink;
  }
  EXPECT_EQ(sinks[0].ids, sinks[1].ids);
  EXPECT_EQ(sinks[0].chunks, sinks[1].chunks);
  EXPECT_THAT(sinks[0].ids, SizeIs(5));
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
