#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/client.hpp"
#include "engine/client_fixture.hpp"
#include "engine/fake_server.hpp"
#include "engine/testing.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine {
namespace {

using net::grpc::StatusCode;
using testing::ClientTest;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::plain_request;

std::string path(std::string_view rpc) {
  return std::string("/sglang.runtime.v1.SglangService/").append(rpc);
}

std::string health(bool healthy) {
  ::sglang::runtime::v1::HealthCheckResponse response;
  response.set_healthy(healthy);
  return response.SerializeAsString();
}

std::string tokens(std::vector<std::int32_t> ids, std::string finish = {}) {
  ::sglang::runtime::v1::GenerateResponse response;
  response.mutable_output_ids()->Add(ids.begin(), ids.end());
  if (!finish.empty()) {
    response.set_finished(true);
    (*response.mutable_meta_info())["finish_reason"] = std::move(finish);
  }
  return response.SerializeAsString();
}

constexpr const char* kStop = R"({"type": "stop", "matched": 2})";

class SglangClient : public ClientTest<FakeServer> {
 protected:
  void connect(std::string dialect = "sglang-incremental") {
    ClientOptions options;
    options.backend = Backend::Sglang;
    options.dialect = std::move(dialect);
    connect_with(std::move(options));
  }
  void serve_discovery(bool with_state) {
    ::sglang::runtime::v1::GetModelInfoResponse model;
    model.set_model_path("/m");
    ::sglang::runtime::v1::GetServerInfoResponse info;
    info.set_json_info(R"({"page_size": 16, "incremental_streaming_output": true,
        "enable_priority_scheduling": true, "startup_time": 4.5, "kv_events": null})");
    server.on(path("HealthCheck"), health(true));
    server.on(path("GetModelInfo"), model.SerializeAsString());
    server.on(path("GetServerInfo"), info.SerializeAsString());
    server.on(path("ListModels"), std::string());
    if (with_state) {
      ::sglang::runtime::v1::EngineStateSnapshot state;
      state.set_instance_id(17);
      server.on(path("WatchEngineState"),
                {.messages = {state.SerializeAsString()}, .status = {}, .stay_open = true});
    }
  }
  Error failure() {
    EXPECT_TRUE(wait([&] { return sink.ended(); }));
    return sink.error.value_or(Error{});
  }
};

TEST_F(SglangClient, StreamsOneGeneration) {
  server.on(path("Generate"), {.messages = {tokens({5}), tokens({6, 2}, kStop)}, .status = {}});
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_FALSE(sink.error) << sink.error->message;
  EXPECT_EQ(sink.prompt_tokens, 3U);
  EXPECT_THAT(sink.ids, ElementsAre(5, 6, 2));
  EXPECT_EQ(sink.finish->eos_token_id, 2U);
  close();
  EXPECT_EQ(server.count(path("Abort")), 0U);
}

TEST_F(SglangClient, TheModeOfTheProbeReachesOtherClients) {
  server.on(path("Generate"), {.messages = {tokens({5}), tokens({5, 2}, kStop)}, .status = {}});
  connect("sglang-cumulative");
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_THAT(sink.ids, ElementsAre(5, 2));
}

TEST_F(SglangClient, ProbesAndLeavesTheStreamOfStates) {
  serve_discovery(true);
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->instance_id, "17");
  EXPECT_EQ(info->dialect, "sglang-incremental+priority");
  EXPECT_TRUE(wait([&] { return server.cancelled == 1; }));
  // The client itself has learned it, too.
  server.on(path("Generate"), {.messages = {tokens({2}, kStop)}, .status = {}});
  GenerateRequest request = plain_request();
  request.priority = 4;
  open(request);
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ::sglang::runtime::v1::GenerateRequest sent;
  ASSERT_TRUE(sent.ParseFromString(server.received.back().request));
  EXPECT_EQ(sent.priority(), -4);
}

TEST_F(SglangClient, OlderEnginesDoNotTellTheirLife) {
  serve_discovery(false);
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->instance_id, "startup-4.5");
}

TEST_F(SglangClient, AnotherServerIsToldApart) {
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::EngineProtocol);
  EXPECT_THAT(info.error().message, HasSubstr("--grpc-port"));
}

TEST_F(SglangClient, Health) {
  server.on(path("HealthCheck"), health(true));
  connect();
  EXPECT_TRUE(check_health());
  server.on(path("HealthCheck"), health(false));
  EXPECT_EQ(check_health().error().code, ErrorCode::EngineUnreachable);
  server.on(path("HealthCheck"), StatusCode::Unavailable, "starting");
  EXPECT_EQ(check_health().error().code, ErrorCode::EngineUnreachable);
}

TEST_F(SglangClient, KvUsage) {
  ::sglang::runtime::v1::GetLoadResponse load;
  load.set_json_info(R"([{"dp_rank": 0, "num_used_tokens": 5, "max_total_num_tokens": 10}])");
  server.on(path("GetLoad"), load.SerializeAsString());
  connect();
  const auto usage = kv_usage();
  ASSERT_TRUE(usage);
  EXPECT_EQ(*usage, (std::vector<KvUsage>{{.rank = 0, .share = 0.5}}));
}

TEST_F(SglangClient, AStreamThatIsLeftIsAborted) {
  server.on(path("Generate"), {.messages = {tokens({5})}, .status = {}, .stay_open = true});
  server.on(path("Abort"), std::string());
  connect();
  open();
  ASSERT_TRUE(wait([&] { return !sink.ids.empty(); }));
  close();
  ASSERT_TRUE(wait([&] { return server.cancelled == 1 && server.count(path("Abort")) == 1; }));
  ::sglang::runtime::v1::AbortRequest abort;
  ASSERT_TRUE(abort.ParseFromString(server.received.back().request));
  EXPECT_EQ(abort.rid(), "req-1");
  EXPECT_FALSE(abort.abort_all());
}

TEST_F(SglangClient, AnEngineThatEndsByItselfIsNotAborted) {
  server.on(path("Generate"),
            {.messages = {tokens({7}, R"({"type": "abort", "message": "m", "status_code": 400})")},
             .status = {}});
  server.on(path("Abort"), std::string());
  server.on(path("HealthCheck"), health(true));
  connect();
  open();
  EXPECT_EQ(failure().code, ErrorCode::EngineRejected);
  EXPECT_TRUE(sink.ids.empty());
  close();
  EXPECT_TRUE(check_health());  // an abort would have come first
  EXPECT_EQ(server.count(path("Abort")), 0U);
}

TEST_F(SglangClient, NonsenseAbortsOnTheEngine) {
  server.on(path("Generate"), {.messages = {tokens({-7})}, .status = {}, .stay_open = true});
  server.on(path("Abort"), std::string());
  connect();
  open();
  EXPECT_EQ(failure().code, ErrorCode::EngineProtocol);
  EXPECT_TRUE(wait([&] { return server.count(path("Abort")) == 1; }));
}

TEST_F(SglangClient, AStreamCutShortKeepsItsTokens) {
  server.on(path("Generate"), {.messages = {tokens({5})}, .status = {}});
  connect();
  open();
  EXPECT_EQ(failure().code, ErrorCode::EngineDisconnected);
  EXPECT_THAT(sink.ids, ElementsAre(5));
}

TEST_F(SglangClient, FailuresByTheirStatus) {
  const std::pair<net::grpc::Status, ErrorCode> cases[] = {
      {{StatusCode::Internal, "top_p must be in (0, 1], got 3.0."}, ErrorCode::EngineRejected},
      {{StatusCode::Internal, "closed before a terminal response"}, ErrorCode::EngineUnknown},
      {{StatusCode::ResourceExhausted, "slow"}, ErrorCode::EngineExhausted},
      {{StatusCode::Cancelled, "Request aborted: req-1"}, ErrorCode::EngineCancelled},
      {{StatusCode::Unavailable, "gone"}, ErrorCode::EngineUnreachable},
  };
  connect();
  for (const auto& [status, code] : cases) {
    server.on(path("Generate"), {.messages = {tokens({5})}, .status = status});
    sink = {};
    open();
    EXPECT_EQ(failure().code, code) << status.message;
    close();
  }
}

TEST_F(SglangClient, NothingIsSentOfWhatCannotBeSaid) {
  connect();
  GenerateRequest request = plain_request();
  request.cache_salt = "salt";
  in_turn([&] {
    const auto opened = client->open(request, sink);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().param, "cache_salt");
  });
  EXPECT_TRUE(server.received.empty());
}

}  // namespace
}  // namespace fairlead::engine
