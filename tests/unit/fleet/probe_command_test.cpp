#include "fleet/probe_command.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/json.hpp"
#include "engine/fake_server.hpp"
#include "grpc/health.pb.h"
#include "vllm/control.pb.h"

namespace fairlead::fleet {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

TEST(ProbeCommand, PrintsEverythingAsOneLineOfJson) {
  engine::EngineInfo info;
  info.model_id = "/models/\"m\"";
  info.served_model_name = "m";
  info.aliases = {"a", "b"};
  info.engine_version = "0.32.0";
  info.proto_version = "0.6.0";
  info.dialect = "vllm.Inference";
  info.instance_id = "life-1";
  info.max_model_len = 1024;
  info.kv_block_size = 32;
  info.total_kv_blocks = 80;
  info.max_running_requests = 8;
  info.max_batched_tokens = 2048;
  info.capabilities = {engine::Capability::Lora, engine::Capability::PromptLogprobs};
  info.lora_adapters = {"sql"};
  info.tool_call_parser = "qwen3_xml";
  info.reasoning_parser = "none";
  info.kv_event_sources = {{.endpoint = "tcp://*:5557",
                            .replay_endpoint = {},
                            .topic = "kv",
                            .data_parallel_rank = 0,
                            .buffer_steps = 10}};
  info.warnings = {"careful"};
  const std::string line = probe_json(*parse_endpoint("127.0.0.1:18701"), info);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const Result<json::Value> document = json::parse(line);
  ASSERT_TRUE(document) << line;
  EXPECT_EQ(*document->find("worker_id")->as_int(), 3458080756468540);
  EXPECT_EQ(*document->find("endpoint")->as_string(), "http://127.0.0.1:18701");
  EXPECT_EQ(*document->find("model_id")->as_string(), "/models/\"m\"");
  EXPECT_EQ(json::dump(*document->find("aliases")), R"(["a","b"])");
  EXPECT_EQ(*document->find("max_model_len")->as_int(), 1024);
  EXPECT_EQ(*document->find("total_kv_blocks")->as_int(), 80);
  const json::Array& capabilities = *document->find("capabilities")->as_array();
  ASSERT_EQ(capabilities.size(), 2U);
  EXPECT_EQ(*capabilities[0].as_string(), "prompt_logprobs");
  EXPECT_EQ(*capabilities[1].as_string(), "lora");
  EXPECT_EQ(*document->find("lora_adapters")->as_array()->front().as_string(), "sql");
  EXPECT_EQ(json::dump(*document->find("kv_event_sources")),
            R"([{"data_parallel_rank":0,"endpoint":"tcp://127.0.0.1:5557","replay_endpoint":"",)"
            R"("topic":"kv","buffer_steps":10}])");
  EXPECT_EQ(json::dump(*document->find("warnings")), R"(["careful"])");
}

/// A server in a thread of its own, since the probe blocks this one.
class ServerThread {
 public:
  ServerThread() : thread_([this] { serve(); }) {
    while (!ready_.load()) {
      std::this_thread::yield();
    }
  }
  ~ServerThread() {
    quit_ = true;
    thread_.join();
  }
  std::string url() const { return "http://" + address_; }

 private:
  void serve() {
    net::Reactor reactor;
    engine::testing::FakeServer server(reactor);
    ::grpc::health::v1::HealthCheckResponse health;
    health.set_status(::grpc::health::v1::HealthCheckResponse::SERVING);
    ::vllm::ModelInfo model;
    model.set_model_id("/models/m");
    model.set_served_model_name("m");
    model.set_supports_token_ids_input(true);
    ::vllm::ServerInfo info;
    info.set_engine_version("0.32.0");
    info.set_api_version("vllm");
    server.on("/grpc.health.v1.Health/Check", health.SerializeAsString());
    server.on("/vllm.Control/GetModelInfo", model.SerializeAsString());
    server.on("/vllm.Control/GetServerInfo", info.SerializeAsString());
    server.on("/vllm.Control/GetKvEventSources", std::string());
    address_ = server.address().to_string();
    ready_ = true;
    while (!quit_.load()) {
      reactor.run_turn(5ms);
    }
  }

  std::atomic<bool> ready_{false};
  std::atomic<bool> quit_{false};
  std::string address_;
  std::thread thread_;
};

TEST(ProbeCommand, AsksARealServer) {
  ServerThread server;
  const Result<std::string> line = probe_engine(server.url(), engine::Backend::Vllm, 8s);
  ASSERT_TRUE(line) << line.error().message;
  const Result<json::Value> document = json::parse(*line);
  ASSERT_TRUE(document);
  EXPECT_EQ(*document->find("served_model_name")->as_string(), "m");
  EXPECT_EQ(*document->find("dialect")->as_string(), "vllm.Inference");
  EXPECT_EQ(static_cast<WorkerId>(*document->find("worker_id")->as_int()), worker_id(server.url()));
}

TEST(ProbeCommand, ErrorsNameTheEndpoint) {
  const Result<std::string> tls = probe_engine("https://127.0.0.1:1", engine::Backend::Vllm, 8s);
  ASSERT_FALSE(tls);
  EXPECT_EQ(tls.error().code, ErrorCode::InvalidRequest);
  std::string url;
  {
    url = ServerThread().url();
  }
  const Result<std::string> gone = probe_engine(url, engine::Backend::Vllm, 8s);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, ErrorCode::EngineUnreachable);
  EXPECT_THAT(gone.error().message, HasSubstr(url));
  const Result<std::string> unknown =
      probe_engine("http://no-such-host.invalid:1", engine::Backend::Vllm, 8s);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace fairlead::fleet
