#include "engine/vllm_grpc/request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/testing.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

using ::testing::ElementsAre;
using testing::plain_request;

/// What a server would read.
::vllm::GenerateRequest written(const GenerateRequest& request,
                                Dialect dialect = Dialect::Inference,
                                std::string_view model = "served") {
  RequestWriter writer;
  const Result<std::string_view> bytes = writer.write(request, dialect, model);
  ::vllm::GenerateRequest message;
  if (!bytes) {
    ADD_FAILURE() << bytes.error().message;
  } else {
    EXPECT_TRUE(message.ParseFromArray(bytes->data(), static_cast<int>(bytes->size())));
    EXPECT_TRUE(message.GetReflection()->GetUnknownFields(message).empty());
  }
  return message;
}

Error refused(const GenerateRequest& request, Dialect dialect = Dialect::Inference) {
  RequestWriter writer;
  const Result<std::string_view> bytes = writer.write(request, dialect, "served");
  EXPECT_FALSE(bytes) << "the request was accepted";
  return bytes ? Error{} : bytes.error();
}

TEST(VllmRequest, LeavesNothingToTheModelsDefaults) {
  const ::vllm::GenerateRequest message = written(plain_request());
  EXPECT_EQ(message.request_id(), "req-1");
  EXPECT_EQ(message.model(), "served");
  EXPECT_THAT(message.token_ids().ids(), ElementsAre(1, 2, 3));
  EXPECT_TRUE(message.has_temperature());
  EXPECT_EQ(message.temperature(), 1.0F);
  EXPECT_EQ(message.sampling().num_sequences(), 1U);
  EXPECT_TRUE(message.sampling().has_top_k());
  EXPECT_EQ(message.sampling().top_k(), 0U);
  EXPECT_TRUE(message.sampling().has_top_p());
  EXPECT_EQ(message.sampling().top_p(), 1.0F);
  EXPECT_TRUE(message.sampling().has_min_p());
  EXPECT_EQ(message.sampling().min_p(), 0.0F);
  EXPECT_FALSE(message.sampling().has_seed());
  EXPECT_EQ(message.decoding().repetition_penalty(), 1.0F);
  EXPECT_EQ(message.stopping().max_new_tokens(), 16U);
}

TEST(VllmRequest, AsksForIdsOnly) {
  const ::vllm::GenerateRequest message = written(plain_request());
  EXPECT_TRUE(message.response().has_output_text());
  EXPECT_FALSE(message.response().output_text());
  EXPECT_TRUE(message.response().output_token_ids());
  EXPECT_FALSE(message.response().prompt_token_ids());
  EXPECT_FALSE(message.response().output_logprobs());
  EXPECT_FALSE(message.response().has_output_candidates());
  EXPECT_FALSE(message.response().prompt_logprobs());
  EXPECT_FALSE(message.response().has_prompt_candidates());
  EXPECT_FALSE(message.response().has_skip_special_tokens());
  EXPECT_EQ(message.stopping().stop_strings_size(), 0);
  EXPECT_FALSE(message.stopping().include_stop_strings());
}

TEST(VllmRequest, UnsetOptionsStayAbsent) {
  const ::vllm::GenerateRequest message = written(plain_request());
  EXPECT_FALSE(message.has_kv());
  EXPECT_FALSE(message.has_session_id());
  EXPECT_FALSE(message.has_watermarking());
  EXPECT_FALSE(message.has_kv_hints());
  EXPECT_FALSE(message.has_engine_reasoning_gate());
  EXPECT_EQ(message.media_size(), 0);
  EXPECT_EQ(message.truncate_prompt_tokens(), 0U);
  EXPECT_EQ(message.lora_name(), "");
  EXPECT_EQ(message.priority(), 0);
  EXPECT_FALSE(message.stopping().has_thinking_token_budget());
  EXPECT_EQ(message.decoding().structured_output_case(),
            ::vllm::DecodingParameters::STRUCTURED_OUTPUT_NOT_SET);
}

TEST(VllmRequest, CarriesEverySamplingValue) {
  GenerateRequest request = plain_request();
  request.sampling = {.temperature = 0.0F,
                      .top_p = 0.9F,
                      .top_k = 40,
                      .min_p = 0.05F,
                      .presence_penalty = 0.5F,
                      .frequency_penalty = -0.5F,
                      .repetition_penalty = 1.1F,
                      .seed = 0,
                      .logit_bias = {{7, -100.0F}, {9, 1.5F}},
                      .allowed_token_ids = {7, 9},
                      .bad_words = {{1, 2}, {3}}};
  const ::vllm::GenerateRequest message = written(request);
  EXPECT_TRUE(message.has_temperature());
  EXPECT_EQ(message.temperature(), 0.0F);
  EXPECT_EQ(message.sampling().top_p(), 0.9F);
  EXPECT_EQ(message.sampling().top_k(), 40U);
  EXPECT_EQ(message.sampling().min_p(), 0.05F);
  EXPECT_TRUE(message.sampling().has_seed());
  EXPECT_EQ(message.sampling().seed(), 0);
  EXPECT_EQ(message.decoding().presence_penalty(), 0.5F);
  EXPECT_EQ(message.decoding().frequency_penalty(), -0.5F);
  EXPECT_EQ(message.decoding().repetition_penalty(), 1.1F);
  ASSERT_EQ(message.decoding().logit_bias_size(), 2);
  EXPECT_EQ(message.decoding().logit_bias().at(7), -100.0F);
  EXPECT_EQ(message.decoding().logit_bias().at(9), 1.5F);
  EXPECT_THAT(message.decoding().allowed_token_ids(), ElementsAre(7, 9));
  ASSERT_EQ(message.decoding().bad_words_token_ids_size(), 2);
  EXPECT_THAT(message.decoding().bad_words_token_ids(0).ids(), ElementsAre(1, 2));
  EXPECT_THAT(message.decoding().bad_words_token_ids(1).ids(), ElementsAre(3));
}

TEST(VllmRequest, NegativeSeedsKeepTheirSign) {
  GenerateRequest request = plain_request();
  request.sampling.seed = -1;
  EXPECT_EQ(written(request).sampling().seed(), -1);
}

TEST(VllmRequest, CarriesEveryStopCondition) {
  GenerateRequest request = plain_request();
  request.stop = {.max_tokens = 7,
                  .min_tokens = 2,
                  .stop_token_ids = {5, 6},
                  .ignore_eos = true,
                  .thinking_token_budget = 0};
  const ::vllm::StoppingCriteria stopping = written(request).stopping();
  EXPECT_EQ(stopping.max_new_tokens(), 7U);
  EXPECT_EQ(stopping.min_new_tokens(), 2U);
  EXPECT_THAT(stopping.stop_token_ids(), ElementsAre(5, 6));
  EXPECT_TRUE(stopping.ignore_eos());
  EXPECT_TRUE(stopping.has_thinking_token_budget());
  EXPECT_EQ(stopping.thinking_token_budget(), 0);
  request.stop.thinking_token_budget = -1;
  EXPECT_FALSE(written(request).stopping().has_thinking_token_budget());
}

TEST(VllmRequest, SelectsLogprobs) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 0;
  EXPECT_TRUE(written(request).response().output_logprobs());
  EXPECT_FALSE(written(request).response().has_output_candidates());
  request.output.logprobs = 3;
  EXPECT_EQ(written(request).response().output_candidates().top_n(), 3U);
  request.output.logprobs = kAllCandidates;
  EXPECT_TRUE(written(request).response().output_candidates().all());
  request.output.logprob_token_ids = {11, 12};
  EXPECT_THAT(written(request).response().output_candidates().token_ids().ids(),
              ElementsAre(11, 12));
  request.output.logprobs.reset();
  EXPECT_TRUE(written(request).response().output_logprobs());
}

TEST(VllmRequest, SelectsPromptLogprobs) {
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 0;
  EXPECT_TRUE(written(request).response().prompt_logprobs());
  EXPECT_FALSE(written(request).response().has_prompt_candidates());
  EXPECT_FALSE(written(request).response().output_logprobs());
  request.output.prompt_logprobs = 2;
  EXPECT_EQ(written(request).response().prompt_candidates().top_n(), 2U);
  request.output.prompt_logprobs = kAllCandidates;
  EXPECT_TRUE(written(request).response().prompt_candidates().all());
}

TEST(VllmRequest, RefusesCountsThatEnginesReadAsNegative) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 0x8000'0000;
  EXPECT_EQ(refused(request).param, "logprobs");
  request.output.logprobs = 0x7FFF'FFFF;
  EXPECT_EQ(written(request).response().output_candidates().top_n(), 0x7FFF'FFFFU);
  request.output.prompt_logprobs = 0xFFFF'FFFE;
  const Error error = refused(request);
  EXPECT_EQ(error.code, ErrorCode::InvalidRequest);
  EXPECT_EQ(error.param, "prompt_logprobs");
}

TEST(VllmRequest, CarriesEachStructuredOutput) {
  using Kind = StructuredOutput::Kind;
  GenerateRequest request = plain_request();
  request.structured = {.kind = Kind::JsonSchema, .text = R"({"type":"object"})", .choices = {}};
  EXPECT_EQ(written(request).decoding().json(), R"({"type":"object"})");
  request.structured = {.kind = Kind::JsonObject, .text = {}, .choices = {}};
  EXPECT_TRUE(written(request).decoding().json_object());
  request.structured = {.kind = Kind::Regex, .text = "a+", .choices = {}};
  EXPECT_EQ(written(request).decoding().regex(), "a+");
  request.structured = {.kind = Kind::Choice, .text = {}, .choices = {"Rome", "Paris"}};
  EXPECT_THAT(written(request).decoding().choice().choices(), ElementsAre("Rome", "Paris"));
  request.structured = {.kind = Kind::Grammar, .text = "root ::= \"a\"", .choices = {}};
  EXPECT_EQ(written(request).decoding().grammar(), "root ::= \"a\"");
  request.structured = {.kind = Kind::StructuralTag, .text = "{}", .choices = {}};
  EXPECT_EQ(written(request).decoding().structural_tag(), "{}");
}

TEST(VllmRequest, CarriesCacheAndPlacementOptions) {
  GenerateRequest request = plain_request();
  request.lora_name = "adapter";
  request.cache_salt = "tenant-a";
  request.bypass_prefix_cache = true;
  request.priority = -5;
  request.session_id = "s-1";
  request.data_parallel_rank = 3;
  const ::vllm::GenerateRequest message = written(request);
  EXPECT_EQ(message.lora_name(), "adapter");
  EXPECT_EQ(message.kv().cache_salt(), "tenant-a");
  EXPECT_TRUE(message.kv().bypass_prefix_cache());
  EXPECT_EQ(message.priority(), -5);
  EXPECT_EQ(message.session_id(), "s-1");
  const net::grpc::Metadata metadata = request_metadata(request);
  ASSERT_EQ(metadata.size(), 1U);
  EXPECT_EQ(metadata[0].first, "x-data-parallel-rank");
  EXPECT_EQ(metadata[0].second, "3");
}

TEST(VllmRequest, RankZeroIsSentAndNoRankIsNot) {
  GenerateRequest request = plain_request();
  EXPECT_TRUE(request_metadata(request).empty());
  request.data_parallel_rank = 0;
  ASSERT_EQ(request_metadata(request).size(), 1U);
  EXPECT_EQ(request_metadata(request)[0].second, "0");
}

TEST(VllmRequest, ForwardsTransferParamsWithThePortAsText) {
  GenerateRequest request = plain_request();
  request.kv_transfer_params =
      *json::parse(R"({"do_remote_prefill":true,"remote_port":5600,"remote_block_ids":[[1,2]]})");
  request.ec_transfer_params = *json::parse(R"({"a":{"b":null}})");
  const ::vllm::KVCacheParameters kv = written(request).kv();
  const auto& fields = kv.kv_transfer_params().fields();
  EXPECT_TRUE(fields.at("do_remote_prefill").bool_value());
  EXPECT_EQ(fields.at("remote_port").string_value(), "5600");
  EXPECT_EQ(
      fields.at("remote_block_ids").list_value().values(0).list_value().values(1).number_value(),
      2.0);
  EXPECT_TRUE(
      kv.ec_transfer_params().fields().at("a").struct_value().fields().at("b").has_null_value());
}

TEST(VllmRequest, TransferParamsMustBeObjects) {
  GenerateRequest request = plain_request();
  request.kv_transfer_params = json::Array{};
  Error error = refused(request);
  EXPECT_EQ(error.code, ErrorCode::InvalidRequest);
  EXPECT_EQ(error.param, "kv_transfer_params");
  request.kv_transfer_params = {};
  request.ec_transfer_params = "text";
  EXPECT_EQ(refused(request).param, "ec_transfer_params");
}

TEST(VllmRequest, RefusesEmptyPromptsAndZeroTokens) {
  GenerateRequest request = plain_request({});
  EXPECT_EQ(refused(request).param, "prompt");
  request = plain_request({1}, 0);
  EXPECT_EQ(refused(request).param, "max_tokens");
}

TEST(VllmRequest, LongPromptsOfEveryIdSizeArriveWhole) {
  GenerateRequest request = plain_request({});
  for (std::uint32_t i = 0; i < 50'000; ++i) {
    request.prompt.push_back(i * 85'899U);  // up to the top of 32 bits
  }
  request.prompt.push_back(0);
  request.prompt.push_back(std::numeric_limits<std::uint32_t>::max());
  const ::vllm::GenerateRequest message = written(request);
  ASSERT_EQ(message.token_ids().ids_size(), static_cast<int>(request.prompt.size()));
  EXPECT_TRUE(
      std::equal(request.prompt.begin(), request.prompt.end(), message.token_ids().ids().begin()));
}

TEST(VllmRequest, OneWriterServesRequestsInTurnWithoutLeftovers) {
  RequestWriter writer;
  GenerateRequest rich = plain_request();
  rich.sampling.logit_bias = {{1, 1.0F}};
  rich.structured = {.kind = StructuredOutput::Kind::Regex, .text = "x", .choices = {}};
  rich.cache_salt = "salt";
  rich.stop.stop_token_ids = {4};
  rich.prompt.assign(100'000, 150'000);
  ASSERT_TRUE(writer.write(rich, Dialect::Inference, "m"));
  writer.trim();
  const Result<std::string_view> bytes = writer.write(plain_request(), Dialect::Inference, "m");
  ASSERT_TRUE(bytes);
  RequestWriter fresh;
  EXPECT_EQ(*bytes, *fresh.write(plain_request(), Dialect::Inference, "m"));
}

TEST(VllmRequest, EarlyServersGetATopKThatMeansOff) {
  for (const Dialect dialect : {Dialect::Generate, Dialect::InferenceEarly}) {
    GenerateRequest request = plain_request();
    EXPECT_EQ(written(request, dialect).sampling().top_k(), 0x7FFF'FFFFU);
    request.sampling.top_k = 40;
    EXPECT_EQ(written(request, dialect).sampling().top_k(), 40U);
  }
}

struct Unsupported {
  const char* field;
  void (*set)(GenerateRequest&);
};

constexpr Unsupported kSinceExplicitZeros[] = {
    {"bad_words", [](GenerateRequest& r) { r.sampling.bad_words = {{1}}; }},
    {"thinking_token_budget", [](GenerateRequest& r) { r.stop.thinking_token_budget = 5; }},
};
constexpr Unsupported kSinceControl[] = {
    {"lora_name", [](GenerateRequest& r) { r.lora_name = "a"; }},
    {"ec_transfer_params", [](GenerateRequest& r) { r.ec_transfer_params = json::Object(); }},
    {"data_parallel_rank", [](GenerateRequest& r) { r.data_parallel_rank = 1; }},
};

TEST(VllmRequest, OlderWiresRefuseWhatTheyCannotExpress) {
  const auto expect_refused = [](const Unsupported& item, Dialect dialect) {
    GenerateRequest request = plain_request();
    item.set(request);
    const Error error = refused(request, dialect);
    EXPECT_EQ(error.code, ErrorCode::UnsupportedField) << item.field;
    EXPECT_EQ(error.param, item.field);
  };
  for (const Unsupported& item : kSinceExplicitZeros) {
    expect_refused(item, Dialect::Generate);
    expect_refused(item, Dialect::InferenceEarly);
  }
  for (const Unsupported& item : kSinceControl) {
    expect_refused(item, Dialect::Generate);
    GenerateRequest request = plain_request();
    item.set(request);
    written(request, Dialect::InferenceEarly);
  }
}

TEST(VllmRequest, OlderWiresAcceptNeutralValues) {
  GenerateRequest request = plain_request();
  request.stop.thinking_token_budget = -1;
  request.data_parallel_rank = 0;
  request.session_id = "a hint";
  const ::vllm::GenerateRequest message = written(request, Dialect::Generate);
  EXPECT_FALSE(message.has_session_id());
  EXPECT_FALSE(message.stopping().has_thinking_token_budget());
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
