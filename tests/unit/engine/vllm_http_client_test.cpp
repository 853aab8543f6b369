#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "base/json.hpp"
#include "engine/client.hpp"
#include "engine/client_fixture.hpp"
#include "engine/fake_http_server.hpp"
#include "engine/testing.hpp"

namespace fairlead::engine {
namespace {

using testing::ClientTest;
using ::testing::ElementsAre;
using testing::FakeHttpServer;
using ::testing::HasSubstr;
using testing::plain_request;
using testing::RecordingSink;
using ::testing::SizeIs;

constexpr const char* kGenerate = "/inference/v1/generate";
constexpr const char* kDialect = "rust/vllm_xargs";

std::string token(int id) {
  return fmt::format(R"({{"request_id":"r","choices":[{{"index":0,"token_ids":[{}]}}]}})", id);
}

const std::string kFinish =
    R"({"request_id":"r","choices":[{"index":0,"finish_reason":"stop","token_ids":[6]}]})";

FakeHttpServer::Script stream_of(std::vector<std::string> events) {
  return {.status = 200, .body = {}, .events = std::move(events), .ask = {}};
}

FakeHttpServer::Script whole_stream() { return stream_of({token(5), kFinish, "[DONE]"}); }

class VllmHttpClient : public ClientTest<FakeHttpServer> {
 protected:
  void connect(std::string dialect = kDialect) {
    ClientOptions options;
    options.backend = Backend::VllmHttp;
    options.dialect = std::move(dialect);
    options.model = "m";
    connect_with(std::move(options));
  }
  /// The failure of one request.
  Error failure(const GenerateRequest& request = plain_request()) {
    sink = RecordingSink();
    open(request);
    EXPECT_TRUE(wait([&] { return sink.ended(); }));
    close();
    return sink.error.value_or(Error{});
  }
  void settle() {
    for (int i = 0; i < 8; ++i) {
      reactor.run_turn(std::chrono::milliseconds(1));
    }
  }
};

TEST_F(VllmHttpClient, StreamsOneGeneration) {
  server.on(kGenerate, whole_stream());
  connect();
  GenerateRequest request = plain_request();
  request.data_parallel_rank = 1;
  open(request);
  EXPECT_FALSE(stream->silent_until_done());
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_FALSE(sink.error) << sink.error->message;
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
  EXPECT_EQ(sink.finish->reason, FinishReason::Stop);
  ASSERT_THAT(server.received, SizeIs(1));
  EXPECT_EQ(server.received[0].headers.find("x-data-parallel-rank"), "1");
  const auto body = json::parse(server.received[0].body);
  ASSERT_TRUE(body);
  EXPECT_EQ(json::dump(*body->find("token_ids")), "[1,2,3]");
  EXPECT_EQ(json::dump(*body->find("model")), "\"m\"");
}

TEST_F(VllmHttpClient, NoEventComesInsideOpen) {
  server.stop();
  connect();
  in_turn([&] {
    auto opened = client->open(plain_request(), sink);
    ASSERT_TRUE(opened);
    EXPECT_FALSE(sink.ended());
    stream = std::move(*opened);
  });
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.error->code, ErrorCode::EngineUnreachable);
}

TEST_F(VllmHttpClient, WhatTheServerCannotBeToldIsRefusedBeforeAnythingIsSent) {
  connect("rust/");
  in_turn([&] {
    GenerateRequest request = plain_request();
    request.extra_args = *json::parse(R"({"a":1})");
    request.extra_args_required = true;
    const auto opened = client->open(request, sink);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code, ErrorCode::UnsupportedField);
  });
  settle();
  EXPECT_TRUE(server.received.empty());
  EXPECT_EQ(server.connections(), 0U);
}

TEST_F(VllmHttpClient, WholeAnswersAreReadWhereStreamsDoNotCarryThem) {
  server.on(kGenerate, R"({"choices":[{"index":0,"finish_reason":"length","token_ids":[7]}],)"
                       R"("kv_transfer_params":{"remote_engine_id":"e"}})");
  connect();
  GenerateRequest request = plain_request();
  request.kv_transfer_params = *json::parse(R"({"do_remote_decode":true})");
  open(request);
  EXPECT_TRUE(stream->silent_until_done());
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_TRUE(sink.finish);
  EXPECT_EQ(json::dump(sink.finish->kv_transfer_params), R"({"remote_engine_id":"e"})");
  EXPECT_FALSE(json::parse(server.received[0].body)->find("stream"));
}

TEST_F(VllmHttpClient, LeavingAnOpenStreamClosesItsConnection) {
  FakeHttpServer::Script script = stream_of({token(5)});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  close();
  ASSERT_TRUE(wait([&] { return server.left == 1 && server.running == 0; }));
  EXPECT_FALSE(sink.ended());
}

TEST_F(VllmHttpClient, LeavingBeforeTheFirstByteClosesItToo) {
  FakeHttpServer::Script script;
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return server.running == 1; }));
  close();
  ASSERT_TRUE(wait([&] { return server.left == 1; }));
}

TEST_F(VllmHttpClient, WhatIsLeftInItsTurnIsNeverSent) {
  server.on(kGenerate, whole_stream());
  connect();
  in_turn([&] {
    stream = *client->open(plain_request(), sink);
    stream.reset();
  });
  settle();
  EXPECT_TRUE(server.received.empty());
}

TEST_F(VllmHttpClient, FinishedStreamsGiveTheirConnectionBack) {
  FakeHttpServer::Script script = whole_stream();
  script.wait_for_release = true;  // the response ends after the stream was left
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  in_turn([&] { server.release(); });
  ASSERT_TRUE(wait([&] { return server.running == 0; }));
  settle();
  for (int i = 0; i < 3; ++i) {
    sink = RecordingSink();
    open();
    ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
    close();
    settle();
  }
  EXPECT_EQ(server.connections(), 1U);
  EXPECT_EQ(server.left, 0);
}

TEST_F(VllmHttpClient, AResponseThatNeverEndsIsClosedInTheEnd) {
  FakeHttpServer::Script script = whole_stream();
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  EXPECT_TRUE(wait([&] { return server.left == 1; }));
}

TEST_F(VllmHttpClient, RefusalsAreMappedByTheirStatus) {
  connect();
  const std::pair<int, ErrorCode> cases[] = {
      {400, ErrorCode::EngineRejected},    {404, ErrorCode::EngineUnreachable},
      {429, ErrorCode::EngineExhausted},   {500, ErrorCode::EngineUnknown},
      {503, ErrorCode::EngineUnreachable},
  };
  for (const auto& [status, code] : cases) {
    server.on(kGenerate, status, R"({"error":{"message":"what the engine says"}})");
    const Error error = failure();
    EXPECT_EQ(error.code, code) << status;
    EXPECT_THAT(error.message, HasSubstr("what the engine says"));
  }
}

TEST_F(VllmHttpClient, ErrorsInTheStreamFollowTheTokens) {
  FakeHttpServer::Script script = stream_of(
      {token(5), R"({"error": {"message": "m", "type": "InternalServerError", "code": 500}})"});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  EXPECT_EQ(failure().code, ErrorCode::EngineUnknown);
  EXPECT_THAT(sink.ids, ElementsAre(5));
  EXPECT_TRUE(wait([&] { return server.left == 1; }));
}

TEST_F(VllmHttpClient, AStreamThatMakesNoSenseIsClosed) {
  FakeHttpServer::Script script = stream_of({token(5), "rubbish", token(6)});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.error->code, ErrorCode::EngineProtocol);
  EXPECT_THAT(sink.ids, ElementsAre(5));
  // Before its user leaves it.
  EXPECT_TRUE(wait([&] { return server.left == 1; }));
}

TEST_F(VllmHttpClient, AStreamCutShortIsADisconnect) {
  connect();
  server.on(kGenerate, stream_of({token(5)}));
  EXPECT_EQ(failure().code, ErrorCode::EngineDisconnected);
  server.on(kGenerate, stream_of({token(5), "[DONE]"}));
  EXPECT_EQ(failure().code, ErrorCode::EngineDisconnected);
  FakeHttpServer::Script script = stream_of({token(5)});
  script.stay_open = true;
  server.on(kGenerate, script);
  sink = RecordingSink();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  server.stop();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.error->code, ErrorCode::EngineDisconnected);
  server.listen();
}

TEST_F(VllmHttpClient, ABrokenConnectionBehindTheFinishTakesNothingAway) {
  FakeHttpServer::Script script = stream_of({token(5), kFinish});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  settle();
  server.stop();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_TRUE(sink.finish);
  EXPECT_THAT(sink.ids, ElementsAre(5, 6));
  server.listen();
}

const std::string kLength =
    R"({"request_id":"r","choices":[{"index":0,"finish_reason":"length","token_ids":[6,7]}]})";
const std::string kUsage =
    R"({"choices":[],"usage":{"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}})";

TEST_F(VllmHttpClient, AFinishAndItsUsageComeInOnePiece) {
  server.on(kGenerate, stream_of({token(5), kLength, kUsage, "[DONE]"}));
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.chunks, 2);
  EXPECT_THAT(sink.ids, ElementsAre(5, 6, 7));
  EXPECT_EQ(sink.finish->cached_prompt_tokens, 2U);
}

TEST_F(VllmHttpClient, TokensDoNotWaitForTheUsageAndTheFinishDoes) {
  FakeHttpServer::Script script = stream_of({token(5), kLength});
  script.wait_for_release = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 3; }));
  EXPECT_FALSE(sink.ended());
  in_turn([&] {
    server.current->out().append("data: " + kUsage + "\n\n");
    server.current->commit();
  });
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_EQ(sink.finish->cached_prompt_tokens, 2U);
  close();
  in_turn([&] { server.release(); });
  ASSERT_TRUE(wait([&] { return server.running == 0; }));
  EXPECT_EQ(server.left, 0);
}

TEST_F(VllmHttpClient, AnEngineThatStallsBehindTheFinishIsNotWaitedForLong) {
  FakeHttpServer::Script script = stream_of({token(5), kLength});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 3; }));
  const net::TimePoint since = reactor.now();
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_GE(reactor.now() - since, std::chrono::milliseconds(900));
  ASSERT_TRUE(sink.finish);
  EXPECT_EQ(sink.finish->reason, FinishReason::Length);
  EXPECT_EQ(sink.finish->output_tokens, 3U);
  EXPECT_FALSE(sink.finish->cached_prompt_tokens);
  EXPECT_TRUE(wait([&] { return server.left == 1; })) << "though the stream is still held";
}

TEST_F(VllmHttpClient, APausedStreamIsNotEndedByAStall) {
  FakeHttpServer::Script script = stream_of({token(5), kLength});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 3; }));
  RecordingSink later;
  std::unique_ptr<EngineStream> second;
  in_turn([&] {
    stream->pause();
    second = *client->open(plain_request(), later);
  });
  ASSERT_TRUE(wait([&] { return later.ended(); }));
  EXPECT_FALSE(sink.ended());
  in_turn([&] {
    second.reset();
    stream->resume();
  });
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  EXPECT_TRUE(sink.finish);
  EXPECT_TRUE(wait([&] { return server.left == 2; }));
}

TEST_F(VllmHttpClient, AnAnswerOfAnotherKindIsAProtocolError) {
  server.on(kGenerate, R"({"choices":[]})");
  connect();
  const Error error = failure();
  EXPECT_EQ(error.code, ErrorCode::EngineProtocol);
  EXPECT_THAT(error.message, HasSubstr("application/json"));
}

/// A whole answer of about `bytes`.
std::string whole_answer(std::size_t bytes) {
  return R"({"request_id":"r","filler":")" + std::string(bytes, 'x') +
         R"(","choices":[{"index":0,"finish_reason":"length","token_ids":[5]}],)"
         R"("prompt_logprobs":[null,{"2":{"logprob":-1.0,"rank":1}},{"3":{"logprob":-2.0,"rank":1}}]})";
}

TEST_F(VllmHttpClient, AWholeAnswerIsToldWhileItIsGathered) {
  server.on(kGenerate, whole_answer(4'000'000));
  connect();
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 0;
  open(request);
  ASSERT_TRUE(wait([&] { return sink.ended(); }));
  ASSERT_FALSE(sink.error) << sink.error->message;
  EXPECT_THAT(sink.prompt_logprobs, SizeIs(3));
  EXPECT_GT(sink.most_unfinished, 4'000'000U);
  EXPECT_EQ(sink.unfinished, 0U) << "handed on";
}

TEST_F(VllmHttpClient, AWholeAnswerThatMayNotBeGatheredIsDropped) {
  server.on(kGenerate, whole_answer(30'000'000));
  connect();
  GenerateRequest request = plain_request();
  request.output.prompt_logprobs = 0;
  sink.allowed = 1'000'000;
  open(request);
  ASSERT_TRUE(wait([&] { return sink.refused; }));
  EXPECT_LT(sink.most_unfinished, 1'100'000U) << "one read more at the most";
  settle();
  EXPECT_FALSE(sink.ended()) << "who refused knows";
  EXPECT_FALSE(sink.prompt_tokens);
}

/// Pauses the stream inside each chunk.
class PausingSink final : public TokenSink {
 public:
  void on_tokens(const TokenChunk& chunk) override {
    ++chunks;
    finished = chunk.finish != nullptr;
    stream->pause();
  }
  void on_error(Error error) override { FAIL() << error.message; }

  EngineStream* stream = nullptr;
  int chunks = 0;
  bool finished = false;
};

TEST_F(VllmHttpClient, APausedStreamHoldsWhatHasArrived) {
  std::vector<std::string> events;
  for (int i = 0; i < 9; ++i) {
    events.push_back(token(i));
  }
  events.push_back(kFinish);
  events.emplace_back("[DONE]");
  server.on(kGenerate, stream_of(events));
  connect();
  PausingSink pausing;
  in_turn([&] {
    stream = *client->open(plain_request(), pausing);
    pausing.stream = stream.get();
  });
  for (int expected = 1; expected <= 10; ++expected) {
    ASSERT_TRUE(wait([&] { return pausing.chunks == expected; }));
    settle();
    ASSERT_EQ(pausing.chunks, expected);
    in_turn([&] { stream->resume(); });
  }
  EXPECT_TRUE(pausing.finished);
}

TEST_F(VllmHttpClient, APausedStreamStopsTheServer) {
  FakeHttpServer::Script script = stream_of({token(5)});
  script.stay_open = true;
  server.on(kGenerate, script);
  connect();
  open(plain_request({1}, 4'000'000));
  ASSERT_TRUE(wait([&] { return sink.ids.size() == 1; }));
  in_turn([&] { stream->pause(); });
  // Sent until the buffers between are full, and some more.
  const std::string event = "data: " + token(7) + "\n\n";
  std::size_t sent = 0;
  std::size_t waiting = 0;
  for (int calm = 0; calm < 20;) {
    in_turn([&] {
      if (waiting < 1024 * 1024) {
        for (int i = 0; i < 5000; ++i) {
          server.current->out().append(event);
        }
        sent += 5000;
        server.current->commit();
      }
    });
    const std::size_t before = waiting;
    settle();
    in_turn([&] { waiting = server.current->unsent(); });
    calm = waiting >= 1024 * 1024 && waiting == before ? calm + 1 : 0;
  }
  EXPECT_THAT(sink.ids, SizeIs(1));
  in_turn([&] { stream->resume(); });
  ASSERT_TRUE(wait([&] { return sink.ids.size() == sent + 1; }));
  EXPECT_EQ(sink.ids.back(), 7U);
}

TEST_F(VllmHttpClient, AWholeAnswerWaitsForAPausedStream) {
  server.on(kGenerate, R"({"choices":[{"index":0,"finish_reason":"length","token_ids":[7]}]})");
  connect();
  GenerateRequest request = plain_request();
  request.kv_transfer_params = json::Object();
  open(request);
  in_turn([&] { stream->pause(); });
  ASSERT_TRUE(wait([&] { return server.received.size() == 1 && server.running == 0; }));
  settle();
  EXPECT_FALSE(sink.ended());
  in_turn([&] { stream->resume(); });
  EXPECT_TRUE(wait([&] { return sink.finish.has_value(); }));
}

TEST_F(VllmHttpClient, NewAddressesServeLaterRequests) {
  FakeHttpServer other(reactor);
  server.on(kGenerate, whole_stream());
  other.on(kGenerate, whole_stream());
  connect();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  in_turn([&] { client->set_addresses({other.address()}); });
  sink = RecordingSink();
  open();
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  close();
  EXPECT_EQ(server.count(kGenerate), 1U);
  EXPECT_EQ(other.count(kGenerate), 1U);
}

TEST_F(VllmHttpClient, HealthIsWhatTheServerSays) {
  connect();
  server.on("/health", std::string());
  EXPECT_TRUE(check_health());
  server.on("/health", 503, "");
  EXPECT_EQ(check_health().error().code, ErrorCode::EngineUnreachable);
  server.stop();
  EXPECT_EQ(check_health().error().code, ErrorCode::EngineUnreachable);
  server.listen();
}

TEST_F(VllmHttpClient, MetricsTellHowFullTheCachesAre) {
  connect();
  EXPECT_TRUE(client->reports_kv_usage());
  EXPECT_FALSE(kv_usage()) << "no such route";
  const std::string line = "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.5\n";
  server.on("/metrics", line);
  const auto usage = kv_usage();
  ASSERT_TRUE(usage) << usage.error().message;
  EXPECT_THAT(*usage, ElementsAre(KvUsage{.rank = 1, .share = 0.5}));
  server.on("/metrics", std::string(std::size_t{5} << 20U, '#') + "\n" + line);
  EXPECT_FALSE(kv_usage()) << "too much";
  server.on("/metrics", std::string());
  EXPECT_TRUE(kv_usage()->empty());
}

/// A server that refuses requests without prompt, and complains about fields first.
class VllmHttpProbe : public VllmHttpClient {
 protected:
  using Refuse = std::function<std::string(const json::Value& sampling_params)>;

  void serve(Refuse refuse) {
    server.on("/health", std::string());
    server.on("/version", R"({"version":"0.32.0"})");
    server.on("/v1/models", R"({"data":[{"id":"m","root":"/m","max_model_len":8}]})");
    FakeHttpServer::Script script;
    script.ask = [refuse = std::move(refuse)](std::string_view body) {
      const auto request = json::parse(body);
      EXPECT_EQ(json::dump(*request->find("token_ids")), "[]");
      FakeHttpServer::Script out;
      out.status = 400;
      out.body = R"({"error":{"message":")" + refuse(*request->find("sampling_params")) + "\"}}";
      return out;
    };
    server.on(kGenerate, script);
  }
};

bool is_text(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value && value->as_string();
}

TEST_F(VllmHttpProbe, CA2AServerThatKnowsAKeyAdvertisesIt) {
  serve([](const json::Value& params) {
    return is_text(params, "vllm_xargs") || is_text(params, "logprob_token_ids") ? "type" : "empty";
  });
  connect("");
  const auto info = probe();
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->dialect, "python/vllm_xargs+logprob_token_ids");
  EXPECT_EQ(info->capabilities, (CapabilitySet{Capability::VllmXargs, Capability::LogprobTokenIds,
                                               Capability::PromptLogprobs}));
  EXPECT_EQ(info->engine_version, "0.32.0");
  EXPECT_EQ(info->max_model_len, 8U);
  // What was found out is used at once.
  server.on(kGenerate, whole_stream());
  GenerateRequest request = plain_request();
  request.extra_args = *json::parse(R"({"a":1})");
  request.extra_args_required = true;
  open(request);
  ASSERT_TRUE(wait([&] { return sink.finish.has_value(); }));
  EXPECT_THAT(server.received.back().body, HasSubstr(R"("vllm_xargs":{"a":1})"));
}

TEST_F(VllmHttpProbe, CA3AServerThatKnowsNoKeyHasNoCapability) {
  serve([](const json::Value&) { return "empty"; });
  connect("");
  EXPECT_EQ(probe()->dialect, "python/");
  // Nor one that forbids what it does not know.
  serve([](const json::Value& params) {
    return params.as_object()->size() > 1 ? "unknown" : "empty";
  });
  EXPECT_EQ(probe()->capabilities, CapabilitySet{Capability::PromptLogprobs});
}

TEST_F(VllmHttpProbe, FieldsAreAskedForOnceInAServersLife) {
  int asked = 0;
  std::string known = "vllm_xargs";
  serve([&](const json::Value& params) {
    ++asked;
    return is_text(params, known) ? "type" : "empty";
  });
  connect("");
  EXPECT_EQ(probe()->dialect, "python/vllm_xargs");
  EXPECT_GT(std::exchange(asked, 0), 0);
  EXPECT_EQ(probe()->dialect, "python/vllm_xargs");
  EXPECT_EQ(asked, 0) << "the same server is not troubled again";

  known = "extra_args";
  server.on("/version", R"({"version":"0.33.0"})");
  EXPECT_EQ(probe()->dialect, "python/extra_args") << "another version";
  known = "vllm_xargs";
  server.on("/health", 500, "");
  EXPECT_FALSE(probe());
  server.on("/health", 200, "");
  EXPECT_EQ(probe()->dialect, "python/vllm_xargs") << "it was away";

  // Away for less than the time between two looks: nothing failed, but the connections are new.
  asked = 0;
  server.stop();
  server.listen();
  EXPECT_TRUE(check_health());
  EXPECT_GT(asked, 0) << "the same one, as it turns out";
  known = "extra_args";
  server.stop();
  server.listen();
  const auto other = check_health();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::EngineUnreachable);
  EXPECT_EQ(probe()->dialect, "python/extra_args");
}

TEST_F(VllmHttpProbe, RefusalsThatCannotBeComparedLeaveTheVersions) {
  int count = 0;
  serve([&](const json::Value&) { return "refusal " + std::to_string(++count); });
  server.on("/version", R"({"version":"0.32.0","rust_frontend_version":"0.32.0"})");
  connect("");
  EXPECT_EQ(probe()->dialect, "rust/vllm_xargs+logprob_token_ids");
}

TEST_F(VllmHttpProbe, AClosedRouteNamesTheFlagThatOpensIt) {
  serve([](const json::Value&) { return ""; });
  server.on(kGenerate, 403,
            R"({"error":{"message":"Scale-out endpoints are disabled.","type":"x","code":403}})");
  connect("");
  const auto closed = probe();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, ErrorCode::EngineUnreachable);
  EXPECT_THAT(closed.error().message, HasSubstr("--enable-scale-out"));
  EXPECT_THAT(closed.error().message, HasSubstr("Scale-out endpoints are disabled."));
}

TEST_F(VllmHttpProbe, OtherServersAreToldApart) {
  serve([](const json::Value&) { return ""; });
  connect("");
  const std::pair<int, ErrorCode> cases[] = {{404, ErrorCode::EngineProtocol},
                                             {405, ErrorCode::EngineProtocol},
                                             {200, ErrorCode::EngineProtocol},
                                             {401, ErrorCode::EngineUnreachable},
                                             {500, ErrorCode::EngineUnknown}};
  for (const auto& [status, code] : cases) {
    server.on(kGenerate, status, "{}");
    const auto info = probe();
    ASSERT_FALSE(info) << status;
    EXPECT_EQ(info.error().code, code) << status;
  }
  server.on(kGenerate, 400, "{}");
  server.on("/v1/models", 404, "");
  EXPECT_EQ(probe().error().code, ErrorCode::EngineProtocol);
  server.on("/health", 500, "");
  EXPECT_EQ(probe().error().code, ErrorCode::EngineUnreachable);
}

}  // namespace
}  // namespace fairlead::engine
