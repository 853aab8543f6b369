#include "engine/vllm_grpc/response.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/testing.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::plain_request;
using testing::RecordingSink;

using Response = ::vllm::GenerateResponse;

Response prompt_info(std::uint32_t tokens) {
  Response response;
  response.mutable_prompt_info()->set_num_prompt_tokens(tokens);
  return response;
}

Response output(const std::vector<TokenId>& ids) {
  Response response;
  response.mutable_outputs()->set_num_tokens(static_cast<std::uint32_t>(ids.size()));
  response.mutable_outputs()->mutable_token_ids()->Add(ids.begin(), ids.end());
  return response;
}

Response final_output(const std::vector<TokenId>& ids, std::uint32_t total,
                      ::vllm::FinishInfo::FinishReason reason = ::vllm::FinishInfo::LENGTH) {
  Response response = output(ids);
  response.mutable_outputs()->mutable_finish_info()->set_num_output_tokens(total);
  response.mutable_outputs()->mutable_finish_info()->set_finish_reason(reason);
  return response;
}

/// Adds one log-probability with a candidate to a prompt or output message.
template <class Message>
void add_logprob(Message& message, float logprob, std::uint32_t rank, TokenId candidate) {
  message.add_logprobs(logprob);
  message.add_ranks(rank);
  auto& token = *message.add_candidate_tokens()->add_tokens();
  token.set_id(candidate);
  token.set_logprob(logprob);
  token.set_rank(rank);
}

/// One stream and what came of it.
struct OneStream {
  explicit OneStream(const GenerateRequest& request) : translator(request) {}

  bool feed(const Response& response) { return feed(response.SerializeAsString()); }
  bool feed(const std::string& bytes) {
    Result<> fed = translator.feed(scratch, bytes, sink);
    if (!fed) {
      EXPECT_EQ(fed.error().code, ErrorCode::EngineProtocol);
      EXPECT_THAT(fed.error().message, ::testing::StartsWith("GenerateStream: "));
      problem = fed.error().message;
    }
    return fed.has_value();
  }

  ResponseScratch scratch;
  ResponseTranslator translator;
  RecordingSink sink;
  std::string problem;
};

TEST(VllmResponse, PromptThenDeltasThenFinish) {
  OneStream run(plain_request());
  ASSERT_TRUE(run.feed(prompt_info(3)));
  EXPECT_EQ(run.sink.prompt_tokens, 3U);
  ASSERT_TRUE(run.feed(output({5})));
  ASSERT_TRUE(run.feed(output({6, 7})));
  EXPECT_FALSE(run.translator.finished());
  ASSERT_TRUE(run.feed(final_output({8}, 4)));
  EXPECT_TRUE(run.translator.finished());
  EXPECT_THAT(run.sink.ids, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(run.sink.chunks, 3);
  EXPECT_EQ(run.sink.finish->reason, FinishReason::Length);
  EXPECT_EQ(run.sink.finish->output_tokens, 4U);
}

TEST(VllmResponse, OneMessageMayHoldEverything) {
  OneStream run(plain_request());
  Response response = final_output({5, 6}, 2, ::vllm::FinishInfo::STOP);
  response.mutable_prompt_info()->set_num_prompt_tokens(3);
  ASSERT_TRUE(run.feed(response));
  EXPECT_EQ(run.sink.prompt_tokens, 3U);
  EXPECT_THAT(run.sink.ids, ElementsAre(5, 6));
  EXPECT_EQ(run.sink.finish->reason, FinishReason::Stop);
}

TEST(VllmResponse, EmptyMessagesAndEmptyStepsDeliverNothing) {
  OneStream run(plain_request());
  ASSERT_TRUE(run.feed(std::string()));
  ASSERT_TRUE(run.feed(output({})));
  EXPECT_EQ(run.sink.chunks, 0);
  EXPECT_FALSE(run.translator.started());
  ASSERT_TRUE(run.feed(output({5})));
  EXPECT_TRUE(run.translator.started());
}

TEST(VllmResponse, TextIsIgnored) {
  OneStream run(plain_request());
  Response response = output({5});
  response.mutable_outputs()->set_text(" Paris");
  ASSERT_TRUE(run.feed(response));
  EXPECT_THAT(run.sink.ids, ElementsAre(5));
}

TEST(VllmResponse, FinishReasonsAndStopReasons) {
  const auto finish = [](const std::function<void(::vllm::FinishInfo&)>& set) {
    OneStream run(plain_request());
    Response response = final_output({5}, 1, ::vllm::FinishInfo::STOP);
    set(*response.mutable_outputs()->mutable_finish_info());
    EXPECT_TRUE(run.feed(response)) << run.problem;
    return run.sink.finish.value_or(Finish{});
  };
  Finish stop = finish([](::vllm::FinishInfo& info) { info.set_stop_token_id(0); });
  EXPECT_EQ(stop.stop_token_id, 0U);
  EXPECT_FALSE(stop.eos_token_id);
  Finish eos = finish([](::vllm::FinishInfo& info) { info.set_eos_token_id(2); });
  EXPECT_EQ(eos.eos_token_id, 2U);
  EXPECT_FALSE(eos.stop_token_id);
  Finish text = finish([](::vllm::FinishInfo& info) { info.set_stop_string("x"); });
  EXPECT_FALSE(text.stop_token_id || text.eos_token_id);
  EXPECT_EQ(text.reason, FinishReason::Stop);
}

TEST(VllmResponse, AbortedStreamsEndWithoutTokens) {
  OneStream run(plain_request());
  ASSERT_TRUE(run.feed(prompt_info(3)));
  ASSERT_TRUE(run.feed(output({5, 6})));
  ASSERT_TRUE(run.feed(final_output({}, 2, ::vllm::FinishInfo::ABORTED)));
  EXPECT_EQ(run.sink.finish->reason, FinishReason::Aborted);
  EXPECT_EQ(run.sink.finish->output_tokens, 2U);
}

TEST(VllmResponse, CachedTokensAbsentAndZeroDiffer) {
  OneStream absent(plain_request());
  ASSERT_TRUE(absent.feed(final_output({5}, 1)));
  EXPECT_FALSE(absent.sink.finish->cached_prompt_tokens);
  OneStream zero(plain_request());
  Response response = final_output({5}, 1);
  response.mutable_outputs()->mutable_finish_info()->set_num_cached_tokens(0);
  ASSERT_TRUE(zero.feed(response));
  EXPECT_EQ(zero.sink.finish->cached_prompt_tokens, 0U);
}

TEST(VllmResponse, TransferParamsBecomeJsonWithIntegers) {
  OneStream run(plain_request());
  Response response = final_output({5}, 1);
  ::vllm::FinishInfo& info = *response.mutable_outputs()->mutable_finish_info();
  (*info.mutable_kv_transfer_params()->mutable_fields())["remote_port"].set_number_value(5600);
  (*info.mutable_ec_transfer_params()->mutable_fields())["x"].set_bool_value(true);
  ASSERT_TRUE(run.feed(response));
  EXPECT_EQ(json::dump(run.sink.finish->kv_transfer_params), R"({"remote_port":5600})");
  EXPECT_EQ(json::dump(run.sink.finish->ec_transfer_params), R"({"x":true})");
  OneStream none(plain_request());
  ASSERT_TRUE(none.feed(final_output({5}, 1)));
  EXPECT_TRUE(none.sink.finish->kv_transfer_params.is_null());
}

TEST(VllmResponse, WhatFollowsTheTerminalMessageIsIgnored) {
  OneStream run(plain_request());
  ASSERT_TRUE(run.feed(final_output({5}, 1)));
  EXPECT_TRUE(run.feed(output({6})));
  EXPECT_TRUE(run.feed(final_output({7}, 9)));
  EXPECT_TRUE(run.feed(std::string("\xff\xff garbage")));
  EXPECT_THAT(run.sink.ids, ElementsAre(5));
}

TEST(VllmResponse, CountsMustAgree) {
  const auto problem = [](const std::vector<Response>& responses) {
    OneStream run(plain_request());
    for (const Response& response : responses) {
      if (!run.feed(response)) {
        return run.problem;
      }
    }
    return std::string("no problem");
  };
  EXPECT_THAT(problem({prompt_info(4)}), HasSubstr("4 prompt tokens where 3 were sent"));
  EXPECT_THAT(problem({prompt_info(0)}), HasSubstr("0 prompt tokens"));
  EXPECT_THAT(problem({prompt_info(3), prompt_info(3)}), HasSubstr("prompt_info came again"));
  EXPECT_THAT(problem({output({5}), prompt_info(3)}), HasSubstr("behind output tokens"));
  Response ids_missing = output({5});
  ids_missing.mutable_outputs()->clear_token_ids();
  EXPECT_THAT(problem({ids_missing}), HasSubstr("0 token ids where num_tokens is 1"));
  Response extra_id = output({5});
  extra_id.mutable_outputs()->add_token_ids(6);
  EXPECT_THAT(problem({extra_id}), HasSubstr("2 token ids where num_tokens is 1"));
  EXPECT_THAT(problem({output({5}), final_output({6}, 1)}),
              HasSubstr("1 output tokens where 2 arrived"));
  EXPECT_THAT(problem({final_output({}, 7)}), HasSubstr("7 output tokens where 0 arrived"));
  Response second_sequence = output({5});
  second_sequence.mutable_outputs()->set_index(1);
  EXPECT_THAT(problem({second_sequence}), HasSubstr("output index 1"));
}

TEST(VllmResponse, MoreTokensThanAskedForAreAnError) {
  OneStream run(plain_request({1, 2, 3}, 3));
  ASSERT_TRUE(run.feed(output({5, 6, 7})));
  EXPECT_FALSE(run.feed(output({8})));
  EXPECT_THAT(run.problem, HasSubstr("more than the 3 tokens"));
  OneStream at_once(plain_request({1, 2, 3}, 3));
  EXPECT_FALSE(at_once.feed(output({5, 6, 7, 8})));
  EXPECT_EQ(at_once.sink.chunks, 0);
}

TEST(VllmResponse, UnfinishedAndUnknownReasonsAreErrors) {
  for (const int reason : {0, 4, -1, 1000}) {
    OneStream run(plain_request());
    EXPECT_FALSE(
        run.feed(final_output({5}, 1, static_cast<::vllm::FinishInfo::FinishReason>(reason))));
    EXPECT_THAT(run.problem, HasSubstr("finish_reason"));
    EXPECT_FALSE(run.sink.ended());
  }
}

TEST(VllmResponse, GarbageIsAnError) {
  for (const std::string& bytes :
       {std::string("\xff"), std::string("\x12\x05\x18"), std::string("\x12\x03\x12\x01\xff")}) {
    OneStream run(plain_request());
    EXPECT_FALSE(run.feed(bytes));
    EXPECT_THAT(run.problem, HasSubstr("could not be decoded"));
  }
}

TEST(VllmResponse, LogprobsComeWithTheirTokens) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 1;
  OneStream run(request);
  Response response = output({5, 6});
  add_logprob(*response.mutable_outputs(), -0.5F, 1, 5);
  add_logprob(*response.mutable_outputs(), -1.5F, 2, 7);
  ASSERT_TRUE(run.feed(response)) << run.problem;
  ASSERT_EQ(run.sink.logprobs.size(), 2U);
  EXPECT_EQ(run.sink.logprobs[0].logprob, -0.5F);
  EXPECT_EQ(run.sink.logprobs[1].rank, 2U);
  ASSERT_EQ(run.sink.logprobs[1].candidates.size(), 1U);
  EXPECT_EQ(run.sink.logprobs[1].candidates[0].id, 7U);
  // A later, shorter message must not show entries of the former one.
  Response shorter = output({8});
  add_logprob(*shorter.mutable_outputs(), -2.5F, 3, 9);
  shorter.mutable_outputs()->mutable_candidate_tokens(0)->clear_tokens();
  ASSERT_TRUE(run.feed(shorter));
  EXPECT_EQ(run.sink.logprobs.back().logprob, -2.5F);
  EXPECT_TRUE(run.sink.logprobs.back().candidates.empty());
}

TEST(VllmResponse, LogprobArraysMustHaveOneEntryPerToken) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 0;
  const std::vector<std::function<void(::vllm::SequenceOutput&)>> damages{
      [](auto& o) { o.clear_logprobs(); },
      [](auto& o) { o.add_logprobs(0); },
      [](auto& o) { o.clear_ranks(); },
      [](auto& o) { o.add_ranks(0); },
      [](auto& o) { o.clear_candidate_tokens(); },
      [](auto& o) { o.add_candidate_tokens(); }};
  for (const auto& damage : damages) {
    OneStream run(request);
    Response response = output({5});
    add_logprob(*response.mutable_outputs(), -0.5F, 1, 5);
    damage(*response.mutable_outputs());
    EXPECT_FALSE(run.feed(response));
    EXPECT_THAT(run.problem, HasSubstr("for 1 tokens"));
  }
  OneStream missing(request);
  EXPECT_FALSE(missing.feed(output({5})));
}

TEST(VllmResponse, LogprobsThatWereNotAskedForAreIgnored) {
  OneStream run(plain_request());
  Response response = output({5});
  response.mutable_outputs()->add_logprobs(-1);
  ASSERT_TRUE(run.feed(response));
  EXPECT_TRUE(run.sink.logprobs.empty());
}

TEST(VllmResponse, LogprobsThatAreNoNumbersBecomeTheLowest) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 1;
  for (const float odd :
       {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN(), -10000.0F, -1e30F}) {
    OneStream run(request);
    Response response = output({5});
    add_logprob(*response.mutable_outputs(), odd, 1, 5);
    ASSERT_TRUE(run.feed(response));
    EXPECT_EQ(run.sink.logprobs[0].logprob, -9999.0F);
    EXPECT_EQ(run.sink.logprobs[0].missing, !std::isfinite(odd));
    if (std::isfinite(odd)) {
      EXPECT_EQ(run.sink.logprobs[0].candidates[0].logprob, -9999.0F);
    } else {
      EXPECT_TRUE(run.sink.logprobs[0].candidates.empty());
    }
  }
  OneStream run(request);
  Response response = output({5});
  add_logprob(*response.mutable_outputs(), -9999.0F, 1, 5);
  add_logprob(*response.mutable_outputs(), -9998.5F, 1, 5);
  response.mutable_outputs()->set_num_tokens(2);
  response.mutable_outputs()->add_token_ids(6);
  ASSERT_TRUE(run.feed(response));
  EXPECT_EQ(run.sink.logprobs[0].logprob, -9999.0F);
  EXPECT_EQ(run.sink.logprobs[1].logprob, -9998.5F);
}

TEST(VllmResponse, PromptLogprobsComeWithThePrompt) {
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 1;
  OneStream run(request);
  Response response = prompt_info(3);
  for (std::uint32_t i = 0; i < 3; ++i) {
    add_logprob(*response.mutable_prompt_info(), -1.0F * static_cast<float>(i), i, i);
  }
  ASSERT_TRUE(run.feed(response)) << run.problem;
  ASSERT_EQ(run.sink.prompt_logprobs.size(), 3U);
  EXPECT_EQ(run.sink.prompt_logprobs[2].logprob, -2.0F);
  ASSERT_TRUE(run.feed(output({5})));
  EXPECT_TRUE(run.sink.logprobs.empty());
}

TEST(VllmResponse, PromptLogprobsThatWereAskedForMustCome) {
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 0;
  OneStream short_array(request);
  EXPECT_FALSE(short_array.feed(prompt_info(3)));
  EXPECT_THAT(short_array.problem, HasSubstr("for 3 tokens"));
  OneStream no_prompt(request);
  EXPECT_FALSE(no_prompt.feed(output({5})));
  EXPECT_THAT(no_prompt.problem, HasSubstr("without the prompt_info"));
}

TEST(VllmResponse, StreamsShareOneScratch) {
  GenerateRequest with_logprobs = plain_request();
  with_logprobs.output.logprobs = 0;
  OneStream a(plain_request());
  OneStream b(with_logprobs);
  Response logprobs = output({7});
  add_logprob(*logprobs.mutable_outputs(), -1.0F, 1, 7);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(a.translator.feed(a.scratch, output({5}).SerializeAsString(), a.sink));
    EXPECT_TRUE(b.translator.feed(a.scratch, logprobs.SerializeAsString(), b.sink));
  }
  EXPECT_THAT(a.sink.ids, ElementsAre(5, 5, 5));
  EXPECT_THAT(b.sink.ids, ElementsAre(7, 7, 7));
  EXPECT_EQ(b.sink.logprobs.size(), 3U);
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
