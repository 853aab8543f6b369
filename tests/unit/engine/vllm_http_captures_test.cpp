#include "engine/vllm_http_captures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "engine/testing.hpp"
#include "engine/vllm_http/discovery.hpp"
#include "engine/vllm_http/field_probe.hpp"
#include "engine/vllm_http/response.hpp"
#include "engine/vllm_http/status.hpp"

// Answers of three real servers. What is expected was read off the recordings: the same greedy
// generation on each.

namespace fairlead::engine::vllm_http {
namespace {

using ::testing::ElementsAre;
using testing::plain_request;
using testing::read_recording;
using testing::RecordingSink;
using ::testing::SizeIs;

const std::vector<TokenId> kPrompt{504, 3575, 282, 4649, 314};

class VllmHttpCaptures : public ::testing::TestWithParam<std::string_view> {
 protected:
  const std::vector<std::string>& lines(const std::string& section) {
    const auto found = recording.find(section);
    EXPECT_TRUE(found != recording.end() && !found->second.empty()) << section;
    static const std::vector<std::string> kNone{""};
    return found == recording.end() || found->second.empty() ? kNone : found->second;
  }
  /// Feeds a whole answer of the recording.
  Result<> answer(const GenerateRequest& request, std::string_view body) {
    ResponseTranslator translator(request);
    return translator.feed_answer(scratch, std::string(body), sink);
  }

  std::map<std::string, std::vector<std::string>> recording =
      read_recording(std::string(GetParam()));
  ResponseScratch scratch;
  RecordingSink sink;
};

void expect_logprobs(const std::vector<TokenLogprob>& logprobs) {
  ASSERT_THAT(logprobs, SizeIs(3));
  EXPECT_NEAR(logprobs[0].logprob, -0.265976, 1e-5);
  EXPECT_NEAR(logprobs[1].logprob, -0.395522, 1e-5);
  EXPECT_NEAR(logprobs[2].logprob, -1.005807, 1e-5);
  for (const TokenLogprob& token : logprobs) {
    EXPECT_EQ(token.rank, 1U);
    EXPECT_FALSE(token.missing);
  }
}

TEST_P(VllmHttpCaptures, AWholeAnswerWithEveryLogprob) {
  GenerateRequest request = plain_request(kPrompt, 3);
  request.output.logprobs = 2;
  request.output.prompt_logprobs = 1;
  const Result<> fed = answer(request, lines("gen").front());
  ASSERT_TRUE(fed) << fed.error().message;
  EXPECT_THAT(sink.ids, ElementsAre(7042, 30, 198));
  expect_logprobs(sink.logprobs);
  ASSERT_THAT(sink.logprobs[0].candidates, SizeIs(2));
  EXPECT_EQ(sink.logprobs[0].candidates[1].id, 260U);
  EXPECT_NEAR(sink.logprobs[0].candidates[1].logprob, -2.703476, 1e-5);
  ASSERT_THAT(sink.prompt_logprobs, SizeIs(5));
  EXPECT_NEAR(sink.prompt_logprobs[1].logprob, -11.776964, 1e-5);
  EXPECT_EQ(sink.prompt_logprobs[1].rank, 3123U);
  ASSERT_THAT(sink.prompt_logprobs[1].candidates, SizeIs(1));
  EXPECT_EQ(sink.prompt_logprobs[1].candidates[0].id, 29U);
  EXPECT_NEAR(sink.prompt_logprobs[3].logprob, -2.495440, 1e-5);
  EXPECT_EQ(sink.prompt_logprobs[4].candidates[0].id, 314U);
  ASSERT_TRUE(sink.finish);
  EXPECT_EQ(sink.finish->reason, FinishReason::Length);
  EXPECT_TRUE(sink.finish->kv_transfer_params.is_null());
}

TEST_P(VllmHttpCaptures, AStreamOfDeltas) {
  for (const bool logprobs : {true, false}) {
    GenerateRequest request = plain_request(kPrompt, 3);
    if (logprobs) {
      request.output.logprobs = 1;
    }
    sink = RecordingSink();
    ResponseTranslator translator(request);
    for (const std::string& line : lines("gen stream")) {
      const Result<> fed = translator.feed_event(
          scratch, std::string_view(line).substr(std::string_view("data: ").size()), sink);
      ASSERT_TRUE(fed) << fed.error().message;
    }
    EXPECT_THAT(sink.ids, ElementsAre(7042, 30, 198));
    ASSERT_TRUE(sink.finish);
    EXPECT_EQ(sink.finish->reason, FinishReason::Length);
    EXPECT_EQ(sink.finish->output_tokens, 3U);
    if (logprobs) {
      expect_logprobs(sink.logprobs);
      EXPECT_EQ(sink.logprobs[2].candidates[0].id, 198U);
    }
  }
}

TEST_P(VllmHttpCaptures, ExtraArgumentsUnderTheRightKeyForceTheToken) {
  const bool python = GetParam().starts_with("python");
  const Result<> fed =
      answer(plain_request(kPrompt, 3),
             lines(python ? "gen xargs via extra_args" : "gen xargs via vllm_xargs").front());
  ASSERT_TRUE(fed) << fed.error().message;
  EXPECT_THAT(sink.ids, ElementsAre(100, 100, 100));
}

TEST_P(VllmHttpCaptures, ErrorsBlameTheRequestUnlessTheModelIsGone) {
  for (const std::string& line : lines("gen errors")) {
    if (line == "data: [DONE]") {
      continue;
    }
    Error error;
    if (line.starts_with("data: ")) {
      ResponseTranslator translator(plain_request());
      const Result<> fed = translator.feed_event(scratch, line.substr(6), sink);
      ASSERT_FALSE(fed);
      error = fed.error();
    } else {
      error = status_error("generate", line.contains("does not exist") ? 404 : 400, line);
    }
    EXPECT_EQ(error.code, line.contains("does not exist") ? ErrorCode::EngineUnreachable
                                                          : ErrorCode::EngineRejected)
        << line;
    EXPECT_GT(error.message.size(), std::string_view("generate:  (status 400)").size());
    EXPECT_FALSE(error.message.contains('\n'));
  }
}

TEST_P(VllmHttpCaptures, RanksThatDoNotExistAreRefused) {
  const std::vector<std::string>& answers = lines("gen dp header");
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_TRUE(answer(plain_request({504}, 1), answers[0]));
  EXPECT_THAT(sink.ids, SizeIs(1));
  EXPECT_EQ(status_error("generate", 400, answers[1]).code, ErrorCode::EngineRejected);
}

/// The recorded refusal of one probing request: its status and body.
Refusal refusal(const std::string& line) {
  return {std::stoi(line), error_message(std::string_view(line).substr(4))};
}

// The whole probe from recorded answers, down to what requests are told.
TEST_P(VllmHttpCaptures, DiscoveryFindsOutWhatTheServerTakes) {
  recording = read_recording("discovery-" + std::string(GetParam()));
  DiscoveryAnswers answers;
  answers.version = lines("version").front();
  answers.models = lines("models").front();
  answers.kv_event_sources = lines("kv_event_sources").front();
  for (const std::string& line : lines("metrics")) {
    answers.metrics += line + "\n";
  }
  Dialect dialect = dialect_of_answers(answers);
  const Refusal without = refusal(lines("field without").front());
  for (const ProbedField& field : probed_fields()) {
    const std::string name = "field " + std::string(field.name);
    if (field_is_taken(without, refusal(lines(name + " wrong").front()),
                       refusal(lines(name + " right").front()))) {
      set_field(dialect, field.name);
    }
  }
  const Result<EngineInfo> info = read_discovery(answers, dialect);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->engine_version, "0.32.0");
  EXPECT_EQ(info->served_model_name, "tiny-qwen3");
  EXPECT_EQ(info->model_id, "/models/tiny-qwen3");
  EXPECT_EQ(info->max_model_len, 1024U);
  EXPECT_EQ(info->data_parallel_size, 1U);
  EXPECT_THAT(info->warnings, ::testing::IsEmpty());
  ASSERT_THAT(info->kv_event_sources, SizeIs(1));
  EXPECT_TRUE(info->kv_event_sources[0].endpoint.starts_with("tcp://*:"));
  EXPECT_EQ(info->kv_event_sources[0].buffer_steps, 10000U);
  const CapabilitySet always{Capability::VllmXargs, Capability::LogprobTokenIds,
                             Capability::PromptLogprobs};
  EXPECT_TRUE(info->capabilities.covers(always));
  const bool python = GetParam() == "python-0.32.0";
  EXPECT_EQ(info->capabilities.has(Capability::BadWordsTokenIds), !python);
  EXPECT_EQ(info->kv_block_size, python ? 32U : 0U);
  EXPECT_EQ(info->total_kv_blocks, python ? 80U : 0U);
  EXPECT_EQ(info->dialect, python ? "python/extra_args+logprob_token_ids+logit_bias"
                           : GetParam() == "rust-0.32.0"
                               ? "rust/vllm_xargs+logprob_token_ids+bad_words_token_ids"
                               : "rust/extra_args+logprob_token_ids+bad_words_token_ids");
}

INSTANTIATE_TEST_SUITE_P(Servers, VllmHttpCaptures, ::testing::ValuesIn(testing::kRecordedServers),
                         [](const auto& param) {
                           std::string name(param.param);
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace fairlead::engine::vllm_http
