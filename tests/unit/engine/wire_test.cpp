#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "engine/testing.hpp"
#include "net/child.hpp"
#include "net/testing.hpp"

// The client against grpcio servers that speak each generation of the wire
// (tests/e2e/wire/server.py).

namespace fairlead::engine {
namespace {

using testing::plain_request;
using testing::RecordingSink;

/// One generation's server in a child process and a client of it, in this test's reactor.
class WireServer {
 public:
  WireServer(net::Reactor& reactor, std::string generation, std::vector<std::string> flags = {})
      : reactor_(reactor), child_(arguments(std::move(generation), std::move(flags))) {
    const Result<json::Value> ready = json::parse(child_.read_line());
    const json::Value* address = ready ? ready->find("grpc") : nullptr;
    if (!address || !address->as_string()) {
      ADD_FAILURE() << "the server did not start";
      return;
    }
    authority_ = *address->as_string();
    reader_ = std::thread([this] { read(); });
  }
  ~WireServer() {
    in_turn([this] {
      streams_.clear();
      client_.reset();
    });
    child_.kill_now();
    if (reader_.joinable()) {
      reader_.join();
    }
  }

  /// The engine, probed; the client speaks its dialect from then on.
  EngineInfo probe() {
    std::optional<Result<EngineInfo>> info;
    net::TaskGroup group;
    in_turn([&] {
      const std::size_t colon = authority_.rfind(':');
      const auto port = static_cast<std::uint16_t>(std::stoi(authority_.substr(colon + 1)));
      client_ = make_client(dialer_, {.backend = Backend::Vllm,
                                      .authority = authority_,
                                      .addresses = {*net::Address::parse("127.0.0.1", port)},
                                      .dialect = {},
                                      .model = {}});
      group.spawn(probe_into(info));
    });
    EXPECT_TRUE(wait([&] { return info.has_value(); }));
    if (!info || !*info) {
      ADD_FAILURE() << (info ? info->error().message : "no answer");
      return {};
    }
    return **info;
  }
  /// Opens a stream; null and a failure when it is refused.
  EngineStream* open(const GenerateRequest& request, RecordingSink& sink) {
    in_turn([&] {
      auto opened = client_->open(request, sink);
      ASSERT_TRUE(opened) << opened.error().message;
      streams_.push_back(std::move(*opened));
    });
    return streams_.empty() ? nullptr : streams_.back().get();
  }
  /// Runs a request to its end.
  RecordingSink run(const GenerateRequest& request) {
    RecordingSink sink;
    open(request, sink);
    EXPECT_TRUE(wait([&] { return sink.ended(); }));
    close_all();
    return sink;
  }
  Result<> refusal(const GenerateRequest& request) {
    Result<> result;
    in_turn([&] {
      RecordingSink sink;
      auto opened = client_->open(request, sink);
      if (!opened) {
        result = std::unexpected(opened.error());
      }
    });
    return result;
  }
  void close_all() {
    in_turn([this] { streams_.clear(); });
  }
  void kill() { child_.kill_now(); }

  /// Python on a loaded machine needs its time.
  bool wait(const std::function<bool()>& done) {
    return net::testing::run_until(reactor_, done) || net::testing::run_until(reactor_, done) ||
           net::testing::run_until(reactor_, done);
  }
  /// Events of a kind that the server has reported.
  std::vector<json::Value> events(std::string_view kind) {
    const std::lock_guard lock(mutex_);
    std::vector<json::Value> found;
    for (const json::Value& event : events_) {
      if (*event.find("event")->as_string() == kind) {
        found.push_back(event);
      }
    }
    return found;
  }

 private:
  static std::vector<std::string> arguments(std::string generation,
                                            std::vector<std::string> flags) {
    std::vector<std::string> out{FAIRLEAD_PYTHON,
                                 std::string(FAIRLEAD_SOURCE_DIR) + "/tests/e2e/wire/server.py",
                                 "--generation", std::move(generation)};
    out.insert(out.end(), flags.begin(), flags.end());
    return out;
  }
  net::Task<> probe_into(std::optional<Result<EngineInfo>>& out) {
    out = co_await client_->probe(reactor_.now() + std::chrono::seconds(25));
  }
  void in_turn(const std::function<void()>& job) {
    bool done = false;
    reactor_.post([&] {
      job();
      done = true;
    });
    EXPECT_TRUE(wait([&] { return done; }));
  }
  void read() {
    while (true) {
      const std::string line = child_.read_line();
      if (line.empty()) {
        return;
      }
      Result<json::Value> event = json::parse(line);
      const std::lock_guard lock(mutex_);
      if (event) {
        events_.push_back(std::move(*event));
      }
    }
  }

  net::Reactor& reactor_;
  net::testing::Child child_;
  net::TcpDialer dialer_;
  std::string authority_;
  std::unique_ptr<EngineClient> client_;
  std::vector<std::unique_ptr<EngineStream>> streams_;
  std::mutex mutex_;
  std::vector<json::Value> events_;
  std::thread reader_;
};

constexpr const char* kGenerations[] = {"single", "early", "newest"};

TEST(VllmWire, EveryGenerationServesTheSameAnswers) {
  GenerateRequest sampled = plain_request({1, 2, 3}, 8);
  sampled.sampling.temperature = 0.7F;
  sampled.sampling.top_k = 40;
  sampled.sampling.seed = 7;
  GenerateRequest with_logprobs = plain_request({4, 5}, 4);
  with_logprobs.output.logprobs = 2;
  with_logprobs.output.prompt_logprobs = 0;
  std::map<std::string, std::vector<std::vector<TokenId>>> answers;
  for (const char* generation : kGenerations) {
    SCOPED_TRACE(generation);
    net::Reactor reactor;
    WireServer server(reactor, generation);
    server.probe();
    for (const GenerateRequest& request :
         {plain_request({1, 2, 3}, 8), sampled, with_logprobs, plain_request({9}, 1)}) {
      const RecordingSink sink = server.run(request);
      ASSERT_FALSE(sink.error) << sink.error->message;
      EXPECT_EQ(sink.prompt_tokens, request.prompt.size());
      EXPECT_EQ(sink.ids.size(), request.stop.max_tokens);
      EXPECT_EQ(sink.finish->reason, FinishReason::Length);
      EXPECT_EQ(sink.finish->cached_prompt_tokens.has_value(), generation == std::string("newest"));
      EXPECT_EQ(sink.logprobs.size(), request.output.logprobs ? sink.ids.size() : 0U);
      EXPECT_EQ(sink.prompt_logprobs.size(),
                request.output.prompt_logprobs ? request.prompt.size() : 0U);
      answers[generation].push_back(sink.ids);
    }
  }
  EXPECT_EQ(answers["single"], answers["newest"]);
  EXPECT_EQ(answers["early"], answers["newest"]);
}

TEST(VllmWire, EveryGenerationIsToldApart) {
  const std::map<std::string, std::string> dialects{{"single", "vllm.Generate"},
                                                    {"early", "vllm.Inference-before-0.32"},
                                                    {"newest", "vllm.Inference"}};
  for (const auto& [generation, dialect] : dialects) {
    net::Reactor reactor;
    WireServer server(reactor, generation, {"--tool-call-parser", "qwen3_xml"});
    const EngineInfo info = server.probe();
    EXPECT_EQ(info.dialect, dialect);
    EXPECT_EQ(info.served_model_name, generation == "single" ? "" : "wire");
    EXPECT_EQ(info.tool_call_parser, generation == "single" ? "" : "qwen3_xml");
    EXPECT_EQ(info.max_model_len, generation == "single" ? 0U : 4096U);
    EXPECT_EQ(info.proto_version, generation == "newest" ? "0.6.0" : "");
  }
}

TEST(VllmWire, StopTokensEndEveryGeneration) {
  for (const char* generation : kGenerations) {
    SCOPED_TRACE(generation);
    net::Reactor reactor;
    WireServer server(reactor, generation);
    server.probe();
    GenerateRequest request = plain_request({1, 2, 3}, 8);
    const TokenId third = server.run(request).ids.at(2);
    request.stop.stop_token_ids = {third};
    const RecordingSink sink = server.run(request);
    ASSERT_TRUE(sink.finish);
    EXPECT_EQ(sink.ids.size(), 3U);
    EXPECT_EQ(sink.finish->reason, FinishReason::Stop);
    EXPECT_EQ(sink.finish->stop_token_id, third);
  }
}

TEST(VllmWire, OnlyNewerGenerationsTakeNewerFields) {
  GenerateRequest request = plain_request();
  request.stop.thinking_token_budget = 5;
  for (const char* generation : kGenerations) {
    net::Reactor reactor;
    WireServer server(reactor, generation);
    server.probe();
    const Result<> refused = server.refusal(request);
    if (generation == std::string("newest")) {
      EXPECT_TRUE(refused);
    } else {
      ASSERT_FALSE(refused) << generation;
      EXPECT_EQ(refused.error().code, ErrorCode::UnsupportedField);
      EXPECT_EQ(refused.error().param, "thinking_token_budget");
    }
  }
}

TEST(VllmWire, LeavingStopsTheEngineInEveryGeneration) {
  for (const char* generation : kGenerations) {
    SCOPED_TRACE(generation);
    net::Reactor reactor;
    WireServer server(reactor, generation, {"--token-interval-ms", "20"});
    server.probe();
    RecordingSink sink;
    server.open(plain_request({1, 2, 3}, 4000), sink);
    ASSERT_TRUE(server.wait([&] { return sink.ids.size() >= 2; }));
    server.close_all();
    ASSERT_TRUE(server.wait([&] { return server.events("cancelled").size() == 1; }));
    EXPECT_EQ(*server.events("cancelled")[0].find("running")->as_int(), 0);
    if (generation != std::string("single")) {
      ASSERT_TRUE(server.wait([&] { return server.events("abort").size() == 1; }));
      EXPECT_EQ(json::dump(*server.events("abort")[0].find("ids")), R"(["req-1"])");
    }
  }
}

TEST(VllmWire, ErrorsOfTheServerArriveAsSuch) {
  net::Reactor reactor;
  WireServer server(reactor, "newest", {"--max-model-len", "16"});
  server.probe();
  const RecordingSink sink = server.run(plain_request(std::vector<TokenId>(20, 1)));
  ASSERT_TRUE(sink.error);
  EXPECT_EQ(sink.error->code, ErrorCode::EngineRejected);
  EXPECT_EQ(sink.error->message,
            "GenerateStream: this model's maximum context length is 16 tokens, but the prompt "
            "contains 20 input tokens (INVALID_ARGUMENT)");
}

TEST(VllmWire, AKilledServerIsADisconnect) {
  net::Reactor reactor;
  WireServer server(reactor, "newest", {"--token-interval-ms", "20"});
  server.probe();
  RecordingSink sink;
  server.open(plain_request({1, 2, 3}, 4000), sink);
  ASSERT_TRUE(server.wait([&] { return sink.ids.size() >= 2; }));
  server.kill();
  ASSERT_TRUE(server.wait([&] { return sink.ended(); }));
  ASSERT_TRUE(sink.error);
  EXPECT_EQ(sink.error->code, ErrorCode::EngineDisconnected) << sink.error->message;
  const RecordingSink next = server.run(plain_request());
  ASSERT_TRUE(next.error);
  EXPECT_TRUE(traits(next.error->code).worker_down) << next.error->message;
}

}  // namespace
}  // namespace fairlead::engine
