#include "engine/vllm_grpc/discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vllm/control.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// The answers of a plain engine, to be changed by each test.
struct Engine {
  ::vllm::ModelInfo model;
  ::vllm::ServerInfo server;
  ::vllm::GetKvEventSourcesResponse sources;
  std::vector<std::string> warnings;

  Engine() {
    model.set_model_id("/models/m");
    model.set_served_model_name("m");
    model.set_supports_token_ids_input(true);
    server.set_api_version("vllm");
    server.set_engine_version("0.32.0");
    server.set_instance_id("life-1");
  }

  ::vllm::KvEventSource& add_source(std::uint32_t rank) {
    ::vllm::KvEventSource& source = *sources.add_sources();
    source.set_transport("zmq");
    source.set_encoding("msgpack");
    source.set_schema_version(1);
    source.set_endpoint("tcp://*:5557");
    source.set_data_parallel_rank(rank);
    return source;
  }

  Result<EngineInfo> read(Dialect dialect = Dialect::Inference) {
    warnings.clear();
    const DiscoveryAnswers answers{.has_model_info = true,
                                   .has_server_info = true,
                                   .model_info = model.SerializeAsString(),
                                   .server_info = server.SerializeAsString(),
                                   .kv_event_sources = sources.SerializeAsString()};
    return read_discovery(answers, dialect, warnings);
  }
  EngineInfo good() {
    Result<EngineInfo> info = read();
    EXPECT_TRUE(info) << info.error().message;
    return info.value_or(EngineInfo{});
  }
  std::string bad() {
    const Result<EngineInfo> info = read();
    EXPECT_FALSE(info);
    if (info) {
      return "no error";
    }
    EXPECT_EQ(info.error().code, ErrorCode::EngineProtocol);
    return info.error().message;
  }
};

TEST(VllmDiscovery, ReportsEveryField) {
  Engine engine;
  engine.model.add_served_model_aliases("alias-1");
  engine.model.add_served_model_aliases("alias-2");
  engine.model.set_supports_multimodal(true);
  engine.model.set_supports_lora(true);
  engine.model.set_tool_call_parser("qwen3_xml");
  engine.model.set_reasoning_parser("none");
  engine.server.set_proto_version("0.6.0");
  engine.server.set_max_model_len(1024);
  engine.server.set_kv_block_size(32);
  engine.server.set_total_kv_blocks(80);
  engine.server.set_max_running_requests(8);
  engine.server.set_max_batched_tokens(2048);
  engine.server.set_max_loras(2);
  ::vllm::KvEventSource& source = engine.add_source(0);
  source.set_topic("kv-events");
  source.set_replay_endpoint("tcp://*:5558");
  source.set_buffer_steps(10000);
  const EngineInfo info = engine.good();
  EXPECT_EQ(info.model_id, "/models/m");
  EXPECT_EQ(info.served_model_name, "m");
  EXPECT_THAT(info.aliases, ElementsAre("alias-1", "alias-2"));
  EXPECT_EQ(info.engine_version, "0.32.0");
  EXPECT_EQ(info.proto_version, "0.6.0");
  EXPECT_EQ(info.dialect, "vllm.Inference");
  EXPECT_EQ(info.instance_id, "life-1");
  EXPECT_EQ(info.max_model_len, 1024U);
  EXPECT_EQ(info.kv_block_size, 32U);
  EXPECT_EQ(info.total_kv_blocks, 80U);
  EXPECT_EQ(info.max_running_requests, 8U);
  EXPECT_EQ(info.max_batched_tokens, 2048U);
  EXPECT_EQ(
      info.capabilities,
      (CapabilitySet{Capability::LogprobTokenIds, Capability::PromptLogprobs,
                     Capability::BadWordsTokenIds, Capability::Lora, Capability::Multimodal}));
  EXPECT_EQ(info.tool_call_parser, "qwen3_xml");
  EXPECT_EQ(info.reasoning_parser, "none");
  EXPECT_EQ(info.data_parallel_start, 0U);
  EXPECT_EQ(info.data_parallel_size, 1U);
  ASSERT_THAT(info.kv_event_sources, SizeIs(1));
  EXPECT_EQ(info.kv_event_sources[0].endpoint, "tcp://*:5557");
  EXPECT_EQ(info.kv_event_sources[0].replay_endpoint, "tcp://*:5558");
  EXPECT_EQ(info.kv_event_sources[0].topic, "kv-events");
  EXPECT_EQ(info.kv_event_sources[0].buffer_steps, 10000U);
  EXPECT_THAT(engine.warnings, IsEmpty());
}

TEST(VllmDiscovery, NamesAndTokenInputAreRequired) {
  Engine engine;
  engine.server.set_api_version("other");
  EXPECT_THAT(engine.bad(), HasSubstr("api_version is `other`"));
  engine = {};
  engine.model.set_model_id(" \t");
  EXPECT_THAT(engine.bad(), HasSubstr("model_id is blank"));
  engine = {};
  engine.model.clear_served_model_name();
  EXPECT_THAT(engine.bad(), HasSubstr("served_model_name is blank"));
  engine = {};
  engine.model.set_supports_token_ids_input(false);
  EXPECT_THAT(engine.bad(), HasSubstr("token ids"));
}

TEST(VllmDiscovery, BlankParsersMeanNone) {
  Engine engine;
  engine.model.set_tool_call_parser("  ");
  EXPECT_EQ(engine.good().tool_call_parser, "");
}

TEST(VllmDiscovery, CA3NoGenerationOfTheWireTakesExtraArguments) {
  for (const Dialect dialect : {Dialect::Generate, Dialect::InferenceEarly, Dialect::Inference}) {
    Engine engine;
    const auto info = engine.read(dialect);
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_FALSE(info->capabilities.has(Capability::VllmXargs));
  }
}

TEST(VllmDiscovery, LoraNeedsBothSides) {
  Engine engine;
  engine.model.set_supports_lora(true);
  EXPECT_FALSE(engine.good().capabilities.has(Capability::Lora));
  engine.server.set_max_loras(1);
  EXPECT_TRUE(engine.good().capabilities.has(Capability::Lora));
  engine.model.set_supports_lora(false);
  EXPECT_FALSE(engine.good().capabilities.has(Capability::Lora));
}

void set_ranks(Engine& engine, std::uint32_t size, std::uint32_t start, std::uint32_t local) {
  ::vllm::ParallelismInfo& parallelism = *engine.server.mutable_parallelism();
  parallelism.set_data_parallel_size(size);
  parallelism.set_data_parallel_rank(start);
  parallelism.set_data_parallel_size_local(local);
}

TEST(VllmDiscovery, AnyContiguousLocalRangeOfRanksIsTaken) {
  Engine engine;
  set_ranks(engine, 8, 4, 2);
  engine.server.set_total_kv_blocks(129);
  const EngineInfo info = engine.good();
  EXPECT_EQ(info.data_parallel_start, 4U);
  EXPECT_EQ(info.data_parallel_size, 2U);
  EXPECT_EQ(info.total_kv_blocks, 64U);
  EXPECT_THAT(engine.warnings, ElementsAre(HasSubstr("129 KV blocks")));
  engine.server.set_total_kv_blocks(1);
  EXPECT_EQ(engine.good().total_kv_blocks, 1U);
  engine.server.set_total_kv_blocks(0);
  EXPECT_EQ(engine.good().total_kv_blocks, 0U);
}

TEST(VllmDiscovery, OlderServersDoNotSayHowManyRanksTheyOwn) {
  Engine engine;
  set_ranks(engine, 4, 0, 0);
  EXPECT_EQ(engine.good().data_parallel_size, 4U);
  EXPECT_THAT(engine.warnings, SizeIs(1));
  set_ranks(engine, 1, 0, 0);
  EXPECT_EQ(engine.good().data_parallel_size, 1U);
  EXPECT_THAT(engine.warnings, IsEmpty());
  set_ranks(engine, 4, 1, 0);
  EXPECT_THAT(engine.bad(), HasSubstr("ranks start at 1"));
}

TEST(VllmDiscovery, ImpossibleRanksAreErrors) {
  Engine engine;
  set_ranks(engine, 0, 0, 1);
  EXPECT_THAT(engine.bad(), HasSubstr("data_parallel_size is 0"));
  set_ranks(engine, 4, 3, 2);
  EXPECT_THAT(engine.bad(), HasSubstr("ranks 3 to 4 of a group of 4"));
  set_ranks(engine, 4, 4, 1);
  EXPECT_THAT(engine.bad(), HasSubstr("of a group of 4"));
  set_ranks(engine, 4, 0xFFFFFFFF, 0xFFFFFFFF);
  EXPECT_THAT(engine.bad(), HasSubstr("of a group of 4"));
}

TEST(VllmDiscovery, TheEffectiveBlockSizeWins) {
  Engine engine;
  engine.server.set_kv_block_size(16);
  EXPECT_EQ(engine.good().kv_block_size, 16U);
  engine.server.set_effective_attention_block_size(64);
  EXPECT_EQ(engine.good().kv_block_size, 64U);
  engine.server.set_effective_attention_block_size(0);
  EXPECT_THAT(engine.bad(), HasSubstr("effective_attention_block_size is 0"));
  engine.server.set_effective_attention_block_size(0x1'0000'0000);
  EXPECT_THAT(engine.bad(), HasSubstr("4294967296"));
}

TEST(VllmDiscovery, SourcesAreOrderedByRank) {
  Engine engine;
  set_ranks(engine, 4, 2, 2);
  engine.add_source(3);
  engine.add_source(2).set_topic("");
  const EngineInfo info = engine.good();
  ASSERT_THAT(info.kv_event_sources, SizeIs(2));
  EXPECT_EQ(info.kv_event_sources[0].data_parallel_rank, 2U);
  EXPECT_EQ(info.kv_event_sources[1].data_parallel_rank, 3U);
  EXPECT_EQ(info.kv_event_sources[0].replay_endpoint, "");
}

TEST(VllmDiscovery, UnusableSourcesAreLeftOutWithAReason) {
  const auto warning = [](void (*damage)(::vllm::KvEventSource&)) {
    Engine engine;
    damage(engine.add_source(0));
    EXPECT_THAT(engine.good().kv_event_sources, IsEmpty());
    EXPECT_THAT(engine.warnings, SizeIs(1));
    return engine.warnings.empty() ? std::string() : engine.warnings[0];
  };
  EXPECT_THAT(warning([](auto& s) { s.set_transport("nats"); }), HasSubstr("transport `nats`"));
  EXPECT_THAT(warning([](auto& s) { s.set_encoding("json"); }), HasSubstr("encoding `json`"));
  EXPECT_THAT(warning([](auto& s) { s.set_schema_version(2); }), HasSubstr("schema version 2"));
  EXPECT_THAT(warning([](auto& s) { s.set_endpoint(" "); }), HasSubstr("blank endpoint"));
  EXPECT_THAT(warning([](auto& s) { s.clear_data_parallel_rank(); }),
              HasSubstr("no data-parallel"));
  EXPECT_THAT(warning([](auto& s) { s.set_data_parallel_rank(1); }), HasSubstr("rank 1 outside"));
}

TEST(VllmDiscovery, SourcesMustCoverEveryRankOnce) {
  Engine engine;
  set_ranks(engine, 2, 0, 2);
  engine.add_source(0);
  EXPECT_THAT(engine.good().kv_event_sources, IsEmpty());
  EXPECT_THAT(engine.warnings, ElementsAre(HasSubstr("1 sources for 2 ranks")));
  engine.add_source(0);
  EXPECT_THAT(engine.good().kv_event_sources, IsEmpty());
  EXPECT_THAT(engine.warnings, ElementsAre(HasSubstr("rank 0 twice")));
}

TEST(VllmDiscovery, ServersWithoutDiscoveryAreUnknownButUsable) {
  std::vector<std::string> warnings;
  const Result<EngineInfo> info = read_discovery({}, Dialect::Generate, warnings);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->dialect, "vllm.Generate");
  EXPECT_EQ(info->served_model_name, "");
  EXPECT_EQ(info->max_model_len, 0U);
  EXPECT_EQ(info->data_parallel_size, 1U);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(VllmDiscovery, GarbageIsAnError) {
  std::vector<std::string> warnings;
  DiscoveryAnswers answers{.has_model_info = true,
                           .has_server_info = true,
                           .model_info = "\xff",
                           .server_info = {},
                           .kv_event_sources = {}};
  Engine plain;
  answers.server_info = plain.server.SerializeAsString();
  EXPECT_FALSE(read_discovery(answers, Dialect::Inference, warnings));
  answers.model_info = plain.model.SerializeAsString();
  EXPECT_TRUE(read_discovery(answers, Dialect::Inference, warnings));
  answers.kv_event_sources = "\x0a\x05x";
  EXPECT_FALSE(read_discovery(answers, Dialect::Inference, warnings));
  answers.kv_event_sources.clear();
  answers.server_info = "\x0a";
  EXPECT_FALSE(read_discovery(answers, Dialect::Inference, warnings));
}

TEST(VllmDiscovery, TheDialectFollowsTheVersions) {
  Engine engine;
  DiscoveryAnswers answers;
  EXPECT_EQ(dialect_of_answers(answers), Dialect::InferenceEarly);
  answers.has_server_info = true;
  answers.server_info = engine.server.SerializeAsString();
  EXPECT_EQ(dialect_of_answers(answers), Dialect::Inference);
  engine.server.set_engine_version("0.28.0");
  answers.server_info = engine.server.SerializeAsString();
  EXPECT_EQ(dialect_of_answers(answers), Dialect::InferenceEarly);
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
