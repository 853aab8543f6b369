#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/fake_server.hpp"
#include "engine/testing.hpp"
#include "engine/vllm_grpc/dialect.hpp"
#include "engine/vllm_grpc/request.hpp"
#include "vllm/control.pb.h"
#include "vllm/inference.pb.h"

// Traffic recorded from a real engine behind two releases of its frontend
// (tests/fixtures/captures/vllm). What is expected is read from the recorded JSON, independent of
// the schema under test.

namespace fairlead::engine {
namespace {

using testing::FakeServer;
using ::testing::HasSubstr;
using testing::RecordingSink;

std::string folder(std::string_view frontend) {
  return std::string(FAIRLEAD_SOURCE_DIR) + "/tests/fixtures/captures/vllm/" +
         std::string(frontend) + "/grpc/";
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string text_of(const json::Value* value) {
  return value && value->as_string() ? *value->as_string() : std::string();
}

/// The number at a path of keys, or 0: fields of default value are left out of the recordings.
double number_at(const json::Value& root, std::initializer_list<std::string_view> path) {
  const json::Value* value = &root;
  for (const std::string_view key : path) {
    value = value->find(key);
    if (!value) {
      return 0;
    }
  }
  double number = 0;
  if (!value->number(number) && value->as_string()) {
    number = std::strtod(value->as_string()->c_str(), nullptr);
  }
  return number;
}

const json::Array& array_at(const json::Value& root, std::initializer_list<std::string_view> path) {
  static const json::Array empty;
  const json::Value* value = &root;
  for (const std::string_view key : path) {
    value = value->find(key);
    if (!value) {
      return empty;
    }
  }
  return value->as_array() ? *value->as_array() : empty;
}

bool has(const json::Value& root, std::initializer_list<std::string_view> path) {
  const json::Value* value = &root;
  for (const std::string_view key : path) {
    value = value->find(key);
    if (!value) {
      return false;
    }
  }
  return true;
}

struct Capture {
  std::string name;
  std::string method;
  json::Value request_json;
  std::string request;
  std::vector<json::Value> response_jsons;
  std::vector<std::string> responses;
  std::string status;
  std::string status_message;
};

std::vector<Capture> load(std::string_view frontend) {
  const Result<json::Value> index = json::parse(read_file(folder(frontend) + "index.json"));
  if (!index) {
    ADD_FAILURE() << index.error().message;
    return {};
  }
  std::vector<Capture> captures;
  for (const json::Value& call : array_at(*index, {"calls"})) {
    Capture capture;
    capture.name = text_of(call.find("name"));
    capture.method = text_of(call.find("method"));
    capture.request_json = *call.find("request")->find("json");
    capture.request = read_file(folder(frontend) + text_of(call.find("request")->find("file")));
    for (const json::Value& response : array_at(call, {"responses"})) {
      capture.response_jsons.push_back(*response.find("json"));
      capture.responses.push_back(read_file(folder(frontend) + text_of(response.find("file"))));
    }
    capture.status = text_of(call.find("status")->find("code"));
    capture.status_message = text_of(call.find("status")->find("message"));
    captures.push_back(std::move(capture));
  }
  EXPECT_GT(captures.size(), 50U);
  return captures;
}

/// The bytes, read by our schema, are the recorded JSON, and nothing in them is unknown.
void expect_decodes(const std::string& type, const std::string& bytes, const json::Value& expected,
                    const std::string& where) {
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindMessageTypeByName(type);
  ASSERT_NE(descriptor, nullptr) << type;
  const auto* prototype =
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(descriptor);
  const std::unique_ptr<google::protobuf::Message> decoded(prototype->New());
  const std::unique_ptr<google::protobuf::Message> wanted(prototype->New());
  ASSERT_TRUE(decoded->ParseFromString(bytes)) << where;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json::dump(expected), wanted.get()).ok())
      << where;
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(*wanted, *decoded)) << where << "\n" << difference;
  EXPECT_EQ(decoded->GetReflection()->GetUnknownFields(*decoded).field_count(), 0) << where;
}

class VllmCaptures : public ::testing::TestWithParam<const char*> {};

TEST_P(VllmCaptures, EveryMessageDecodesToItsJson) {
  const auto* pool = google::protobuf::DescriptorPool::generated_pool();
  // Makes sure that both files are linked in.
  ::vllm::AbortRequest abort;
  ::vllm::GenerateRequest generate;
  for (const Capture& capture : load(GetParam())) {
    std::string method = capture.method.substr(1);
    method.replace(method.find('/'), 1, ".");
    const auto* descriptor = pool->FindMethodByName(method);
    ASSERT_NE(descriptor, nullptr) << method;
    expect_decodes(descriptor->input_type()->full_name(), capture.request, capture.request_json,
                   capture.name + " request");
    for (std::size_t i = 0; i < capture.responses.size(); ++i) {
      expect_decodes(descriptor->output_type()->full_name(), capture.responses[i],
                     capture.response_jsons[i], capture.name + " response " + std::to_string(i));
    }
  }
}

/// The request as this program would have made it, as far as the answer depends on it. Text prompts
/// stand for as many tokens as the engine counted.
GenerateRequest request_of(const Capture& capture) {
  const json::Value& from = capture.request_json;
  GenerateRequest request;
  request.request_id = text_of(from.find("request_id"));
  for (const json::Value& id : array_at(from, {"token_ids", "ids"})) {
    request.prompt.push_back(static_cast<TokenId>(*id.as_int()));
  }
  if (request.prompt.empty()) {
    double count = 1;
    if (!capture.response_jsons.empty()) {
      count = number_at(capture.response_jsons[0], {"prompt_info", "num_prompt_tokens"});
    }
    request.prompt.assign(static_cast<std::size_t>(count), 7);
  }
  request.stop.max_tokens =
      static_cast<std::uint32_t>(std::max(1.0, number_at(from, {"stopping", "max_new_tokens"})));
  if (has(from, {"response", "output_logprobs"})) {
    request.output.logprobs =
        static_cast<std::uint32_t>(number_at(from, {"response", "output_candidates", "top_n"}));
  }
  if (has(from, {"response", "prompt_logprobs"})) {
    request.output.prompt_logprobs =
        static_cast<std::uint32_t>(number_at(from, {"response", "prompt_candidates", "top_n"}));
  }
  return request;
}

/// Why this program, which always asks for ids of the whole prompt, must refuse a recorded answer.
std::string expected_refusal(const Capture& capture) {
  for (const json::Value& response : capture.response_jsons) {
    if (has(response, {"prompt_info"}) && has(capture.request_json, {"truncate_prompt_tokens"})) {
      return "prompt tokens where";
    }
    if (number_at(response, {"outputs", "num_tokens"}) > 0 &&
        array_at(response, {"outputs", "token_ids"}).empty()) {
      return "0 token ids where num_tokens is";
    }
  }
  return {};
}

net::grpc::StatusCode code_of(const std::string& name) {
  for (int code = 0; code <= 16; ++code) {
    if (net::grpc::status_name(static_cast<net::grpc::StatusCode>(code)) == name) {
      return static_cast<net::grpc::StatusCode>(code);
    }
  }
  ADD_FAILURE() << name;
  return net::grpc::StatusCode::Unknown;
}

void expect_logprobs(const std::vector<TokenLogprob>& actual, const json::Array& logprobs,
                     const json::Array& ranks, const json::Array& candidates, std::size_t offset) {
  if (logprobs.empty()) {
    return;
  }
  ASSERT_LE(offset + logprobs.size(), actual.size());
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    const TokenLogprob& entry = actual[offset + i];
    double logprob = 0;
    logprobs[i].number(logprob);
    EXPECT_EQ(entry.logprob, static_cast<float>(logprob));
    EXPECT_EQ(entry.rank, *ranks[i].as_int());
    const json::Array& tokens = array_at(candidates[i], {"tokens"});
    ASSERT_EQ(entry.candidates.size(), tokens.size());
    for (std::size_t j = 0; j < tokens.size(); ++j) {
      EXPECT_EQ(entry.candidates[j].id, number_at(tokens[j], {"id"}));
      EXPECT_EQ(entry.candidates[j].logprob, static_cast<float>(number_at(tokens[j], {"logprob"})));
      EXPECT_EQ(entry.candidates[j].rank, number_at(tokens[j], {"rank"}));
    }
  }
}

/// Compares what reached the sink with the recorded JSON.
void expect_success(const Capture& capture, const RecordingSink& sink) {
  ASSERT_FALSE(sink.error) << sink.error->message;
  ASSERT_TRUE(sink.finish);
  std::vector<TokenId> ids;
  for (const json::Value& response : capture.response_jsons) {
    const std::size_t before = ids.size();
    for (const json::Value& id : array_at(response, {"outputs", "token_ids"})) {
      ids.push_back(static_cast<TokenId>(*id.as_int()));
    }
    expect_logprobs(sink.logprobs, array_at(response, {"outputs", "logprobs"}),
                    array_at(response, {"outputs", "ranks"}),
                    array_at(response, {"outputs", "candidate_tokens"}), before);
    expect_logprobs(sink.prompt_logprobs, array_at(response, {"prompt_info", "logprobs"}),
                    array_at(response, {"prompt_info", "ranks"}),
                    array_at(response, {"prompt_info", "candidate_tokens"}), 0);
  }
  EXPECT_EQ(sink.ids, ids);
  const json::Value& finish = *capture.response_jsons.back().find("outputs")->find("finish_info");
  EXPECT_EQ(sink.finish->output_tokens, ids.size());
  const std::string reason = text_of(finish.find("finish_reason"));
  EXPECT_EQ(sink.finish->reason, reason == "LENGTH" ? FinishReason::Length
                                 : reason == "STOP" ? FinishReason::Stop
                                                    : FinishReason::Aborted);
  EXPECT_EQ(sink.finish->cached_prompt_tokens.has_value(), has(finish, {"num_cached_tokens"}));
  EXPECT_EQ(sink.finish->cached_prompt_tokens.value_or(0),
            number_at(finish, {"num_cached_tokens"}));
  EXPECT_EQ(sink.finish->stop_token_id.has_value(), has(finish, {"stop_token_id"}));
  EXPECT_EQ(sink.finish->stop_token_id.value_or(0), number_at(finish, {"stop_token_id"}));
  EXPECT_EQ(sink.finish->eos_token_id.has_value(), has(finish, {"eos_token_id"}));
  EXPECT_EQ(sink.finish->eos_token_id.value_or(0), number_at(finish, {"eos_token_id"}));
}

/// Replays a recorded call to the client.
void replay(net::Reactor& reactor, FakeServer& server, const std::unique_ptr<EngineClient>& client,
            const Capture& capture, RecordingSink& sink) {
  server.on(
      "/vllm.Inference/GenerateStream",
      {.messages = capture.responses, .status = {code_of(capture.status), capture.status_message}});
  std::unique_ptr<EngineStream> stream;
  reactor.post([&] {
    auto opened = client->open(request_of(capture), sink);
    ASSERT_TRUE(opened) << opened.error().message;
    stream = std::move(*opened);
  });
  EXPECT_TRUE(net::testing::run_until(reactor, [&] { return sink.ended(); }));
  bool closed = false;
  reactor.post([&] {
    stream.reset();
    closed = true;
  });
  EXPECT_TRUE(net::testing::run_until(reactor, [&] { return closed; }));
}

TEST_P(VllmCaptures, EveryGenerationDrivesTheClientToItsOutcome) {
  net::Reactor reactor;
  FakeServer server(reactor);
  net::TcpDialer dialer;
  std::unique_ptr<EngineClient> client;
  reactor.post([&] {
    client = make_client(dialer, {.backend = Backend::Vllm,
                                  .authority = server.address().to_string(),
                                  .addresses = {server.address()},
                                  .dialect = "vllm.Inference",
                                  .model = {}});
  });
  int succeeded = 0;
  int refused = 0;
  int failed = 0;
  for (const Capture& capture : load(GetParam())) {
    if (!capture.method.starts_with("/vllm.Inference/")) {
      continue;
    }
    SCOPED_TRACE(capture.name);
    RecordingSink sink;
    replay(reactor, server, client, capture, sink);
    if (const std::string refusal = expected_refusal(capture); !refusal.empty()) {
      ++refused;
      ASSERT_TRUE(sink.error);
      EXPECT_EQ(sink.error->code, ErrorCode::EngineProtocol);
      EXPECT_THAT(sink.error->message, HasSubstr(refusal));
    } else if (capture.status == "OK") {
      ++succeeded;
      expect_success(capture, sink);
    } else {
      ++failed;
      ASSERT_TRUE(sink.error);
      EXPECT_EQ(sink.error->code, capture.status == "INTERNAL"    ? ErrorCode::EngineUnknown
                                  : capture.status == "CANCELLED" ? ErrorCode::EngineCancelled
                                  : capture.status == "NOT_FOUND" ? ErrorCode::EngineUnreachable
                                                                  : ErrorCode::EngineRejected);
      EXPECT_EQ(sink.error->message,
                "GenerateStream: " + capture.status_message + " (" + capture.status + ")");
    }
  }
  EXPECT_GE(succeeded, 18);
  EXPECT_GE(refused, 5);
  EXPECT_GE(failed, 13);
  bool done = false;
  reactor.post([&] {
    client.reset();
    done = true;
  });
  EXPECT_TRUE(net::testing::run_until(reactor, [&] { return done; }));
}

TEST_P(VllmCaptures, TheRecordedEngineIsProbed) {
  net::Reactor reactor;
  FakeServer server(reactor);
  net::TcpDialer dialer;
  std::unique_ptr<EngineClient> client;
  for (const Capture& capture : load(GetParam())) {
    if (capture.name == "GetServerInfo" || capture.name == "GetModelInfo" ||
        capture.name == "GetKvEventSources") {
      server.on(capture.method, capture.responses.at(0));
    }
  }
  std::optional<Result<EngineInfo>> info;
  const auto probe = [](std::unique_ptr<EngineClient>& to, FakeServer& from, net::TcpDialer& with,
                        std::optional<Result<EngineInfo>>& out) -> net::Task<> {
    to = make_client(with, {.backend = Backend::Vllm,
                            .authority = from.address().to_string(),
                            .addresses = {from.address()},
                            .dialect = {},
                            .model = {}});
    out = co_await to->probe(net::Reactor::current()->now() + std::chrono::seconds(8));
  };
  net::testing::run_task(reactor, probe(client, server, dialer, info));
  ASSERT_TRUE(info && *info) << info->error().message;
  const EngineInfo& engine = **info;
  EXPECT_EQ(engine.model_id, "/srv/models/smollm2-135m");
  EXPECT_EQ(engine.served_model_name, "smollm2");
  EXPECT_EQ(engine.aliases, std::vector<std::string>{"smol-alias"});
  EXPECT_EQ(engine.engine_version, "0.32.0");
  EXPECT_EQ(engine.proto_version, GetParam() == std::string("frontend-0.33.0") ? "0.6.0" : "");
  EXPECT_EQ(engine.dialect, "vllm.Inference");
  EXPECT_EQ(engine.max_model_len, 1024U);
  EXPECT_EQ(engine.kv_block_size, 32U);
  EXPECT_EQ(engine.total_kv_blocks, 80U);
  EXPECT_EQ(engine.max_running_requests, 8U);
  EXPECT_EQ(engine.max_batched_tokens, 2048U);
  ASSERT_EQ(engine.kv_event_sources.size(), 1U);
  EXPECT_EQ(engine.kv_event_sources[0].endpoint, "tcp://*:27557");
  EXPECT_EQ(engine.kv_event_sources[0].replay_endpoint, "tcp://*:27558");
  EXPECT_EQ(engine.kv_event_sources[0].topic, "kv-events");
  EXPECT_TRUE(engine.warnings.empty());
  bool done = false;
  reactor.post([&] {
    client.reset();
    done = true;
  });
  EXPECT_TRUE(net::testing::run_until(reactor, [&] { return done; }));
}

INSTANTIATE_TEST_SUITE_P(Frontends, VllmCaptures,
                         ::testing::Values("frontend-0.32.0", "frontend-0.33.0"),
                         [](const auto& param) {
                           return param.index == 0 ? std::string("V0_32") : std::string("V0_33");
                         });

}  // namespace
}  // namespace fairlead::engine
