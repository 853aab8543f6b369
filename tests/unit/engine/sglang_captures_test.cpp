#include "engine/sglang_captures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/sglang_grpc/discovery.hpp"
#include "engine/sglang_grpc/response.hpp"
#include "engine/sglang_grpc/status.hpp"
#include "engine/testing.hpp"
#include "sglang/runtime.pb.h"

// What is expected is read from the recorded JSON, independent of the decoder under test.

namespace fairlead::engine::sglang_grpc {
namespace {

using testing::recorded_messages;
using testing::RecordingSink;

std::string text_of(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value && value->as_string() ? *value->as_string() : std::string();
}

std::int64_t int_of(const json::Value& object, std::string_view key, std::int64_t absent = 0) {
  const json::Value* value = object.find(key);
  return value && value->as_int() ? *value->as_int() : absent;
}

std::vector<TokenId> ids_of(const json::Value* list) {
  std::vector<TokenId> out;
  if (list && list->as_array()) {
    for (const json::Value& id : *list->as_array()) {
      out.push_back(static_cast<TokenId>(*id.as_int()));
    }
  }
  return out;
}

/// The request that this program would have made of a recorded one.
GenerateRequest request_of(const json::Value& call, Leg leg) {
  const json::Value& recorded = *call.find("request");
  GenerateRequest request;
  request.request_id = text_of(recorded, "rid");
  request.prompt = ids_of(recorded.find("input_ids"));
  request.leg = leg;
  request.stop.max_tokens = 128;
  if (const json::Value* sampling = recorded.find("sampling_params")) {
    request.stop.max_tokens = static_cast<std::uint32_t>(int_of(*sampling, "max_new_tokens", 128));
    request.stop.stop_token_ids = ids_of(sampling->find("stop_token_ids"));
  }
  if (recorded.find("return_logprob")) {
    request.output.logprobs = static_cast<std::uint32_t>(int_of(recorded, "top_logprobs_num"));
  }
  if (recorded.find("logprob_start_len")) {
    request.output.prompt_logprobs = request.output.logprobs;
  }
  return request;
}

json::Value meta(const json::Value& decoded, std::string_view key) {
  const json::Value* info = decoded.find("meta_info");
  const std::string text = info ? text_of(*info, key) : std::string();
  Result<json::Value> parsed = json::parse(text);
  return parsed ? std::move(*parsed) : json::Value();
}

struct Expected {
  std::vector<TokenId> ids;
  std::vector<double> logprobs;
  json::Value last;  ///< Decoded.
};

/// Joins or picks the last of the recorded messages.
Expected expectation(const json::Value& call, bool incremental) {
  Expected out;
  for (const json::Value& response : *call.find("responses")->as_array()) {
    const json::Value& decoded = *response.find("decoded");
    if (!incremental) {
      out.ids.clear();
      out.logprobs.clear();
    }
    const std::vector<TokenId> ids = ids_of(decoded.find("output_ids"));
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    const json::Value logprobs = meta(decoded, "output_token_logprobs");
    if (logprobs.as_array()) {
      for (const json::Value& entry : *logprobs.as_array()) {
        double value = 0;
        EXPECT_TRUE((*entry.as_array())[0].number(value));
        out.logprobs.push_back(value);
      }
    }
    out.last = decoded;
  }
  return out;
}

void expect_finish(const json::Value& reason, const GenerateRequest& request,
                   const Finish& finish) {
  EXPECT_EQ(finish.reason,
            text_of(reason, "type") == "stop" ? FinishReason::Stop : FinishReason::Length);
  const std::int64_t matched = int_of(reason, "matched", -1);
  std::optional<TokenId> stop;
  std::optional<TokenId> eos;
  if (matched >= 0) {
    (request.stop.stop_token_ids.empty() ? eos : stop) = static_cast<TokenId>(matched);
  }
  EXPECT_EQ(finish.stop_token_id, stop);
  EXPECT_EQ(finish.eos_token_id, eos);
}

/// Plays a recorded call with the mode that the engine ran in and with the others, which its
/// running totals put right.
void play(const json::Value& call, const GenerateRequest& request, bool incremental,
          Dialect::Output mode) {
  ResponseScratch scratch;
  ResponseTranslator translator(request, mode);
  RecordingSink sink;
  Result<> fed;
  for (const std::string& message : recorded_messages(call)) {
    fed = translator.feed(scratch, message, sink);
    if (!fed) {
      break;
    }
  }
  const Expected expected = expectation(call, incremental);
  const json::Value reason = meta(expected.last, "finish_reason");
  if (text_of(reason, "type") == "abort") {
    ASSERT_FALSE(fed);
    EXPECT_EQ(fed.error().code, int_of(reason, "status_code") == 400 ? ErrorCode::EngineRejected
                                                                     : ErrorCode::EngineUnknown);
    EXPECT_THAT(fed.error().message, ::testing::HasSubstr(text_of(reason, "message")));
    EXPECT_TRUE(translator.finished() && sink.ids.empty() && !sink.finish);
    return;
  }
  ASSERT_TRUE(fed) << fed.error().message;
  EXPECT_EQ(sink.ids, expected.ids);
  EXPECT_EQ(sink.prompt_tokens, request.prompt.size());
  ASSERT_EQ(translator.finished(), expected.last.find("finished") != nullptr);
  if (translator.finished()) {
    expect_finish(reason, request, *sink.finish);
    EXPECT_EQ(sink.finish->output_tokens, *meta(expected.last, "completion_tokens").as_int());
    EXPECT_EQ(sink.finish->cached_prompt_tokens, *meta(expected.last, "cached_tokens").as_int());
  }
  if (request.output.logprobs) {
    ASSERT_EQ(sink.logprobs.size(), expected.logprobs.size());
    for (std::size_t i = 0; i < sink.logprobs.size(); ++i) {
      EXPECT_EQ(sink.logprobs[i].candidates.size(),
                sink.logprobs[i].missing ? 0U : *request.output.logprobs);
      if (!sink.logprobs[i].missing) {
        EXPECT_FLOAT_EQ(sink.logprobs[i].logprob, static_cast<float>(expected.logprobs[i]));
      }
    }
  }
}

/// A call for each sequence that one answered: this program asks for each by itself.
std::vector<json::Value> sequences(const json::Member& call) {
  if (!call.key.ends_with("_n2")) {
    return {call.value};
  }
  std::vector<std::pair<std::string, json::Array>> parts;  // by the engine's id
  for (const json::Value& response : *call.value.find("responses")->as_array()) {
    const std::string id = text_of(*response.find("decoded")->find("meta_info"), "id");
    auto part = std::ranges::find(parts, id, &std::pair<std::string, json::Array>::first);
    if (part == parts.end()) {
      part = parts.insert(part, {id, {}});
    }
    part->second.push_back(response);
  }
  EXPECT_EQ(parts.size(), 2U);
  std::vector<json::Value> out;
  for (auto& [id, responses] : parts) {
    json::Object one = *call.value.as_object();
    one.set("responses", std::move(responses));
    out.emplace_back(std::move(one));
  }
  return out;
}

TEST(SglangCaptures, EveryStreamHasItsTokens) {
  int played = 0;
  for (const std::string name : {"grpc-cumulative", "grpc-incremental", "grpc-disaggregation"}) {
    const json::Value captures = testing::read_sglang_captures(name);
    for (const json::Member& call : *captures.as_object()) {
      const json::Value* responses = call.value.find("responses");
      if (!text_of(call.value, "method").ends_with("/Generate") || !responses ||
          responses->as_array()->empty()) {
        continue;
      }
      SCOPED_TRACE(call.key);
      const bool prefill = call.key.contains("prefill") && !call.key.ends_with("decode");
      const GenerateRequest request = request_of(call.value, prefill ? Leg::Prefill : Leg::Whole);
      for (const json::Value& sequence : sequences(call)) {
        for (const Dialect::Output mode : {Dialect::Output::Unknown, Dialect::Output::Cumulative,
                                           Dialect::Output::Incremental}) {
          // The pair streamed increments, too.
          play(sequence, request, name != "grpc-cumulative", mode);
        }
        ++played;
      }
    }
  }
  EXPECT_EQ(played, 63);
}

TEST(SglangCaptures, RefusalsBlameTheRequest) {
  const json::Value captures = testing::read_sglang_captures("grpc-cumulative");
  const auto code_of = [](const std::string& name) {
    return name == "INTERNAL" ? net::grpc::StatusCode::Internal
                              : net::grpc::StatusCode::InvalidArgument;
  };
  int refused = 0;
  for (const json::Member& call : *captures.as_object()) {
    const std::string status = text_of(call.value, "status");
    if (!call.key.starts_with("agg_err") ||
        (status != "INTERNAL" && status != "INVALID_ARGUMENT")) {
      continue;
    }
    const Error error = generate_error({code_of(status), text_of(call.value, "details")});
    // Neither a rank nor an id is the client's choice.
    const bool own = call.key == "agg_err_dp_rank_5" || call.key == "agg_err_dup_rid";
    EXPECT_EQ(error.code, own ? ErrorCode::EngineUnknown : ErrorCode::EngineRejected) << call.key;
    EXPECT_THAT(error.message, ::testing::HasSubstr(text_of(call.value, "details")));
    ++refused;
  }
  EXPECT_EQ(refused, 12);
}

TEST(SglangCaptures, LogprobsOfOneLegOnlyLackTheFirst) {
  const json::Value captures = testing::read_sglang_captures("grpc-disaggregation");
  for (const bool both : {true, false}) {
    const json::Value& call =
        *captures.find(both ? "pd_lp_both_decode" : "pd_lp_decode_only_decode");
    ResponseScratch scratch;
    ResponseTranslator translator(request_of(call, Leg::Decode), Dialect::Output::Incremental);
    RecordingSink sink;
    for (const std::string& message : recorded_messages(call)) {
      ASSERT_TRUE(translator.feed(scratch, message, sink));
    }
    ASSERT_EQ(sink.logprobs.size(), 3U);
    EXPECT_EQ(sink.logprobs[0].missing, !both);
    EXPECT_FALSE(sink.logprobs[1].missing || sink.logprobs[2].missing);
  }
}

TEST(SglangCaptures, DiscoveryOfARealEngine) {
  const json::Value captures = testing::read_sglang_captures("grpc-incremental");
  const auto message = [&](std::string_view name) {
    return recorded_messages(*captures.find(name)).at(0);
  };
  ::sglang::runtime::v1::EngineStateSnapshot state;
  state.set_instance_id(1795982537710517654U);
  DiscoveryAnswers answers;
  answers.model_info = message("inc_model_info");
  answers.server_info = message("inc_server_info");
  answers.models = message("inc_list_models");
  answers.engine_state = state.SerializeAsString();
  const Result<Discovery> found = read_discovery(answers);
  ASSERT_TRUE(found) << found.error().message;
  const EngineInfo& info = found->info;
  EXPECT_EQ(info.model_id, "/models/tiny");
  EXPECT_EQ(info.served_model_name, "tiny");
  EXPECT_EQ(info.dialect, "sglang-incremental+priority");
  EXPECT_EQ(info.instance_id, "1795982537710517654");
  EXPECT_EQ(info.max_model_len, 4096U);
  EXPECT_EQ(info.kv_block_size, 16U);
  EXPECT_EQ(info.total_kv_blocks, 512U);
  EXPECT_EQ(info.max_running_requests, 8U);
  EXPECT_EQ(info.max_batched_tokens, 16384U);
  EXPECT_EQ(info.data_parallel_size, 1U);
  EXPECT_EQ(info.role, Leg::Whole);
  EXPECT_EQ(info.reasoning_parser, "qwen3");
  EXPECT_EQ(info.tool_call_parser, "qwen");
  EXPECT_TRUE(info.capabilities.has(Capability::PromptLogprobs));
  EXPECT_FALSE(info.capabilities.has(Capability::Lora));
  EXPECT_EQ(info.bootstrap_port, 0);
  const KvEventSource source{.endpoint = "tcp://*:30020",
                             .replay_endpoint = "tcp://*:30040",
                             .topic = "kv",
                             .data_parallel_rank = 0,
                             .buffer_steps = 1000};
  EXPECT_EQ(info.kv_event_sources, std::vector{source});
  EXPECT_TRUE(info.warnings.empty());

  answers.engine_state.clear();
  EXPECT_EQ(read_discovery(answers)->info.instance_id, "startup-11.478661201000023");
}

TEST(SglangCaptures, LoadOfARealEngine) {
  for (const std::string name : {"cumulative", "incremental"}) {
    const json::Value captures = testing::read_sglang_captures("grpc-" + name);
    const std::string prefix = name == "cumulative" ? "agg_" : "inc_";
    const auto usage = read_load(recorded_messages(*captures.find(prefix + "get_load")).at(0));
    ASSERT_TRUE(usage);
    EXPECT_EQ(*usage, (std::vector<KvUsage>{{.rank = 0, .share = 0}}));
    const auto none =
        read_load(recorded_messages(*captures.find(prefix + "get_load_bad_rank")).at(0));
    EXPECT_TRUE(none && none->empty());
  }
}

}  // namespace
}  // namespace fairlead::engine::sglang_grpc
