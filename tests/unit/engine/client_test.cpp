#include "engine/client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>

#include "engine/client_fixture.hpp"
#include "engine/fake_server.hpp"
#include "engine/testing.hpp"
#include "grpc/health.pb.h"
#include "vllm/control.pb.h"
#include "vllm/inference.pb.h"

namespace fairlead::engine {
namespace {

using net::grpc::StatusCode;
using testing::ClientTest;
using ::testing::ElementsAre;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::plain_request;
using testing::RecordingSink;
using ::testing::SizeIs;

constexpr const char* kHealth = "/grpc.health.v1.Health/Check";
constexpr const char* kModelInfo = "/vllm.Control/GetModelInfo";
constexpr const char* kServerInfo = "/vllm.Control/GetServerInfo";
constexpr const char* kSources = "/vllm.Control/GetKvEventSources";
constexpr const char* kAbort = "/vllm.Control/Abort";
constexpr const char* kStream = "/vllm.Inference/GenerateStream";
constexpr const char* kOldStream = "/vllm.Generate/GenerateStream";

std::string health(::grpc::health::v1::HealthCheckResponse::ServingStatus status) {
  ::grpc::health::v1::HealthCheckResponse response;
  response.set_status(status);
  return response.SerializeAsString();
}

std::string serving() { return health(::grpc::health::v1::HealthCheckResponse::SERVING); }

std::string model_info() {
  ::vllm::ModelInfo info;
  info.set_model_id("/models/m");
  info.set_served_model_name("m");
  info.set_supports_token_ids_input(true);
  return info.SerializeAsString();
}

std::string server_info(std::string_view engine_version = "0.32.0") {
  ::vllm::ServerInfo info;
  info.set_engine_version(std::string(engine_version));
  info.set_api_version("vllm");
  info.set_instance_id("life-1");
  info.set_max_model_len(1024);
  return info.SerializeAsString();
}

std::string prompt_message(std::uint32_t tokens) {
  ::vllm::GenerateResponse response;
  response.mutable_prompt_info()->set_num_prompt_tokens(tokens);
  return response.SerializeAsString();
}

std::string token_message(TokenId id) {
  ::vllm::GenerateResponse response;
  response.mutable_outputs()->set_num_tokens(1);
  response.mutable_outputs()->add_token_ids(id);
  return response.SerializeAsString();
}

std::string final_message(std::uint32_t total) {
  ::vllm::GenerateResponse response;
  ::vllm::FinishInfo& info = *response.mutable_outputs()->mutable_finish_info();
  info.set_num_output_tokens(total);
  info.set_finish_reason(::vllm::FinishInfo::STOP);
  return response.SerializeAsString();
}

std::vector<std::string> whole_stream() {
  return {prompt_message(3), token_message(5), token_message(6), final_message(2)};
}

class VllmClient : public ClientTest<FakeServer> {
 protected:
  void connect(std::string dialect = "vllm.Inference", std::string model = "m") {
    ClientOptions options;
    options.dialect = std::move(dialect);
    options.model = std::move(model);
    connect_with(std::move(options));
  }
  Error failure() {
    EXPECT_TRUE(wait([&] { return sink.ended(); }));
    return sink.error.value_or(Error{});
  }
  ::vllm::GenerateRequest received_request(std::string_view path = kStream) {
    ::vllm::GenerateRequest request;
    for (const FakeServer::Received& call : server.received) {
      if (call.path == path) {
        EXPECT_TRUE(request.ParseFromString(call.request));
      }
    }
    return request;
  }
};

TEST_F(VllmClient, StreamsOneGeneration) {
  server.on(kStream, {.messages = whole_stream(), .status = {}});
  connect();
  GenerateRequest request = plain_request();
  request.data_parallel_rank = 1;
  open(request);
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_FALSE(sink.error) << sink.error->message;
  EXPECT_EQ(sink.prompt_tokens, 3U);
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
  EXPECT_EQ(sink.finish->reason, FinishReason::Stop);
  EXPECT_EQ(received_request().model(), "m");
  EXPECT_EQ(received_request().request_id(), "req-1");
  EXPECT_EQ(server.received.back().rank, "1");
  close();
  EXPECT_EQ(server.count(kAbort), 0U);
  EXPECT_EQ(server.cancelled, 0);
}

TEST_F(VllmClient, NoEventComesInsideOpen) {
  server.on(kStream, {.messages = whole_stream(), .status = {}});
  connect();
  in_turn([&] {
    auto opened = client->open(plain_request(), sink);
    ASSERT_TRUE(opened);
    EXPECT_FALSE(sink.prompt_tokens || sink.ended());
    stream = std::move(*opened);
  });
  EXPECT_TRUE(wait([&] { return sink.ended(); }));
}

TEST_F(VllmClient, BadRequestsAreRefusedBeforeAnythingIsSent) {
  server.on(kStream, {.messages = whole_stream(), .status = {}});
  connect();
  in_turn([&] {
    GenerateRequest request = plain_request();
    request.kv_transfer_params = 1;
    const auto opened = client->open(request, sink);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().param, "kv_transfer_params");
  });
  EXPECT_TRUE(server.received.empty());
}

TEST_F(VllmClient, LeavingAnOpenStreamResetsItAndAborts) {
  server.on(kStream,
            {.messages = {prompt_message(3), token_message(5)}, .status = {}, .stay_open = true});
  server.on(kAbort, std::string());
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  close();
  ASSERT_TRUE(wait([&] { return server.cancelled == 1 && server.count(kAbort) == 1; }));
  ::vllm::AbortRequest abort;
  ASSERT_TRUE(abort.ParseFromString(server.received.back().request));
  EXPECT_THAT(abort.request_ids(), ElementsAre("req-1"));
  EXPECT_TRUE(wait([&] { return server.running == 0; }));
  EXPECT_FALSE(sink.ended());
}

TEST_F(VllmClient, ServersThatKnowNoAbortAreLeftAlone) {
  server.on(kOldStream,
            {.messages = {prompt_message(3), token_message(5)}, .status = {}, .stay_open = true});
  connect("vllm.Generate");
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  close();
  ASSERT_TRUE(wait([&] { return server.cancelled == 1; }));
  EXPECT_EQ(server.count(kAbort), 0U);
}

TEST_F(VllmClient, FailingAbortsHarmNothing) {
  server.on(kStream, {.messages = {token_message(5)}, .status = {}, .stay_open = true});
  server.on(kAbort, StatusCode::Internal, "engine call failed");
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  close();
  ASSERT_TRUE(wait([&] { return server.count(kAbort) == 1; }));
  server.on(kStream, {.messages = whole_stream(), .status = {}});
  RecordingSink second;
  in_turn([&] { stream = *client->open(plain_request(), second); });
  EXPECT_TRUE(wait([&] { return second.finish.has_value(); }));
}

TEST_F(VllmClient, WhatWasNeverSentIsNeverAborted) {
  server.on(kStream, {.messages = {}, .status = {}, .stay_open = true});
  server.on(kAbort, std::string());
  server.on(kHealth, serving());
  connect();
  in_turn([&] {
    stream = *client->open(plain_request(), sink);
    stream.reset();
  });
  // With a connection at hand as well.
  ASSERT_TRUE(check_health());
  in_turn([&] {
    stream = *client->open(plain_request(), sink);
    stream.reset();
  });
  ASSERT_TRUE(check_health());
  EXPECT_EQ(server.count(kStream), 0U);
  EXPECT_EQ(server.count(kAbort), 0U);
}

TEST_F(VllmClient, AFinishedStreamIsNotResetWhileItsStatusIsOnTheWay) {
  server.on(kStream, {.messages = whole_stream(), .status = {}, .wait_for_release = true});
  server.on(kAbort, std::string());
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  in_turn([&] { server.release(); });
  ASSERT_TRUE(wait([&] { return server.running == 0; }));
  EXPECT_EQ(server.cancelled, 0);
  EXPECT_EQ(server.count(kAbort), 0U);
}

TEST_F(VllmClient, AFinishedStreamWhoseStatusNeverComesIsResetInTheEnd) {
  server.on(kStream, {.messages = whole_stream(), .status = {}, .stay_open = true});
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  ASSERT_TRUE(wait([&] { return server.cancelled == 1; }));
}

TEST_F(VllmClient, AnErrorBehindTheTerminalMessageIsIgnored) {
  server.on(kStream, {.messages = whole_stream(), .status = {StatusCode::Internal, "late"}});
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ended() && server.running == 0; }));
  server.on(kHealth, serving());
  EXPECT_TRUE(check_health());
  EXPECT_FALSE(sink.error);
}

TEST_F(VllmClient, ServerErrorsAreMappedByTheirCode) {
  const std::pair<StatusCode, ErrorCode> cases[] = {
      {StatusCode::InvalidArgument, ErrorCode::EngineRejected},
      {StatusCode::Unavailable, ErrorCode::EngineUnreachable},
      {StatusCode::ResourceExhausted, ErrorCode::EngineExhausted},
      {StatusCode::Internal, ErrorCode::EngineUnknown},
      {StatusCode::Cancelled, ErrorCode::EngineCancelled},
  };
  connect();
  for (const auto& [status, code] : cases) {
    server.on(kStream, status, "what the engine says");
    RecordingSink one;
    in_turn([&] { stream = *client->open(plain_request(), one); });
    ASSERT_TRUE(wait([&] { return one.ended(); }));
    ASSERT_TRUE(one.error);
    EXPECT_EQ(one.error->code, code);
    EXPECT_EQ(one.error->message, "GenerateStream: what the engine says (" +
                                      std::string(net::grpc::status_name(status)) + ")");
    close();
  }
  EXPECT_EQ(server.count(kAbort), 0U);
}

TEST_F(VllmClient, AnErrorMidStreamFollowsTheTokens) {
  server.on(kStream, {.messages = {prompt_message(3), token_message(5)},
                      .status = {StatusCode::Internal, "engine failed during generation"}});
  connect();
  open();
  EXPECT_EQ(failure().code, ErrorCode::EngineUnknown);
  EXPECT_THAT(sink.ids, ElementsAre(5));
}

TEST_F(VllmClient, AnEndWithoutTerminalMessageIsADisconnect) {
  server.on(kStream, {.messages = {prompt_message(3), token_message(5)}, .status = {}});
  connect();
  open();
  EXPECT_EQ(failure().code, ErrorCode::EngineDisconnected);
  EXPECT_THAT(failure().message, HasSubstr("before its terminal message"));
}

TEST_F(VllmClient, ABrokenConnectionIsADisconnect) {
  server.on(kStream,
            {.messages = {prompt_message(3), token_message(5)}, .status = {}, .stay_open = true});
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  in_turn([&] { server.drop_connections(); });
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::EngineDisconnected) << error.message;
  EXPECT_TRUE(traits(error.code).worker_down);
}

TEST_F(VllmClient, ARefusedConnectionIsUnreachable) {
  server.stop();
  connect();
  open();
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::EngineUnreachable) << error.message;
  close();
}

TEST_F(VllmClient, NonsenseEndsTheStreamAndIsAborted) {
  server.on(kStream,
            {.messages = {prompt_message(4), token_message(5)}, .status = {}, .stay_open = true});
  server.on(kAbort, std::string());
  connect();
  open();
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::EngineProtocol);
  EXPECT_FALSE(traits(error.code).worker_down);
  ASSERT_TRUE(wait([&] { return server.cancelled == 1 && server.count(kAbort) == 1; }));
  EXPECT_TRUE(sink.ids.empty());
  close();
  EXPECT_EQ(server.count(kAbort), 1U);
}

TEST_F(VllmClient, AnUnknownServerOfTheOlderServiceIsFoundByTrying) {
  server.on(kOldStream, {.messages = whole_stream(), .status = {}});
  connect("");
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_FALSE(sink.error) << sink.error->message;
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
  EXPECT_EQ(received_request(kOldStream).sampling().top_k(), 0x7FFFFFFFU);
  close();
  // Remembered: what the older service cannot express is refused from now on.
  in_turn([&] {
    GenerateRequest request = plain_request();
    request.lora_name = "adapter";
    EXPECT_EQ(client->open(request, sink).error().code, ErrorCode::UnsupportedField);
  });
}

TEST_F(VllmClient, AServerOfNeitherServiceIsNotTriedForEver) {
  connect("");
  open();
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::EngineUnknown);
  EXPECT_THAT(error.message, HasSubstr("UNIMPLEMENTED"));
}

TEST_F(VllmClient, ARequestTheOlderServiceCannotExpressFailsInTheStream) {
  server.on(kOldStream, {.messages = whole_stream(), .status = {}});
  connect("");
  GenerateRequest request = plain_request();
  request.lora_name = "adapter";
  open(request);
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::UnsupportedField);
  EXPECT_EQ(error.param, "lora_name");
}

TEST_F(VllmClient, PausedStreamsGoOnAfterwards) {
  std::vector<std::string> messages{prompt_message(3)};
  for (TokenId id = 0; id < 1000; ++id) {
    messages.push_back(token_message(id));
  }
  messages.push_back(final_message(1000));
  server.on(kStream, {.messages = messages, .status = {}});
  connect();
  in_turn([&] {
    stream = *client->open(plain_request({1, 2, 3}, 1000), sink);
    stream->pause();
  });
  in_turn([&] { stream->resume(); });
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.ids.size(), 1000U);
  in_turn([&] {
    stream->pause();
    stream->resume();
  });
}

TEST_F(VllmClient, ProbesACurrentServer) {
  server.on(kHealth, serving());
  server.on(kModelInfo, model_info());
  server.on(kServerInfo, server_info());
  server.on(kSources, std::string());
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dialect, "vllm.Inference");
  EXPECT_EQ(info->served_model_name, "m");
  EXPECT_EQ(info->max_model_len, 1024U);
  EXPECT_EQ(info->instance_id, "life-1");
}

TEST_F(VllmClient, ProbesAnEarlyServerAndSpeaksItsDialect) {
  server.on(kHealth, serving());
  server.on(kModelInfo, model_info());
  server.on(kServerInfo, server_info("0.28.0"));
  server.on(kSources, std::string());
  server.on(kStream, {.messages = whole_stream(), .status = {}});
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dialect, "vllm.Inference-before-0.32");
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(received_request().sampling().top_k(), 0x7FFFFFFFU);
}

TEST_F(VllmClient, ProbesServersWithoutDiscovery) {
  server.on("/vllm.Generate/Generate", StatusCode::Internal, "prompt is required");
  connect("");
  Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dialect, "vllm.Generate");
  EXPECT_EQ(info->served_model_name, "");
  server.on("/vllm.Inference/Generate", StatusCode::InvalidArgument, "prompt is required");
  info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dialect, "vllm.Inference-before-0.32");
}

TEST_F(VllmClient, AProbeOfAnotherGrpcServerSaysSo) {
  server.on("/other.Service/Call", std::string());
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::EngineProtocol);
  EXPECT_THAT(info.error().message, HasSubstr("no vLLM engine"));
}

TEST_F(VllmClient, EventSourcesMayBeAskedOfAThirdService) {
  server.on(kHealth, serving());
  server.on(kModelInfo, model_info());
  server.on(kServerInfo, server_info());
  ::vllm::GetKvEventSourcesResponse sources;
  ::vllm::KvEventSource& source = *sources.add_sources();
  source.set_transport("zmq");
  source.set_encoding("msgpack");
  source.set_schema_version(1);
  source.set_endpoint("tcp://*:1");
  source.set_data_parallel_rank(0);
  server.on("/vllm.KvTransfer/GetKvEventSources", sources.SerializeAsString());
  connect("");
  Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_THAT(info->kv_event_sources, SizeIs(1));
  server.on("/vllm.KvTransfer/GetKvEventSources", StatusCode::Unimplemented, "");
  info = probe();
  ASSERT_TRUE(info);
  EXPECT_THAT(info->kv_event_sources, SizeIs(0));
}

TEST_F(VllmClient, ListsTheAdaptersOfAnEngineThatKnowsThem) {
  constexpr const char* kListLoras = "/vllm.Control/ListLoras";
  ::vllm::ModelInfo model;
  ASSERT_TRUE(model.ParseFromString(model_info()));
  model.set_supports_lora(true);
  ::vllm::ServerInfo info_message;
  ASSERT_TRUE(info_message.ParseFromString(server_info()));
  info_message.set_max_loras(2);
  ::vllm::ListLorasResponse loras;
  for (const char* name : {"sql", "", "chat", "sql"}) {
    ::vllm::LoraAdapter& adapter = *loras.add_adapters();
    adapter.set_lora_name(name);
    adapter.set_source_path(std::string("/loras/") + name);
  }
  server.on(kHealth, serving());
  server.on(kModelInfo, model_info());
  server.on(kServerInfo, info_message.SerializeAsString());
  server.on(kSources, std::string());
  server.on(kListLoras, loras.SerializeAsString());
  connect("");
  Result<EngineInfo> info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_THAT(info->lora_adapters, SizeIs(0)) << "not asked: the engine has no adapters";
  server.on(kModelInfo, model.SerializeAsString());
  info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->lora_adapters, (std::vector<std::string>{"chat", "sql"}));
  EXPECT_EQ(info->lora_paths, (std::vector<std::string>{"/loras/chat", "/loras/sql"}));
  // Servers without the call, or started without adapters.
  for (const StatusCode code : {StatusCode::Unimplemented, StatusCode::FailedPrecondition}) {
    server.on(kListLoras, code, "no");
    info = probe();
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_THAT(info->lora_adapters, SizeIs(0));
  }
  server.on(kListLoras, StatusCode::Internal, "not now");
  EXPECT_FALSE(probe());
  server.on(kListLoras, std::string("\xff"));
  EXPECT_EQ(probe().error().code, ErrorCode::EngineProtocol);
}

TEST_F(VllmClient, AFailingDiscoveryCallFailsTheProbe) {
  server.on(kHealth, serving());
  server.on(kModelInfo, StatusCode::Internal, "not now");
  connect("");
  const Result<EngineInfo> info = probe();
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().message, "GetModelInfo: not now (INTERNAL)");
}

TEST_F(VllmClient, HealthFollowsTheServer) {
  connect("");
  EXPECT_TRUE(check_health()) << "a server without the health service is alive when it answers";
  server.on(kHealth, serving());
  EXPECT_TRUE(check_health());
  server.on(kHealth, health(::grpc::health::v1::HealthCheckResponse::NOT_SERVING));
  Result<> healthy = check_health();
  ASSERT_FALSE(healthy);
  EXPECT_EQ(healthy.error().code, ErrorCode::EngineUnreachable);
  EXPECT_FALSE(probe());
  server.on(kHealth, std::string("\xff"));
  EXPECT_EQ(check_health().error().code, ErrorCode::EngineProtocol);
  server.on(kHealth, StatusCode::NotFound, "service not registered");
  healthy = check_health();
  ASSERT_FALSE(healthy);
  EXPECT_EQ(healthy.error().code, ErrorCode::EngineUnreachable);
  ::grpc::health::v1::HealthCheckRequest asked;
  ASSERT_TRUE(asked.ParseFromString(server.received.back().request));
  EXPECT_EQ(asked.service(), "vllm.Inference");
}

TEST_F(VllmClient, ChecksOfADeadServerFail) {
  server.on(kHealth, serving());
  connect();
  ASSERT_TRUE(check_health());
  server.stop();
  const Result<> healthy = check_health();
  ASSERT_FALSE(healthy);
  EXPECT_TRUE(traits(healthy.error().code).worker_down);
  server.listen();
  EXPECT_TRUE(wait([&] { return check_health().has_value(); }));
}

TEST_F(VllmClient, NewAddressesAreDialed) {
  server.on(kHealth, serving());
  in_turn([&] {
    ClientOptions options;
    options.authority = "engine:50051";
    client = make_client(dialer, std::move(options));
  });
  EXPECT_FALSE(check_health());
  in_turn([&] { client->set_addresses({server.address()}); });
  EXPECT_TRUE(check_health());
}

}  // namespace
}  // namespace fairlead::engine
