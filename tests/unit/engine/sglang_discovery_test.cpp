#include "engine/sglang_grpc/discovery.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SglangDiscovery : public ::testing::Test {
 protected:
  SglangDiscovery() {
    model.set_model_path("/m");
    add_card("m-name", "m-name", "", 1000);
  }
  void add_card(std::string id, std::string root, std::string parent, int length) {
    ::sglang::runtime::v1::ModelCard& card = *models.add_models();
    card.set_id(std::move(id));
    card.set_root(std::move(root));
    if (!parent.empty()) {
      card.set_parent(std::move(parent));
    }
    if (length > 0) {
      card.set_max_model_len(length);
    }
  }
  /// What is found of an engine with these members in its server info.
  Result<Discovery> read(std::string_view members) {
    ::sglang::runtime::v1::GetServerInfoResponse server;
    server.set_json_info("{" + std::string(members) + "}");
    DiscoveryAnswers answers;
    answers.model_info = model.SerializeAsString();
    answers.server_info = server.SerializeAsString();
    answers.models = models.SerializeAsString();
    return read_discovery(answers);
  }
  EngineInfo info(std::string_view members) {
    Result<Discovery> found = read(members);
    EXPECT_TRUE(found) << found.error().message;
    return found ? std::move(found->info) : EngineInfo{};
  }
  Error failure(std::string_view members) {
    Result<Discovery> found = read(members);
    EXPECT_FALSE(found);
    return found ? Error{} : found.error();
  }

  ::sglang::runtime::v1::GetModelInfoResponse model;
  ::sglang::runtime::v1::ListModelsResponse models;
};

TEST_F(SglangDiscovery, NamesAndLengths) {
  EXPECT_EQ(info("").served_model_name, "m-name");
  EXPECT_EQ(info("").model_id, "/m");
  EXPECT_EQ(info("").max_model_len, 1000U);
  EXPECT_EQ(info(R"("served_model_name": "other")").served_model_name, "other");
  models.Clear();
  EXPECT_EQ(info("").served_model_name, "/m");
  EXPECT_EQ(info(R"("context_length": "77")").max_model_len, 77U);
  EXPECT_EQ(info(R"("context_length": null, "max_req_input_len": 66)").max_model_len, 66U);
}

TEST_F(SglangDiscovery, AdaptersAreCardsWithAParent) {
  EXPECT_FALSE(info("").capabilities.has(Capability::Lora));
  EXPECT_TRUE(info(R"("enable_lora": true)").capabilities.has(Capability::Lora));
  add_card("zoe", "/lora/zoe", "m-name", 0);
  add_card("ada", "/lora/ada", "m-name", 0);
  const EngineInfo found = info("");
  EXPECT_TRUE(found.capabilities.has(Capability::Lora));
  EXPECT_THAT(found.lora_adapters, ElementsAre("ada", "zoe"));
  EXPECT_THAT(found.lora_paths, ElementsAre("/lora/ada", "/lora/zoe"));
}

TEST_F(SglangDiscovery, SizesOfTheCache) {
  EngineInfo found = info(R"("page_size": 16, "dcp_size": 2, "max_total_num_tokens": 1001,
      "max_running_requests": 8, "dp_size": 4)");
  EXPECT_EQ(found.kv_block_size, 32U);
  EXPECT_EQ(found.total_kv_blocks, 63U);
  EXPECT_EQ(found.data_parallel_size, 4U);
  EXPECT_EQ(found.max_running_requests, 32U);
  EXPECT_EQ(found.max_batched_tokens, 1001U);
  found = info(R"("page_size": "16", "dp_size": 4, "enable_dp_attention": true,
      "max_running_requests": 8, "max_prefill_tokens": 512)");
  EXPECT_EQ(found.kv_block_size, 16U);
  EXPECT_EQ(found.data_parallel_size, 4U);
  EXPECT_EQ(found.max_running_requests, 8U);
  EXPECT_EQ(found.max_batched_tokens, 512U);
  EXPECT_EQ(failure(R"("dp_size": 0)").code, ErrorCode::EngineProtocol);
  EXPECT_EQ(failure(R"("dp_size": 99999999999)").code, ErrorCode::EngineProtocol);
}

TEST_F(SglangDiscovery, Roles) {
  for (const char* whole :
       {"", R"("disaggregation_mode": null)", R"("disaggregation_mode": "null")",
        R"("disaggregation_mode": "agg")"}) {
    EXPECT_EQ(info(whole).role, Leg::Whole) << whole;
  }
  const EngineInfo decode =
      info(R"("disaggregation_mode": "decode", "disaggregation_bootstrap_port": 8998)");
  EXPECT_EQ(decode.role, Leg::Decode);
  EXPECT_EQ(decode.bootstrap_port, 0);
  EXPECT_FALSE(decode.capabilities.has(Capability::PromptLogprobs));
  EXPECT_THAT(failure(R"("disaggregation_mode": "both")").message, HasSubstr("`both`"));
}

TEST_F(SglangDiscovery, WhereThePrefillMeetsTheDecode) {
  const auto host = [&](std::string_view members) {
    const EngineInfo found = info(
        std::string(R"("disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 9000, )")
            .append(members));
    EXPECT_EQ(found.role, Leg::Prefill);
    EXPECT_EQ(found.bootstrap_port, 9000);
    return found.bootstrap_host;
  };
  EXPECT_EQ(host(R"("host": "10.1.2.3")"), "10.1.2.3");
  for (const char* local : {"0.0.0.0", "::", "127.0.0.1", "localhost", "::1", "*"}) {
    EXPECT_EQ(host("\"host\": \"" + std::string(local) + '"'), "") << local;
    EXPECT_EQ(host("\"host\": \"" + std::string(local) + R"(", "dist_init_addr": "10.0.0.9:5000")"),
              "10.0.0.9");
  }
  EXPECT_EQ(host(R"("host": null, "dist_init_addr": "tcp://[fd00::7]:5000")"), "fd00::7");
  EXPECT_EQ(host(R"("dist_init_addr": "127.0.0.1:5000")"), "");
  EXPECT_THAT(failure(R"("disaggregation_mode": "prefill")").message,
              HasSubstr("disaggregation_bootstrap_port"));
  EXPECT_FALSE(read(R"("disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 70000)"));
}

TEST_F(SglangDiscovery, Dialects) {
  EXPECT_EQ(info(R"("kv_events": null)").dialect, "sglang-cumulative");
  EXPECT_EQ(info("").dialect, "sglang-cumulative+before-0.5.17");
  EXPECT_EQ(info(R"("dcp_comm_backend": "ag_rs")").dialect, "sglang-cumulative");
  EXPECT_EQ(info(R"("incremental_streaming_output": true, "enable_strict_thinking": true)").dialect,
            "sglang-incremental+strict-thinking+before-0.5.17");
  EXPECT_EQ(info(R"("kv_events": null, "enable_priority_scheduling": true)").dialect,
            "sglang-cumulative+priority");
  EXPECT_EQ(info(R"("kv_events": null, "enable_priority_scheduling": true,
                    "schedule_low_priority_values_first": true)")
                .dialect,
            "sglang-cumulative+low-priority-first");
}

TEST_F(SglangDiscovery, WhatIsNoEngineOfText) {
  EXPECT_EQ(failure("broken").code, ErrorCode::EngineProtocol);
  model.set_json_info(R"({"is_generation": false})");
  EXPECT_THAT(failure("").message, HasSubstr("does not generate"));
  model.set_json_info("[1");
  EXPECT_THAT(failure("").message, HasSubstr("GetModelInfo"));
  model.Clear();
  EXPECT_THAT(failure("").message, HasSubstr("model_path"));
  model.set_json_info(
      R"({"model_path": "/json", "reasoning_parser": "r", "tool_call_parser": null})");
  EXPECT_EQ(info("").model_id, "/json");
  EXPECT_EQ(info("").reasoning_parser, "r");
  EXPECT_EQ(
      info(R"("reasoning_parser": "s", "x": NaN, "y": [-Infinity, "NaN\" NaN"])").reasoning_parser,
      "s");
}

class SglangEventSources : public SglangDiscovery {
 protected:
  EngineInfo sources(std::string_view members, int ranks = 2) {
    return info(R"("page_size": 16, "dp_size": )" + std::to_string(ranks) + ", " +
                std::string(members));
  }
  void expect_none(std::string_view members, std::string_view why) {
    const EngineInfo found = sources(members);
    EXPECT_THAT(found.kv_event_sources, IsEmpty());
    ASSERT_THAT(found.warnings, SizeIs(1)) << members;
    EXPECT_THAT(found.warnings[0], HasSubstr(why));
  }
};

TEST_F(SglangEventSources, ADescriptorNamesTheFirstOfARange) {
  const EngineInfo found = sources(R"("kv_events": {"publisher": "zmq", "endpoint_host": "::",
      "endpoint_port_base": 5557, "topic": "kv", "block_size": 16, "dp_size": 2,
      "replay_endpoint_port_base": 5657},
      "kv_event_sources": [{"dp_rank": 0, "endpoint": "tcp://127.0.0.1:5557"}],
      "kv_events_config": "{\"buffer_steps\": 7}")");
  ASSERT_THAT(found.kv_event_sources, SizeIs(2));
  EXPECT_EQ(found.kv_event_sources[1], (KvEventSource{.endpoint = "tcp://[::]:5558",
                                                      .replay_endpoint = "tcp://[::]:5658",
                                                      .topic = "kv",
                                                      .data_parallel_rank = 1,
                                                      .buffer_steps = 7}));
}

TEST_F(SglangEventSources, EarlierDescriptorsLackTheReplay) {
  const EngineInfo found = sources(R"("kv_events": {"publisher": "zmq", "endpoint_host": "*",
      "endpoint_port_base": "5557", "topic": "", "block_size": 16, "dp_size": 2},
      "kv_events_config": "{\"publisher\": \"zmq\", \"replay_endpoint\": \"tcp://*:6000\"}")");
  ASSERT_THAT(found.kv_event_sources, SizeIs(2));
  EXPECT_EQ(found.kv_event_sources[1].replay_endpoint, "tcp://*:6001");
  EXPECT_EQ(found.kv_event_sources[1].buffer_steps, 10000U);
}

TEST_F(SglangEventSources, AListIsTakenAsItIs) {
  const EngineInfo found = sources(R"("kv_events": null, "kv_event_sources": [
      {"dp_rank": 1, "endpoint": "ipc:///b", "topic": "t", "block_size": 16},
      {"dp_rank": 0, "endpoint": "ipc:///a", "topic": "t", "block_size": 16,
       "replay_endpoint": "ipc:///r"}])");
  ASSERT_THAT(found.kv_event_sources, SizeIs(2));
  EXPECT_EQ(found.kv_event_sources[0].endpoint, "ipc:///a");
  EXPECT_EQ(found.kv_event_sources[0].replay_endpoint, "ipc:///r");
  EXPECT_EQ(found.kv_event_sources[1].endpoint, "ipc:///b");
  EXPECT_EQ(found.kv_event_sources[1].buffer_steps, 0U);
}

TEST_F(SglangEventSources, TheFlagsTextIsTheLastResort) {
  const EngineInfo found = sources(R"("kv_events_config":
      "{\"publisher\": \"zmq\", \"endpoint\": \"tcp://*:7000\", \"topic\": \"k\"}")");
  ASSERT_THAT(found.kv_event_sources, SizeIs(2));
  EXPECT_EQ(found.kv_event_sources[1].endpoint, "tcp://*:7001");
  EXPECT_EQ(found.kv_event_sources[1].replay_endpoint, "");
  EXPECT_EQ(
      sources(R"("kv_events_config": "{\"publisher\": \"zmq\"}")").kv_event_sources.at(0).endpoint,
      "tcp://*:5557");
  for (const char* off :
       {R"("kv_events_config": null)", R"("kv_events_config": "{}")",
        R"("kv_events": null, "kv_event_sources": [])", R"("kv_events_config": "not json")"}) {
    EXPECT_THAT(sources(off).kv_event_sources, IsEmpty()) << off;
    EXPECT_THAT(sources(off).warnings, IsEmpty()) << off;
  }
}

TEST_F(SglangEventSources, WhatCannotBeUsedIsLeftOutWithAReason) {
  expect_none(R"("kv_events": {"publisher": "nats"})", "publisher `nats`");
  expect_none(R"("kv_events": {"publisher": "zmq", "endpoint_host": "*",
      "endpoint_port_base": 70000})",
              "without host or port");
  expect_none(R"("kv_events": {"publisher": "zmq", "endpoint_host": "*", "block_size": 8,
      "endpoint_port_base": 5557})",
              "blocks of 8 tokens");
  expect_none(R"("kv_events": {"publisher": "zmq", "endpoint_host": "*", "block_size": 16,
      "endpoint_port_base": 5557, "dp_size": 3})",
              "3 ranks");
  expect_none(R"("kv_events": {"publisher": "zmq", "endpoint_host": "*", "block_size": 16,
      "endpoint_port_base": 65535, "dp_size": 2})",
              "port 65535 plus rank 1");
  expect_none(R"("nnodes": 2, "kv_events": {"publisher": "zmq"})", "several nodes");
  expect_none(R"("kv_event_sources": [{"dp_rank": 0, "endpoint": "tcp://h:1"}])", "1 sources");
  expect_none(R"("kv_event_sources": [{"dp_rank": 0, "endpoint": "tcp://h:1"},
                                      {"dp_rank": 0, "endpoint": "tcp://h:2"}])",
              "rank 0 twice");
  expect_none(R"("kv_event_sources": [{"dp_rank": 2, "endpoint": "tcp://h:1"}])", "no rank");
  expect_none(R"("kv_events_config": "{\"publisher\": \"zmq\", \"endpoint\": \"ipc:///x\"}")",
              "the endpoint `ipc:///x`");
}

TEST(SglangLoad, SharesOfTheRanksThatTellThem) {
  const auto load = [](std::string json) {
    ::sglang::runtime::v1::GetLoadResponse answer;
    answer.set_json_info(std::move(json));
    return read_load(answer.SerializeAsString());
  };
  const auto usage = load(R"([{"dp_rank": 1, "num_used_tokens": 25, "max_total_num_tokens": 100},
      {"dp_rank": 0, "token_usage": 0.5, "gen_throughput": NaN}, {"dp_rank": 2}, 7,
      {"num_used_tokens": 1, "max_total_num_tokens": 1},
      {"dp_rank": 3, "num_used_tokens": 300, "max_total_num_tokens": 100}])");
  ASSERT_TRUE(usage) << usage.error().message;
  EXPECT_EQ(*usage,
            (std::vector<KvUsage>{
                {.rank = 1, .share = 0.25}, {.rank = 0, .share = 0.5}, {.rank = 3, .share = 1.0}}));
  EXPECT_TRUE(load("[]")->empty());
  EXPECT_EQ(load("{}").error().code, ErrorCode::EngineProtocol);
  EXPECT_EQ(load("").error().code, ErrorCode::EngineProtocol);
}

}  // namespace
}  // namespace fairlead::engine::sglang_grpc
