#include "engine/vllm_http/request.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/json.hpp"
#include "engine/testing.hpp"

namespace fairlead::engine::vllm_http {
namespace {

using testing::plain_request;

constexpr Dialect kRust{.frontend = Dialect::Frontend::Rust,
                        .args_key = Dialect::ArgsKey::VllmXargs,
                        .logprob_token_ids = true,
                        .bad_words_token_ids = true,
                        .logit_bias = false};
constexpr Dialect kPython{.frontend = Dialect::Frontend::Python,
                          .args_key = Dialect::ArgsKey::ExtraArgs,
                          .logprob_token_ids = true,
                          .bad_words_token_ids = false,
                          .logit_bias = true};

std::string written(const GenerateRequest& request, const Dialect& dialect = kRust,
                    std::string_view model = "m") {
  const Result<std::string> body = write_request(request, dialect, model);
  EXPECT_TRUE(body) << body.error().message;
  return body.value_or("");
}

json::Value member(const GenerateRequest& request, std::string_view key,
                   const Dialect& dialect = kRust) {
  const auto body = json::parse(written(request, dialect));
  EXPECT_TRUE(body);
  const json::Value* value = body->find("sampling_params")->find(key);
  if (!value) {
    value = body->find(key);
  }
  return value ? *value : json::Value("absent");
}

Error refused(const GenerateRequest& request, const Dialect& dialect = kRust) {
  const Result<std::string> body = write_request(request, dialect, "m");
  EXPECT_FALSE(body);
  return body ? Error{} : body.error();
}

TEST(VllmHttpRequest, EverythingIsExplicit) {
  EXPECT_EQ(written(plain_request()),
            R"({"token_ids":[1,2,3],"request_id":"req-1","model":"m","sampling_params":{)"
            R"("temperature":1,"top_p":1,"top_k":0,"min_p":0,"presence_penalty":0,)"
            R"("frequency_penalty":0,"repetition_penalty":1,"max_tokens":16,"min_tokens":0,)"
            R"("stop_token_ids":[],"ignore_eos":false},"stream":true,)"
            R"("stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
}

TEST(VllmHttpRequest, TheServerIsToldWhatItsKindNeeds) {
  EXPECT_EQ(json::dump(member(plain_request(), "detokenize", kPython)), "false");
  EXPECT_EQ(json::dump(member(plain_request(), "detokenize", kRust)), R"("absent")");
}

TEST(VllmHttpRequest, UnsetSamplingSendsNoneOfIt) {
  GenerateRequest request = plain_request();
  request.sampling.unset = true;
  request.sampling.seed = 1;
  request.sampling.logit_bias = {{1, 1.0F}};
  request.sampling.bad_words = {{1}};
  const auto body = json::parse(written(request, Dialect{}));
  ASSERT_TRUE(body);
  EXPECT_EQ(json::dump(*body->find("sampling_params")),
            R"({"max_tokens":16,"min_tokens":0,"stop_token_ids":[],"ignore_eos":false})");
}

TEST(VllmHttpRequest, FieldsOfARequest) {
  GenerateRequest request = plain_request();
  request.sampling.temperature = 0.7F;
  request.sampling.top_p = 0.95F;
  request.sampling.top_k = 40;
  request.sampling.min_p = 1e-7F;
  request.sampling.seed = -7;
  request.sampling.logit_bias = {{5, -100.0F}, {4294967295U, 0.5F}};
  request.sampling.allowed_token_ids = {7, 8};
  request.stop.min_tokens = 2;
  request.stop.stop_token_ids = {9, 10};
  request.stop.ignore_eos = true;
  request.stop.thinking_token_budget = 64;
  request.cache_salt = "s\"alt";
  request.priority = -3;
  request.bypass_prefix_cache = true;
  const auto text = [&](std::string_view key) { return json::dump(member(request, key, kPython)); };
  EXPECT_EQ(text("temperature"), "0.7");
  EXPECT_EQ(text("top_p"), "0.95");
  EXPECT_EQ(text("top_k"), "40");
  EXPECT_EQ(text("min_p"), "1e-07");
  EXPECT_EQ(text("seed"), "-7");
  EXPECT_EQ(text("logit_bias"), R"({"5":-100,"4294967295":0.5})");
  EXPECT_EQ(text("allowed_token_ids"), "[7,8]");
  EXPECT_EQ(text("min_tokens"), "2");
  EXPECT_EQ(text("stop_token_ids"), "[9,10]");
  EXPECT_EQ(text("ignore_eos"), "true");
  EXPECT_EQ(text("thinking_token_budget"), "64");
  EXPECT_EQ(text("cache_salt"), R"("s\"alt")");
  EXPECT_EQ(text("priority"), "-3");
  EXPECT_EQ(text("skip_reading_prefix_cache"), "true");
  request.stop.thinking_token_budget = -1;
  EXPECT_EQ(text("thinking_token_budget"), R"("absent")");
}

TEST(VllmHttpRequest, BadWordsAreIdsWhereTheServerTakesThem) {
  GenerateRequest request = plain_request();
  request.sampling.bad_words = {{1, 2}, {3}};
  EXPECT_EQ(json::dump(member(request, "bad_words_token_ids")), "[[1,2],[3]]");
  EXPECT_EQ(refused(request, kPython).code, ErrorCode::UnsupportedField);
  EXPECT_EQ(refused(request, kPython).param, "bad_words");
}

TEST(VllmHttpRequest, LogprobsOfChosenTokensLeaveRoomForTheSampledOne) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 5;
  request.output.logprob_token_ids = {7, 5};
  EXPECT_EQ(json::dump(member(request, "logprob_token_ids")), "[7,5,5]");
  EXPECT_EQ(json::dump(member(request, "logprobs")), "3");
  request.output.logprob_token_ids.assign(kMaxLogprobTokenIds, 1);
  EXPECT_EQ(json::dump(member(request, "logprobs")), "128");
  request.output.logprob_token_ids.push_back(1);
  EXPECT_EQ(refused(request).param, "logprob_token_ids");
  request.output.logprob_token_ids = {7};
  EXPECT_EQ(refused(request, Dialect{}).param, "logprob_token_ids");
}

TEST(VllmHttpRequest, CountsOfCandidates) {
  GenerateRequest request = plain_request();
  request.output.logprobs = 0;
  EXPECT_EQ(json::dump(member(request, "logprobs")), "0");
  // One more, for the sampled token takes a place; but not above the engine's usual limit.
  for (const auto& [asked, sent] : {std::pair{1U, "2"}, {19U, "20"}, {20U, "20"}, {50U, "50"}}) {
    request.output.logprobs = asked;
    EXPECT_EQ(json::dump(member(request, "logprobs")), sent);
  }
  request.output.logprobs = kAllCandidates;
  request.output.prompt_logprobs = kAllCandidates;
  EXPECT_EQ(json::dump(member(request, "logprobs")), "-1");
  EXPECT_EQ(json::dump(member(request, "prompt_logprobs")), "-1");
  request.output.logprobs = 0x8000'0000U;
  EXPECT_EQ(refused(request).code, ErrorCode::InvalidRequest);
}

TEST(VllmHttpRequest, WhatStreamsDoNotCarryIsNotStreamed) {
  GenerateRequest request = plain_request();
  EXPECT_TRUE(is_streamed(request));
  request.output.prompt_logprobs = 0;
  EXPECT_FALSE(is_streamed(request));
  EXPECT_EQ(json::dump(member(request, "stream")), R"("absent")");
  EXPECT_EQ(json::dump(member(request, "stream_options")), R"("absent")");
  request = plain_request();
  request.kv_transfer_params = *json::parse(R"({"do_remote_decode":true,"remote_port":null})");
  EXPECT_FALSE(is_streamed(request));
  EXPECT_EQ(json::dump(member(request, "kv_transfer_params")),
            R"({"do_remote_decode":true,"remote_port":null})");
  request = plain_request();
  request.ec_transfer_params = json::Object();
  EXPECT_FALSE(is_streamed(request));
  EXPECT_EQ(json::dump(member(request, "ec_transfer_params")), "{}");
}

TEST(VllmHttpRequest, ExtraArgumentsGoUnderTheServersKey) {
  GenerateRequest request = plain_request();
  request.extra_args = *json::parse(R"({"target_token":67,"a":["b",1.5]})");
  EXPECT_EQ(json::dump(member(request, "vllm_xargs", kRust)),
            R"({"target_token":67,"a":["b",1.5]})");
  EXPECT_EQ(json::dump(member(request, "extra_args", kRust)), R"("absent")");
  EXPECT_EQ(json::dump(member(request, "extra_args", kPython)),
            R"({"target_token":67,"a":["b",1.5]})");
  Dialect none = kRust;
  none.args_key = Dialect::ArgsKey::None;
  EXPECT_EQ(written(request, none), written(plain_request(), none));  // defaults are left out
  request.extra_args_required = true;
  EXPECT_EQ(refused(request, none).code, ErrorCode::UnsupportedField);
  EXPECT_EQ(refused(request, none).param, "vllm_xargs");
}

TEST(VllmHttpRequest, Models) {
  GenerateRequest request = plain_request();
  EXPECT_FALSE(json::parse(written(request, kRust, ""))->find("model"));
  request.lora_name = "adapter";
  EXPECT_EQ(json::dump(member(request, "model")), R"("adapter")");
}

TEST(VllmHttpRequest, EachConstraintHasItsField) {
  using Kind = StructuredOutput::Kind;
  const std::pair<Kind, const char*> cases[] = {
      {Kind::JsonSchema, R"({"json":"{\"x\"}"})"},
      {Kind::JsonObject, R"({"json_object":true})"},
      {Kind::Regex, R"({"regex":"{\"x\"}"})"},
      {Kind::Choice, R"({"choice":["a","b"]})"},
      {Kind::Grammar, R"({"grammar":"{\"x\"}"})"},
      {Kind::StructuralTag, R"({"structural_tag":"{\"x\"}"})"},
  };
  for (const auto& [kind, text] : cases) {
    GenerateRequest request = plain_request();
    request.structured = StructuredOutput{kind, R"({"x"})", {"a", "b"}};
    EXPECT_EQ(json::dump(member(request, "structured_outputs")), text);
  }
}

TEST(VllmHttpRequest, InvalidRequestsAreRefused) {
  const std::pair<const char*, std::function<void(GenerateRequest&)>> cases[] = {
      {"prompt", [](GenerateRequest& r) { r.prompt.clear(); }},
      {"max_tokens", [](GenerateRequest& r) { r.stop.max_tokens = 0; }},
      {"prompt_logprobs", [](GenerateRequest& r) { r.output.prompt_logprobs = 0xFFFF'FFFEU; }},
      {"kv_transfer_params", [](GenerateRequest& r) { r.kv_transfer_params = 1; }},
      {"ec_transfer_params", [](GenerateRequest& r) { r.ec_transfer_params = "x"; }},
      {"vllm_xargs", [](GenerateRequest& r) { r.extra_args = json::Array(); }},
      {"vllm_xargs.kv_transfer_params",
       [](GenerateRequest& r) { r.extra_args = *json::parse(R"({"kv_transfer_params":1})"); }},
      {"vllm_xargs.bootstrap_room",
       [](GenerateRequest& r) { r.extra_args = *json::parse(R"({"a":1,"bootstrap_room":1})"); }},
  };
  for (const auto& [field, spoil] : cases) {
    GenerateRequest request = plain_request();
    spoil(request);
    EXPECT_EQ(refused(request).code, ErrorCode::InvalidRequest);
    EXPECT_EQ(refused(request).param, field);
  }
}

TEST(VllmHttpRequest, Headers) {
  GenerateRequest request = plain_request();
  EXPECT_EQ(request_headers(request).size(), 1U);
  request.data_parallel_rank = 0;
  request.session_id = "session";
  EXPECT_EQ(request_headers(request).find("x-data-parallel-rank"), "0");
  EXPECT_EQ(request_headers(request).find("x-session-id"), "session");
  EXPECT_EQ(request_headers(request).find("content-type"), "application/json");
}

TEST(VllmHttpRequest, LongPromptsAreWrittenWhole) {
  std::vector<TokenId> prompt;
  for (TokenId id = 0; id < 5000; ++id) {
    prompt.push_back(id * 857'321);
  }
  const auto body = json::parse(written(plain_request(prompt)));
  const json::Array* ids = body->find("token_ids")->as_array();
  ASSERT_EQ(ids->size(), prompt.size());
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    ASSERT_EQ(*(*ids)[i].as_int(), prompt[i]);
  }
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
