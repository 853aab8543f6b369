#include "engine/sglang_grpc/response.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "engine/sglang_grpc/lenient_json.hpp"
#include "engine/testing.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::plain_request;
using testing::RecordingSink;
using Meta = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kLength = R"({"type": "length", "length": 2})";

std::string message(std::initializer_list<std::int32_t> ids, const Meta& meta = {},
                    bool finished = false) {
  ::sglang::runtime::v1::GenerateResponse out;
  out.mutable_output_ids()->Add(ids.begin(), ids.end());
  for (const auto& [key, value] : meta) {
    (*out.mutable_meta_info())[key] = value;
  }
  out.set_finished(finished);
  return out.SerializeAsString();
}

class SglangResponse : public ::testing::Test {
 protected:
  Result<> feed(const std::string& bytes) { return translator.feed(scratch, bytes, sink); }
  void restart(const GenerateRequest& request,
               Dialect::Output mode = Dialect::Output::Incremental) {
    translator = ResponseTranslator(request, mode);
    sink = {};
  }
  /// Fails with a protocol error.
  void expect_protocol_error(const std::string& bytes, std::string_view text) {
    const Result<> fed = feed(bytes);
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().code, ErrorCode::EngineProtocol);
    EXPECT_THAT(fed.error().message, HasSubstr(text));
    EXPECT_FALSE(translator.finished());
  }

  ResponseScratch scratch;
  RecordingSink sink;
  ResponseTranslator translator{plain_request(), Dialect::Output::Incremental};
};

TEST_F(SglangResponse, Increments) {
  ASSERT_TRUE(feed(message({5}, {{"finish_reason", "null"}})));
  EXPECT_TRUE(translator.started());
  ASSERT_TRUE(feed(message({6, 7})));
  ASSERT_TRUE(feed(message({})));
  ASSERT_TRUE(feed(message({8}, {{"finish_reason", kLength}, {"cached_tokens", "2"}}, true)));
  EXPECT_EQ(sink.prompt_tokens, 3U);
  EXPECT_THAT(sink.ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(sink.chunks, 3);
  EXPECT_EQ(sink.finish->output_tokens, 4U);
  EXPECT_EQ(sink.finish->reason, FinishReason::Length);
  EXPECT_EQ(sink.finish->cached_prompt_tokens, 2U);
  ASSERT_TRUE(feed(message({9})));
  EXPECT_EQ(sink.ids.size(), 4U);
}

TEST_F(SglangResponse, CumulativeListsNeverGoBack) {
  for (const Dialect::Output mode : {Dialect::Output::Cumulative, Dialect::Output::Unknown}) {
    restart(plain_request(), mode);
    ASSERT_TRUE(feed(message({5, 6})));
    ASSERT_TRUE(feed(message({5})));
    ASSERT_TRUE(feed(message({5, 6})));
    ASSERT_TRUE(feed(message({5, 6, 7}, {{"finish_reason", kLength}}, true)));
    EXPECT_THAT(sink.ids, ElementsAre(5, 6, 7));
    EXPECT_EQ(sink.chunks, 2);
  }
}

TEST_F(SglangResponse, RunningTotalsTellTheModeOfAnEngineThatChangedIt) {
  ASSERT_TRUE(feed(message({5}, {{"completion_tokens", "1"}})));
  ASSERT_TRUE(feed(message({5, 6}, {{"completion_tokens", "2"}})));
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
  restart(plain_request(), Dialect::Output::Cumulative);
  ASSERT_TRUE(feed(message({5}, {{"completion_tokens", "1"}})));
  ASSERT_TRUE(feed(message({6, 7}, {{"completion_tokens", "3"}})));
  EXPECT_THAT(sink.ids, ElementsAre(5, 6, 7));
}

TEST_F(SglangResponse, FinishesOfEveryForm) {
  GenerateRequest request = plain_request();
  request.stop.stop_token_ids = {9};
  const auto finish = [&](const std::string& reason) {
    restart(request);
    const Result<> fed = feed(message({9}, {{"finish_reason", reason}}, true));
    EXPECT_TRUE(fed) << reason;
    return sink.finish.value_or(Finish{});
  };
  EXPECT_EQ(finish(R"({"type": "stop", "matched": 9})").stop_token_id, 9U);
  EXPECT_FALSE(finish(R"({"type": "stop", "matched": 9})").eos_token_id);
  EXPECT_EQ(finish(R"({"type": "stop", "matched": 2})").eos_token_id, 2U);
  for (const char* none : {R"({"type": "stop", "matched": " Dj"})", R"({"type": "stop"})",
                           R"({"type": "stop", "matched": [9, 8]})", R"("stop")", R"("eos")",
                           R"({"type": "stop", "matched": -4})"}) {
    const Finish plain = finish(none);
    EXPECT_EQ(plain.reason, FinishReason::Stop);
    EXPECT_FALSE(plain.stop_token_id || plain.eos_token_id) << none;
  }
  EXPECT_EQ(finish(R"("length")").reason, FinishReason::Length);
  EXPECT_EQ(finish(R"({"type": "cancelled"})").reason, FinishReason::Aborted);
  // Python's text of it.
  EXPECT_EQ(finish(R"("{'type': 'stop', 'matched': 9}")").stop_token_id, 9U);
  EXPECT_EQ(finish(R"({'type': 'length', 'length': 3})").reason, FinishReason::Length);
}

TEST_F(SglangResponse, AbortsAreErrorsWithoutTheirIds) {
  const auto abort = [&](const std::string& reason) {
    restart(plain_request());
    EXPECT_TRUE(feed(message({5})));
    const Result<> fed = feed(message({77}, {{"finish_reason", reason}}, true));
    EXPECT_FALSE(fed);
    EXPECT_TRUE(translator.finished());
    EXPECT_THAT(sink.ids, ElementsAre(5));
    return fed ? Error{} : fed.error();
  };
  const Error blamed = abort(
      R"({"type": "abort", "message": "bad\ngrammar", "status_code": 400, "err_type": "BadRequestError"})");
  EXPECT_EQ(blamed.code, ErrorCode::EngineRejected);
  EXPECT_EQ(blamed.message, "Generate: bad grammar (abort, status 400, BadRequestError)");
  EXPECT_EQ(abort(R"({"type": "abort", "message": "m", "status_code": 503})").code,
            ErrorCode::EngineUnknown);
  EXPECT_EQ(abort(R"({"type": "abort", "message": null, "status_code": null})").message,
            "Generate: the engine ended the generation (abort)");
  EXPECT_EQ(abort(R"("abort_by_user")").code, ErrorCode::EngineUnknown);
  EXPECT_EQ(abort(R"("error")").code, ErrorCode::EngineUnknown);
  EXPECT_EQ(abort(R"({'type': 'abort', 'message': 'no', 'status_code': 422})").code,
            ErrorCode::EngineRejected);
}

TEST_F(SglangResponse, AnEndWithoutReasonIsNoSuccess) {
  expect_protocol_error(message({}, {}, true), "without a finish reason");
  expect_protocol_error(message({}, {{"finish_reason", "null"}}, true), "without a finish reason");
  expect_protocol_error(message({}, {{"finish_reason", R"({"type": "tired"})"}}, true), "`tired`");
  EXPECT_FALSE(sink.prompt_tokens);
}

TEST_F(SglangResponse, NonsenseIsAProtocolError) {
  expect_protocol_error(message({-5}), "negative");
  expect_protocol_error("\xff\xff", "decoded");
  expect_protocol_error(std::string("\x0a\x05\x01", 3), "decoded");
  restart(plain_request({1}, 2));
  ASSERT_TRUE(feed(message({5, 6})));
  expect_protocol_error(message({7}), "more than the 2 tokens");
}

TEST_F(SglangResponse, UnknownFieldsAndUnpackedIdsAreRead) {
  // output_ids one by one, a field 9 of each wire type, text.
  const std::string bytes =
      std::string("\x08\x05\x08\x06\x48\x01\x4a\x02hi\x4d\x01\x02\x03\x04\x22\x01t", 18);
  ASSERT_TRUE(feed(bytes));
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
}

class SglangLogprobs : public SglangResponse {
 protected:
  void ask(std::uint32_t candidates) {
    GenerateRequest request = plain_request();
    request.output.logprobs = candidates;
    restart(request);
  }
};

TEST_F(SglangLogprobs, BothShapesOfTheListsAreUnderstood) {
  // Ids are increments; the second message's lists are cumulative, as some releases had it.
  ask(1);
  ASSERT_TRUE(feed(message({5}, {{"output_token_logprobs", "[[-0.5, 5, null]]"},
                                 {"output_top_logprobs", "[[[-0.5, 5, null]]]"}})));
  ASSERT_TRUE(feed(message(
      {6, 7},
      {{"output_token_logprobs", R"([[-0.5, 5, "a]"], [-1.5, 6, "b\""], [-2.5, 7, null]])"},
       {"output_top_logprobs", "[[[-0.5, 5, null]], [[-1.0, 9, null], [-1.5, 6, null]], null]"}})));
  ASSERT_EQ(sink.logprobs.size(), 3U);
  EXPECT_FLOAT_EQ(sink.logprobs[1].logprob, -1.5F);
  EXPECT_EQ(sink.logprobs[1].rank, 2U);
  ASSERT_EQ(sink.logprobs[1].candidates.size(), 1U);  // no more than asked for
  EXPECT_EQ(sink.logprobs[1].candidates[0].id, 9U);
  EXPECT_EQ(sink.logprobs[1].candidates[0].rank, 1U);
  EXPECT_FLOAT_EQ(sink.logprobs[2].logprob, -2.5F);
  EXPECT_TRUE(sink.logprobs[2].candidates.empty());
  EXPECT_EQ(sink.logprobs[2].rank, 0U);
}

TEST_F(SglangLogprobs, WhatIsNoNumberIsMissing) {
  ask(0);
  for (const char* entry : {"[NaN, 5, null]", "[-Infinity, 5, null]", "[null, 5, null]", "null",
                            "[-0.5, 6, null]", "[\"x\", 5]", "[]", "[-1e999, 5, null]"}) {
    ask(0);
    ASSERT_TRUE(feed(message({5}, {{"output_token_logprobs", std::string("[") + entry + "]"}})))
        << entry;
    EXPECT_TRUE(sink.logprobs[0].missing) << entry;
    EXPECT_EQ(sink.logprobs[0].logprob, kLowestLogprob);
  }
  ask(0);
  ASSERT_TRUE(feed(message({5}, {{"output_token_logprobs", "[[-20000.0, 5, null]]"}})));
  EXPECT_FALSE(sink.logprobs[0].missing);
  EXPECT_EQ(sink.logprobs[0].logprob, kLowestLogprob);
}

TEST_F(SglangLogprobs, PythonsTextOfAListIsRead) {
  ask(0);
  ASSERT_TRUE(feed(message({5}, {{"output_token_logprobs", "\"[(-0.5, 5, None)]\""}})));
  EXPECT_TRUE(sink.logprobs[0].missing);  // a tuple is no entry
  ask(0);
  ASSERT_TRUE(feed(message({5}, {{"output_token_logprobs", "\"[[-0.5, 5, 'it']]\""}})));
  EXPECT_FLOAT_EQ(sink.logprobs[0].logprob, -0.5F);
}

TEST_F(SglangLogprobs, ListsOfAnotherLengthAreAProtocolError) {
  for (const char* list :
       {"", "null", "[]", "[[-1, 5, null], [-1, 5, null]]", "[[-1, 5, null]", "[[-1, 5, null"}) {
    ask(0);
    expect_protocol_error(message({5}, {{"output_token_logprobs", list}}), "logprobs");
  }
  ask(1);
  expect_protocol_error(message({5}, {{"output_token_logprobs", "[[-1, 5, null]]"}}), "logprobs");
}

TEST_F(SglangLogprobs, OfThePrompt) {
  GenerateRequest request = plain_request({1, 2, 3});
  request.output.prompt_logprobs = 1;
  const auto play = [&](const char* tokens, const char* top) {
    restart(request);
    ASSERT_TRUE(feed(message({})));  // nothing yet
    EXPECT_FALSE(sink.prompt_tokens);
    const Meta meta{{"input_token_logprobs", tokens}, {"input_top_logprobs", top}};
    ASSERT_TRUE(feed(message({5}, meta)));
    ASSERT_TRUE(feed(message({6}, meta)));
    ASSERT_EQ(sink.prompt_logprobs.size(), 3U);
    EXPECT_FALSE(sink.prompt_logprobs[0].missing);
    EXPECT_FLOAT_EQ(sink.prompt_logprobs[1].logprob, -2.0F);
    EXPECT_EQ(sink.prompt_logprobs[1].rank, 1U);
    EXPECT_FLOAT_EQ(sink.prompt_logprobs[2].logprob, -3.0F);
    EXPECT_EQ(sink.prompt_logprobs[2].rank, 0U);
    ASSERT_EQ(sink.prompt_logprobs[2].candidates.size(), 1U);
    EXPECT_EQ(sink.prompt_logprobs[2].candidates[0].id, 9U);
    EXPECT_TRUE(sink.logprobs.empty());
  };
  play("[[null, 1, null], [-2, 2, null], [-3, 3, null]]",
       "[null, [[-2, 2, null]], [[-1, 9, null]]]");
  // Older engines leave the first one out.
  play("[[-2, 2, null], [-3, 3, null]]", "[[[-2, 2, null]], [[-1, 9, null]]]");
  restart(request);
  expect_protocol_error(message({5}, {{"input_token_logprobs", "[]"}}), "3 prompt tokens");
}

TEST_F(SglangLogprobs, APromptOfOneTokenHasNone) {
  GenerateRequest request = plain_request({1});
  request.output.prompt_logprobs = 0;
  for (const char* list : {"[]", "[[null, 1, null]]"}) {
    restart(request);
    ASSERT_TRUE(feed(message({5}, {{"input_token_logprobs", list}})));
    ASSERT_EQ(sink.prompt_logprobs.size(), 1U);
    EXPECT_FALSE(sink.prompt_logprobs[0].missing);
  }
}

TEST_F(SglangLogprobs, ADecodeLegHasNoneOfThePrompt) {
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 1;
  request.leg = Leg::Decode;
  restart(request);
  ASSERT_TRUE(feed(message({5})));
  EXPECT_EQ(sink.prompt_tokens, 3U);
  EXPECT_TRUE(sink.prompt_logprobs.empty());
}

TEST_F(SglangLogprobs, APrefillLegHandsItsOneTokenThrough) {
  GenerateRequest request = plain_request({1, 2, 3}, 100);
  request.leg = Leg::Prefill;
  restart(request);
  ASSERT_TRUE(feed(message({5}, {{"finish_reason", R"({"type": "length", "length": 0})"}}, true)));
  EXPECT_THAT(sink.ids, ElementsAre(5));
  restart(request);
  expect_protocol_error(message({5, 6}), "more than the 1 tokens");
}

TEST(SglangLenientJson, SkipsWhatItDoesNotRead) {
  EXPECT_EQ(list_size("[]"), 0U);
  EXPECT_EQ(list_size(R"( [ 1 , "a,]\"" , {"k": [1, 2]}, NaN, None, (1, 2), 'x' ] )"), 7U);
  for (const char* broken : {"", "null", "[", "[1", "[1,", "[\"a]", "[[1]", "{", "[1 2]"}) {
    EXPECT_FALSE(list_size(broken)) << broken;
  }
  EXPECT_EQ(to_count(" 12 "), 12U);
  for (const char* none : {"", "-1", "1.5", "null", "\"12\"", "12x", "4294967296"}) {
    EXPECT_FALSE(to_count(none)) << none;
  }
}

}  // namespace
}  // namespace fairlead::engine::sglang_grpc
