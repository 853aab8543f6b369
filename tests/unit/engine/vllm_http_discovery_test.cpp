#include "engine/vllm_http/discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::engine::vllm_http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

DiscoveryAnswers usual_answers() {
  DiscoveryAnswers out;
  out.version = R"({"version":"0.32.0"})";
  out.models = R"({"data":[{"id":"m","root":"/models/m","parent":null,"max_model_len":1024},)"
               R"({"id":"alias","root":"/models/m","parent":null,"max_model_len":1024},)"
               R"({"id":"adapter","root":"/loras/a","parent":"m"}]})";
  return out;
}

EngineInfo read(const DiscoveryAnswers& answers) {
  Result<EngineInfo> info = read_discovery(answers, dialect_of_answers(answers));
  EXPECT_TRUE(info) << info.error().message;
  return info.value_or(EngineInfo{});
}

TEST(VllmHttpDiscovery, ModelsWithAParentAreAdapters) {
  const EngineInfo info = read(usual_answers());
  EXPECT_EQ(info.served_model_name, "m");
  EXPECT_EQ(info.model_id, "/models/m");
  EXPECT_EQ(info.max_model_len, 1024U);
  EXPECT_THAT(info.aliases, ElementsAre("alias"));
  EXPECT_THAT(info.lora_adapters, ElementsAre("adapter"));
  EXPECT_TRUE(info.capabilities.has(Capability::Lora));
  EXPECT_TRUE(info.capabilities.has(Capability::PromptLogprobs));
  EXPECT_FALSE(info.capabilities.has(Capability::VllmXargs));
  EXPECT_EQ(info.data_parallel_size, 1U);
  EXPECT_EQ(info.kv_block_size, 0U);
}

TEST(VllmHttpDiscovery, WithoutAdaptersThereIsNoLora) {
  DiscoveryAnswers answers = usual_answers();
  answers.models = R"({"data":[{"id":"m"}]})";
  const EngineInfo info = read(answers);
  EXPECT_FALSE(info.capabilities.has(Capability::Lora));
  EXPECT_EQ(info.model_id, "m");
}

TEST(VllmHttpDiscovery, AListOfModelsIsNeeded) {
  for (const char* models : {"", "{}", "[]", R"({"data":3})", R"({"data":[]})",
                             R"({"data":[{"id":" "}]})", R"({"data":[{"id":"a","parent":"m"}]})"}) {
    DiscoveryAnswers answers = usual_answers();
    answers.models = models;
    const auto info = read_discovery(answers, {});
    ASSERT_FALSE(info) << models;
    EXPECT_EQ(info.error().code, ErrorCode::EngineProtocol);
  }
}

TEST(VllmHttpDiscovery, TheRustFrontendIsToldByItsVersionOrItsName) {
  DiscoveryAnswers answers = usual_answers();
  EXPECT_EQ(dialect_of_answers(answers).frontend, Dialect::Frontend::Python);
  answers.version = R"({"version":"0.32.0","rust_frontend_version":"0.31.0"})";
  EXPECT_EQ(dialect_of_answers(answers).frontend, Dialect::Frontend::Rust);
  answers.version.clear();
  answers.models = R"({"data":[{"id":"m","owned_by":"vllm-frontend-rs"}]})";
  EXPECT_EQ(dialect_of_answers(answers).frontend, Dialect::Frontend::Rust);
}

TEST(VllmHttpDiscovery, RanksAndBlocksComeFromTheMetrics) {
  DiscoveryAnswers answers = usual_answers();
  answers.metrics =
      "# HELP vllm:num_requests_running x\n"
      "vllm:num_requests_running{engine=\"2\",model_name=\"m\"} 0.0\n"
      "vllm:num_requests_running{model_name=\"m\",engine=\"3\"} 1.0\n"
      "vllm:cache_config_info{block_size=\"16\",effective_attention_block_size=\"None\","
      "engine=\"2\",mamba_block_size=\"7\",num_gpu_blocks=\"100\"} 1.0\n"
      "vllm:cache_config_info{block_size=\"32\",effective_attention_block_size=\"16\","
      "engine=\"3\",num_gpu_blocks=\"100\"} 1.0\n"
      "process_start_time_seconds 1.5e+09";
  const EngineInfo info = read(answers);
  EXPECT_EQ(info.data_parallel_start, 2U);
  EXPECT_EQ(info.data_parallel_size, 2U);
  EXPECT_EQ(info.kv_block_size, 16U);
  EXPECT_EQ(info.total_kv_blocks, 100U);
  EXPECT_EQ(info.instance_id, "1.5e+09");
  EXPECT_THAT(info.warnings, IsEmpty());
}

TEST(VllmHttpDiscovery, RanksThatDoNotFitTogetherAreNotUsed) {
  DiscoveryAnswers answers = usual_answers();
  answers.metrics =
      "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"2\"} 0\n";
  EXPECT_EQ(read(answers).data_parallel_size, 1U);
  EXPECT_THAT(read(answers).warnings, ElementsAre(HasSubstr("gaps")));
  answers.metrics =
      "vllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1\n"
      "vllm:cache_config_info{block_size=\"32\",engine=\"1\"} 1\n";
  EXPECT_EQ(read(answers).kv_block_size, 0U);
  EXPECT_THAT(read(answers).warnings, ElementsAre(HasSubstr("block size")));
  answers.metrics = "vllm:num_requests_running{engine=\"x\"} 0\nvllm:num_requests_running{\n{\n";
  EXPECT_EQ(read(answers).data_parallel_size, 1U);
}

std::string source(std::string_view rank, std::string_view endpoint = "tcp://*:5557",
                   std::string_view publisher = "zmq", bool on = true) {
  return "\"" + std::string(rank) + R"(":{"enable_kv_cache_events":)" + (on ? "true" : "false") +
         R"(,"publisher":")" + std::string(publisher) + R"(","endpoint":")" +
         std::string(endpoint) +
         R"(","replay_endpoint":"tcp://*:5558","buffer_steps":10000,"topic":"kv"})";
}

TEST(VllmHttpDiscovery, EveryRankHasItsEventSource) {
  DiscoveryAnswers answers = usual_answers();
  answers.metrics =
      "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"1\"} 0\n";
  answers.kv_event_sources = "{" + source("1", "tcp://*:6557") + "," + source("0") + "}";
  const EngineInfo info = read(answers);
  ASSERT_THAT(info.kv_event_sources, SizeIs(2));
  EXPECT_EQ(info.kv_event_sources[0],
            (KvEventSource{"tcp://*:5557", "tcp://*:5558", "kv", 0, 10000}));
  EXPECT_EQ(info.kv_event_sources[1].endpoint, "tcp://*:6557");
}

TEST(VllmHttpDiscovery, EventsThatAreOffAreNoProblem) {
  DiscoveryAnswers answers = usual_answers();
  for (const std::string& text : {std::string("{}"), "{" + source("0", "", "null", false) + "}"}) {
    answers.kv_event_sources = text;
    EXPECT_THAT(read(answers).kv_event_sources, IsEmpty());
    EXPECT_THAT(read(answers).warnings, IsEmpty());
  }
}

TEST(VllmHttpDiscovery, SourcesThatCannotBeUsedAreLeftOutWithAWarning) {
  DiscoveryAnswers answers = usual_answers();
  answers.metrics =
      "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_running{engine=\"1\"} 0\n";
  for (const std::string& text :
       {std::string("[]"), "{" + source("0") + "}", "{" + source("0") + "," + source("2") + "}",
        "{" + source("0") + "," + source("1", " ") + "}",
        "{" + source("0") + "," + source("1", "tcp://*:1", "null") + "}",
        "{" + source("x") + "}"}) {
    answers.kv_event_sources = text;
    EXPECT_THAT(read(answers).kv_event_sources, IsEmpty()) << text;
    EXPECT_THAT(read(answers).warnings, ElementsAre(HasSubstr("KV events are not used"))) << text;
  }
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
