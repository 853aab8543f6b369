#include "api/router.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/request_ids.hpp"
#include "api/serving_fixture.hpp"
#include "base/json.hpp"

namespace fairlead::api {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kChat = "/v1/chat/completions";
constexpr std::string_view kCompletions = "/v1/completions";

std::string chat_body(const std::string& extra = {}) {
  return R"({"model":"demo","messages":[{"role":"user","content":"Hi"}])" + extra + "}";
}

std::string error_code(const FakeExchange& exchange) {
  const auto body = json::parse(exchange.body);
  const json::Value* error = body ? body->find("error") : nullptr;
  const json::Value* code = error ? error->find("code") : nullptr;
  return code && code->as_string() ? *code->as_string() : "none in " + exchange.body;
}

class ApiRouterTest : public ServingFixture {
 protected:
  std::vector<engine::TokenId> ids(std::string_view text) {
    std::vector<engine::TokenId> out;
    EXPECT_TRUE(demo_assets()->tokenizer->encode(text, false, out).has_value());
    return out;
  }
};

TEST_F(ApiRouterTest, RoutesMethodsAndTheirErrors) {
  serve_demo();
  struct Row {
    std::string method;
    std::string path;
    int status;
    std::string code;
  };
  const std::vector<Row> rows{
      {"GET", "/health", 200, ""},
      {"GET", "/live", 200, ""},
      {"GET", "/ready", 200, ""},
      {"GET", "/metrics", 200, ""},
      {"GET", "/v1/models", 200, ""},
      {"GET", "/v1/models/demo", 200, ""},
      {"GET", "/v1/models/alias", 200, ""},
      {"GET", "/v1/models/a/b", 200, ""},
      {"GET", "/v1/models/a/b/ready", 200, ""},
      {"GET", "/v1/models/demo/ready", 200, ""},
      {"HEAD", "/health", 200, ""},
      {"GET", "/v1/models/none", 404, "model_not_found"},
      {"GET", "/v1/models/none/ready", 404, "model_not_found"},
      {"GET", "/v1/models/", 404, "route_not_found"},
      {"GET", "/", 404, "route_not_found"},
      {"GET", "/v1/chat/completions/", 404, "route_not_found"},
      {"POST", "/v1/embeddings", 404, "route_not_found"},
      {"GET", std::string(kChat), 405, "method_not_allowed"},
      {"DELETE", std::string(kCompletions), 405, "method_not_allowed"},
      {"POST", "/health", 405, "method_not_allowed"},
      {"PUT", "/v1/models/demo", 405, "method_not_allowed"},
      {"OPTIONS", "/health", 204, ""},
      {"OPTIONS", std::string(kChat), 204, ""},
  };
  for (const Row& row : rows) {
    const FakeExchange& exchange = start(request(row.method, row.path));
    EXPECT_EQ(exchange.status, row.status) << row.method << " " << row.path;
    if (!row.code.empty()) {
      EXPECT_EQ(error_code(exchange), row.code) << row.method << " " << row.path;
    }
    if (row.status == 405 || row.status == 204) {
      const bool post = row.path == kChat || row.path == kCompletions;
      EXPECT_EQ(exchange.headers.find("allow"), post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    }
  }
}

TEST_F(ApiRouterTest, ModelsAreListedAsVllmDoes) {
  EXPECT_EQ(get("/v1/models").body, R"({"object":"list","data":[]})");
  EXPECT_EQ(get("/ready").status, 503);
  serve_demo(4096);
  EXPECT_EQ(get("/v1/models/demo").body,
            R"({"id":"demo","object":"model","created":1700000000,"owned_by":"fairlead",)"
            R"("root":"org/demo","parent":null,"max_model_len":4096})");
  EXPECT_THAT(get("/v1/models").body, HasSubstr(R"("id":"alias")"));
  EXPECT_EQ(get("/v1/models/demo/ready").body,
            R"({"id":"demo","ready":true,"files_loaded":true,"worker_sets":[{"role":"Aggregated",)"
            R"("workers":1,"healthy_workers":1}],"namespaces":{"":{"ready":true,)"
            R"("worker_types":{"aggregated":{"workers":1,"needs":[]}},"present":["aggregated"],)"
            R"("missing_worker_types":[]}}})");
}

TEST_F(ApiRouterTest, AKnownModelWithoutWorkersIsNotReady) {
  serve_demo();
  auto model = bare_model("demo");
  auto fleet = std::make_shared<fleet::Fleet>();
  fleet->models.push_back(model);
  service_.set_fleet(fleet);
  EXPECT_EQ(get("/v1/models").body, R"({"object":"list","data":[]})");
  EXPECT_EQ(get("/v1/models/demo").status, 503);
  EXPECT_EQ(get("/v1/models/demo/ready").status, 503);
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  const FakeExchange& refused = post(std::string(kChat), chat_body());
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_code(refused), "model_not_ready");
  EXPECT_EQ(refused.headers.find("retry-after"), "1");
}

TEST_F(ApiRouterTest, ADrainingServerRefusesWorkAndLives) {
  serve_demo();
  service_.set_draining();
  for (const std::string& path : {std::string(kChat), std::string(kCompletions)}) {
    const FakeExchange& refused = post(path, "not even JSON");
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(error_code(refused), "service_unavailable");
    EXPECT_EQ(refused.headers.find("connection"), "close");
  }
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/v1/models").status, 503);
  EXPECT_EQ(get("/live").status, 200);
  EXPECT_EQ(get("/metrics").status, 200);
}

TEST_F(ApiRouterTest, OnlyJsonIsRead) {
  serve_demo();
  const std::vector<std::pair<std::string, bool>> types{
      {"application/json", true},
      {"Application/JSON; charset=utf-8", true},
      {"application/json ;x=y", true},
      {"application/vnd.api+json", true},
      {"application/+json", false},
      {"text/plain", false},
      {"application/jsonp", false},
      {"", false},
      {"multipart/form-data; boundary=application/json", false}};
  for (const auto& [type, good] : types) {
    const FakeExchange& exchange =
        start(request("POST", std::string(kChat), R"({"model":5})", {{"content-type", type}}));
    EXPECT_EQ(exchange.status, good ? 400 : 415) << type;
  }
  net::http::Request bare = request("GET", std::string(kChat), chat_body());
  bare.method = "POST";
  EXPECT_EQ(start(std::move(bare)).status, 415) << "no content type at all";
}

TEST_F(ApiRouterTest, AStreamRunsFromTheEngineToTheClient) {
  serve_demo();
  FakeExchange& exchange = post(std::string(kChat), chat_body(R"(,"stream":true,"max_tokens":5)"));
  ASSERT_EQ(engine_.streams.size(), 1U);
  EXPECT_EQ(engine_.streams[0].request.prompt, ids("<|user|>Hi<|assistant|>"));
  EXPECT_EQ(engine_.streams[0].request.stop.max_tokens, 5U);
  EXPECT_TRUE(is_uuid(engine_.streams[0].request.request_id));
  EXPECT_FALSE(exchange.started());
  in_turn([&] { engine_.tokens(0, ids("Hello")); });
  EXPECT_THAT(exchange.take(), HasSubstr(R"("delta":{"content":"Hello"})"));
  in_turn([&] { engine_.finish(0); });
  EXPECT_TRUE(exchange.finished());
  const std::string rest = exchange.take();
  EXPECT_THAT(rest, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(service_.metrics("demo").inflight.get(), 0);
  EXPECT_EQ(router_.in_flight(1), 0U);
}

TEST_F(ApiRouterTest, OneDocumentRunsThroughTheSamePath) {
  serve_demo();
  net::http::Request with_id = request("POST", std::string(kCompletions),
                                       R"({"model":"alias","prompt":"Hi","request_id":"mine"})");
  with_id.headers.add("x-request-id", "echoed");
  with_id.headers.add("request-id", "0e37f4a1-8c4b-4d5e-9f60-718293a4b5c6");
  FakeExchange& exchange = start(std::move(with_id));
  ASSERT_EQ(engine_.streams.size(), 1U);
  EXPECT_EQ(engine_.streams[0].request.request_id, "0e37f4a1-8c4b-4d5e-9f60-718293a4b5c6");
  in_turn([&] {
    engine_.tokens(0, ids(" there"));
    engine_.finish(0, engine::FinishReason::Stop);
  });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.find("x-request-id"), "echoed");
  EXPECT_THAT(exchange.body, StartsWith(R"({"id":"cmpl-mine","object":"text_completion",)"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("model":"demo")"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("text":" there")"));
}

TEST_F(ApiRouterTest, AnEngineErrorBeforeOutputHasItsStatus) {
  serve_demo();
  FakeExchange& exchange = post(std::string(kChat), chat_body(R"(,"stream":true)"));
  in_turn([&] {
    engine_.streams[0].sink->on_prompt({.prompt_tokens = 3, .logprobs = {}});
    engine_.streams[0].sink->on_error({ErrorCode::EngineRejected, "too odd", {}});
  });
  EXPECT_EQ(exchange.status, 400);
  EXPECT_THAT(exchange.body, HasSubstr("too odd"));
  FakeExchange& busy = post(std::string(kChat), chat_body());
  in_turn([&] { engine_.streams[1].sink->on_error({ErrorCode::EngineExhausted, "secret", {}}); });
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(error_code(busy), "overloaded");
  EXPECT_EQ(busy.headers.find("retry-after"), "1");
}

TEST_F(ApiRouterTest, AnEngineErrorAfterOutputIsToldInBand) {
  serve_demo();
  FakeExchange& exchange = post(std::string(kChat), chat_body(R"(,"stream":true)"));
  in_turn([&] { engine_.tokens(0, ids("Hello")); });
  exchange.take();
  in_turn(
      [&] { engine_.streams[0].sink->on_error({ErrorCode::EngineDisconnected, "secret", {}}); });
  EXPECT_THAT(exchange.body, StartsWith(R"(data: {"error":{"message":)"));
  EXPECT_TRUE(exchange.body.ends_with("\n\ndata: [DONE]\n\n"));
  EXPECT_TRUE(exchange.finished());
}

TEST_F(ApiRouterTest, ALargeBodyIsPreparedOnThePool) {
  serve_demo();
  std::string text;
  while (text.size() < 8000) {
    text += "word ";
  }
  FakeExchange& exchange = post(std::string(kCompletions),
                                R"({"model":"demo","prompt":")" + text + R"(","max_tokens":3})");
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return !engine_.streams.empty(); }));
  EXPECT_EQ(engine_.streams[0].request.prompt, ids(text));
  in_turn([&] { engine_.finish(0); });
  EXPECT_EQ(exchange.status, 200);
  FakeExchange& wrong = post(std::string(kCompletions),
                             R"({"model":"demo","prompt":")" + text + R"(","max_tokens":0})");
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return wrong.finished(); }));
  EXPECT_EQ(wrong.status, 400);
}

TEST_F(ApiRouterTest, WhatRunsAtTheDrainsEndIsToldSo) {
  serve_demo();
  FakeExchange& begun = post(std::string(kChat), chat_body(R"(,"stream":true)"));
  FakeExchange& silent = post(std::string(kChat), chat_body(R"(,"stream":true)"));
  FakeExchange& unary = post(std::string(kChat), chat_body());
  in_turn([&] { engine_.tokens(0, ids("Hello")); });
  begun.take();
  in_turn([&] { api_.fail_all({ErrorCode::Draining, "The server is shutting down", {}}); });
  EXPECT_THAT(begun.take(), HasSubstr("The server is shutting down"));
  EXPECT_TRUE(begun.finished());
  EXPECT_EQ(silent.status, 503);
  EXPECT_EQ(unary.status, 503);
  // The engine does not know yet; what it still sends goes nowhere.
  in_turn([&] {
    engine_.tokens(0, ids("more"));
    engine_.finish(0);
    engine_.tokens(1, ids("more"));
    engine_.finish(2);
  });
  EXPECT_EQ(begun.take(), "");
  EXPECT_EQ(silent.status, 503);
  EXPECT_EQ(unary.status, 503);
}

TEST_F(ApiRouterTest, MetricsCountClientMistakesUnderClosedLabels) {
  serve_demo();
  post(std::string(kChat), "{");
  post(std::string(kChat), R"({"model":"evil","messages":[{"role":"user","content":"x"}]})");
  post(std::string(kChat), chat_body(R"(,"n":0,"stream":true)"));
  post(std::string(kChat), chat_body(R"(,"max_tokens":999999)"));
  const std::string text = get("/metrics").body;
  EXPECT_THAT(text, ::testing::Not(HasSubstr("evil")));
  EXPECT_THAT(text, HasSubstr(R"(requests_total{model="unknown",endpoint="chat_completions",)"
                              R"(request_type="unary",status="error",error_type="validation"} 2)"));
  EXPECT_THAT(text, HasSubstr(R"(requests_total{model="unknown",endpoint="chat_completions",)"
                              R"(request_type="unary",status="error",error_type="not_found"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(requests_total{model="demo",endpoint="chat_completions",)"
                              R"(request_type="unary",status="error",error_type="validation"} 1)"));
}

TEST(RequestIds, AreTheClientsWhenTheyAreUuids) {
  RequestIds ids(3);
  const std::string own = "0E37f4a1-8c4b-4d5e-9f60-718293a4b5c6";
  EXPECT_EQ(ids.next({{"request-id", own}}), own);
  EXPECT_EQ(ids.next({{"x-dynamo-request-id", own}}), own);
  for (const std::string& bad :
       {std::string(), std::string("x"), own + "0", own.substr(1), "g" + own.substr(1)}) {
    const std::string made = ids.next({{"request-id", bad}});
    EXPECT_NE(made, bad);
    EXPECT_TRUE(is_uuid(made)) << made;
    EXPECT_EQ(made[14], '4');
    EXPECT_THAT(std::string("89ab"), HasSubstr(std::string(1, made[19])));
  }
  EXPECT_NE(ids.next({}), ids.next({}));
}

}  // namespace
}  // namespace fairlead::api
