#include "engine/sglang_grpc/request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

using ::testing::ElementsAre;
using testing::plain_request;

Dialect probed() { return dialect_from_text("sglang-incremental"); }

::sglang::runtime::v1::GenerateRequest written(const GenerateRequest& request,
                                               const Dialect& dialect = probed()) {
  RequestWriter writer;
  const Result<std::string_view> bytes = writer.write(request, dialect);
  EXPECT_TRUE(bytes) << bytes.error().message;
  ::sglang::runtime::v1::GenerateRequest out;
  EXPECT_TRUE(bytes && out.ParseFromArray(bytes->data(), static_cast<int>(bytes->size())));
  return out;
}

Error refusal(const GenerateRequest& request, const Dialect& dialect = probed()) {
  RequestWriter writer;
  const Result<std::string_view> bytes = writer.write(request, dialect);
  EXPECT_FALSE(bytes);
  return bytes ? Error{} : bytes.error();
}

TEST(SglangRequest, EverythingIsExplicit) {
  const auto message = written(plain_request({1, 300, 70000}, 16));
  EXPECT_THAT(message.input_ids(), ElementsAre(1, 300, 70000));
  EXPECT_TRUE(message.stream());
  EXPECT_EQ(message.rid(), "req-1");
  const auto& sampling = message.sampling_params();
  EXPECT_TRUE(sampling.has_temperature() && sampling.has_top_p() && sampling.has_min_p());
  EXPECT_TRUE(sampling.has_frequency_penalty() && sampling.has_presence_penalty());
  EXPECT_EQ(sampling.temperature(), 1.0F);
  EXPECT_EQ(sampling.top_p(), 1.0F);
  EXPECT_EQ(sampling.top_k(), -1);
  EXPECT_EQ(sampling.repetition_penalty(), 1.0F);
  EXPECT_EQ(sampling.max_new_tokens(), 16);
  EXPECT_TRUE(sampling.has_min_new_tokens() && sampling.has_ignore_eos());
  EXPECT_EQ(sampling.stop_size(), 0);
  EXPECT_FALSE(sampling.has_seed() || sampling.has_guided_decoding() || sampling.has_n());
  EXPECT_TRUE(message.has_return_logprob());
  EXPECT_FALSE(message.return_logprob());
  EXPECT_FALSE(message.has_priority() || message.has_lora_path() || message.has_routed_dp_rank());
  EXPECT_FALSE(message.has_session_id() || message.has_disaggregated_params());
  EXPECT_FALSE(message.has_max_thinking_tokens() || message.return_text());
}

TEST(SglangRequest, GreedyStaysGreedy) {
  GenerateRequest request = plain_request();
  request.sampling.temperature = 0;
  const auto message = written(request);
  EXPECT_TRUE(message.sampling_params().has_temperature());
  EXPECT_EQ(message.sampling_params().temperature(), 0.0F);
}

TEST(SglangRequest, UnsetSamplingSendsNoneOfIt) {
  GenerateRequest request = plain_request();
  request.sampling.unset = true;
  request.sampling.seed = 3;
  const auto message = written(request);
  const auto& sampling = message.sampling_params();
  EXPECT_FALSE(sampling.has_temperature() || sampling.has_top_k() || sampling.has_seed());
  EXPECT_EQ(sampling.max_new_tokens(), 16);
}

TEST(SglangRequest, FieldsOfARequest) {
  GenerateRequest request = plain_request();
  request.sampling.top_k = 40;
  request.sampling.seed = -7;
  request.stop.min_tokens = 2;
  request.stop.stop_token_ids = {5, 9};
  request.stop.ignore_eos = true;
  request.lora_name = "ada";
  request.session_id = "s";
  request.data_parallel_rank = 3;
  const auto message = written(request);
  EXPECT_EQ(message.sampling_params().top_k(), 40);
  EXPECT_EQ(message.sampling_params().seed(), -7);
  EXPECT_EQ(message.sampling_params().min_new_tokens(), 2);
  EXPECT_THAT(message.sampling_params().stop_token_ids(), ElementsAre(5, 9));
  EXPECT_TRUE(message.sampling_params().ignore_eos());
  EXPECT_EQ(message.lora_path(), "ada");
  EXPECT_EQ(message.session_id(), "s");
  EXPECT_EQ(message.routed_dp_rank(), 3);
}

TEST(SglangRequest, Logprobs) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 2;
  auto message = written(request);
  EXPECT_TRUE(message.return_logprob());
  EXPECT_EQ(message.top_logprobs_num(), 2);
  EXPECT_EQ(message.logprob_start_len(), -1);
  request.output.prompt_logprobs = 5;
  message = written(request);
  EXPECT_EQ(message.top_logprobs_num(), 5);
  EXPECT_TRUE(message.has_logprob_start_len());
  EXPECT_EQ(message.logprob_start_len(), 0);
  request.output.logprobs.reset();
  request.output.prompt_logprobs = 0;
  message = written(request);
  EXPECT_TRUE(message.return_logprob());
  EXPECT_EQ(message.top_logprobs_num(), 0);
}

TEST(SglangRequest, LegsOfAPrefill) {
  GenerateRequest request = plain_request({1, 2, 3}, 50);
  request.stop.min_tokens = 4;
  request.output.logprobs = 1;
  request.output.prompt_logprobs = 1;
  request.bootstrap = Bootstrap{"10.0.0.7", 8998, std::numeric_limits<std::int64_t>::max()};
  request.leg = Leg::Prefill;
  const auto prefill = written(request);
  EXPECT_EQ(prefill.sampling_params().max_new_tokens(), 1);
  EXPECT_FALSE(prefill.sampling_params().has_min_new_tokens());
  EXPECT_TRUE(prefill.return_logprob());
  EXPECT_EQ(prefill.logprob_start_len(), 0);
  request.leg = Leg::Decode;
  const auto decode = written(request);
  EXPECT_EQ(decode.sampling_params().max_new_tokens(), 50);
  EXPECT_EQ(decode.sampling_params().min_new_tokens(), 4);
  EXPECT_TRUE(decode.return_logprob());
  EXPECT_EQ(decode.logprob_start_len(), -1);
  for (const auto& message : {prefill, decode}) {
    EXPECT_EQ(message.disaggregated_params().bootstrap_host(), "10.0.0.7");
    EXPECT_EQ(message.disaggregated_params().bootstrap_port(), 8998);
    EXPECT_EQ(message.disaggregated_params().bootstrap_room(),
              std::numeric_limits<std::int64_t>::max());
  }
}

TEST(SglangRequest, ConstraintsOfEveryKind) {
  using Kind = StructuredOutput::Kind;
  GenerateRequest request = plain_request();
  const auto guided = [&](Kind kind) {
    request.structured = StructuredOutput{.kind = kind, .text = "text", .choices = {"a", "b"}};
    return written(request).sampling_params().guided_decoding();
  };
  EXPECT_EQ(guided(Kind::JsonSchema).json_schema(), "text");
  EXPECT_EQ(guided(Kind::JsonObject).json_schema(), R"({"type": "object"})");
  EXPECT_EQ(guided(Kind::Regex).regex(), "text");
  EXPECT_THAT(guided(Kind::Choice).choice().values(), ElementsAre("a", "b"));
  EXPECT_EQ(guided(Kind::Grammar).ebnf(), "text");
  EXPECT_EQ(guided(Kind::StructuralTag).structural_tag(), "text");
}

TEST(SglangRequest, EarlyEnginesGetTheOldFields) {
  using Kind = StructuredOutput::Kind;
  const Dialect early = dialect_from_text("sglang-cumulative+before-0.5.17");
  GenerateRequest request = plain_request();
  request.structured = StructuredOutput{.kind = Kind::Regex, .text = "x+", .choices = {}};
  auto sampling = written(request, early).sampling_params();
  EXPECT_EQ(sampling.regex(), "x+");
  EXPECT_FALSE(sampling.has_guided_decoding());
  request.structured->kind = Kind::JsonObject;
  EXPECT_EQ(written(request, early).sampling_params().json_schema(), R"({"type": "object"})");
  request.structured->kind = Kind::Choice;
  EXPECT_EQ(refusal(request, early).param, "structured_outputs");
  request.structured.reset();
  request.sampling.seed = 1;
  EXPECT_EQ(refusal(request, early).param, "seed");
  request.sampling.seed.reset();
  request.stop.thinking_token_budget = 5;
  EXPECT_EQ(refusal(request, early).param, "thinking_token_budget");
}

TEST(SglangRequest, ThinkingBudgetsNeedTheEngineForThem) {
  GenerateRequest request = plain_request();
  request.stop.thinking_token_budget = 5;
  EXPECT_EQ(refusal(request).code, ErrorCode::UnsupportedField);
  EXPECT_EQ(written(request, dialect_from_text("sglang-cumulative+strict-thinking"))
                .max_thinking_tokens(),
            5U);
  request.stop.thinking_token_budget = -1;
  EXPECT_FALSE(written(request).has_max_thinking_tokens());
  request.stop.thinking_token_budget = std::int64_t{1} << 32;
  EXPECT_EQ(refusal(request, dialect_from_text("sglang-cumulative+strict-thinking")).code,
            ErrorCode::InvalidRequest);
}

TEST(SglangRequest, PrioritiesByTheEnginesDirection) {
  GenerateRequest request = plain_request();
  const auto sent = [&](std::int32_t priority, const char* dialect) {
    request.priority = priority;
    return written(request, dialect_from_text(dialect)).priority();
  };
  EXPECT_EQ(sent(3, "sglang-incremental+priority"), -3);
  EXPECT_EQ(sent(-3, "sglang-incremental+priority"), 3);
  EXPECT_EQ(sent(std::numeric_limits<std::int32_t>::min(), "sglang-incremental+priority"),
            std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(sent(3, "sglang-incremental+low-priority-first"), 3);
  request.priority = 3;
  EXPECT_FALSE(written(request).has_priority());
}

TEST(SglangRequest, WhatTheInterfaceCannotSayIsRefused) {
  const std::vector<std::pair<std::string, std::function<void(GenerateRequest&)>>> cases{
      {"logit_bias", [](GenerateRequest& r) { r.sampling.logit_bias = {{1, 2.0F}}; }},
      {"allowed_token_ids", [](GenerateRequest& r) { r.sampling.allowed_token_ids = {1}; }},
      {"bad_words", [](GenerateRequest& r) { r.sampling.bad_words = {{1}}; }},
      {"logprob_token_ids", [](GenerateRequest& r) { r.output.logprob_token_ids = {1}; }},
      {"cache_salt", [](GenerateRequest& r) { r.cache_salt = "s"; }},
      {"bypass_prefix_cache", [](GenerateRequest& r) { r.bypass_prefix_cache = true; }},
      {"kv_transfer_params", [](GenerateRequest& r) { r.kv_transfer_params = json::Object(); }},
      {"ec_transfer_params", [](GenerateRequest& r) { r.ec_transfer_params = json::Object(); }},
      {"vllm_xargs", [](GenerateRequest& r) { r.extra_args_required = true; }},
      {"logprobs", [](GenerateRequest& r) { r.output.logprobs = kAllCandidates; }},
      {"prompt_logprobs", [](GenerateRequest& r) { r.output.prompt_logprobs = kAllCandidates; }},
  };
  for (const auto& [field, set] : cases) {
    GenerateRequest request = plain_request();
    set(request);
    const Error error = refusal(request);
    EXPECT_EQ(error.code, ErrorCode::UnsupportedField) << field;
    EXPECT_EQ(error.param, field);
  }
}

TEST(SglangRequest, IdsThatWouldBeNegativeAreRefused) {
  GenerateRequest request = plain_request({1, 0x8000'0000});
  EXPECT_EQ(refusal(request).code, ErrorCode::InvalidRequest);
  EXPECT_EQ(refusal(request).param, "prompt");
  request.prompt = {0x7FFF'FFFF};
  EXPECT_THAT(written(request).input_ids(), ElementsAre(0x7FFF'FFFF));
  request.stop.stop_token_ids = {0xFFFF'FFFF};
  EXPECT_EQ(refusal(request).param, "stop_token_ids");
}

TEST(SglangRequest, LongPromptsLeaveNoMemoryBehind) {
  RequestWriter writer;
  GenerateRequest request = plain_request(std::vector<TokenId>(300'000, 100'000));
  ASSERT_TRUE(writer.write(request, probed()));
  writer.trim();
  request.prompt = {7};
  const auto again = writer.write(request, probed());
  ::sglang::runtime::v1::GenerateRequest out;
  ASSERT_TRUE(again && out.ParseFromArray(again->data(), static_cast<int>(again->size())));
  EXPECT_THAT(out.input_ids(), ElementsAre(7));
}

TEST(SglangDialect, TextsGoBothWays) {
  for (const char* text : {"sglang-cumulative", "sglang-incremental", "sglang-incremental+priority",
                           "sglang-cumulative+low-priority-first+strict-thinking",
                           "sglang-cumulative+before-0.5.17"}) {
    EXPECT_EQ(dialect_text(dialect_from_text(text)), text);
  }
  EXPECT_EQ(dialect_from_text("vllm.Inference"), Dialect{});
  EXPECT_EQ(dialect_text({}), "");
}

}  // namespace
}  // namespace fairlead::engine::sglang_grpc
