#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "api/serving_fixture.hpp"
#include "api/thresholds.hpp"
#include "base/json.hpp"

// The routes of kv mode: /v1/route, /busy_threshold and what /health says of views.

namespace fairlead::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

json::Value parsed(const FakeExchange& exchange) {
  auto body = json::parse(exchange.body);
  EXPECT_TRUE(body) << exchange.body;
  return body ? std::move(*body) : json::Value();
}

std::string text_of(const json::Value* value) { return value ? json::dump(*value) : "none"; }

std::string error_param(const FakeExchange& exchange) {
  const json::Value body = parsed(exchange);
  const json::Value* error = body.find("error");
  const json::Value* param = error ? error->find("param") : nullptr;
  return param && param->as_string() ? *param->as_string() : "none in " + exchange.body;
}

class KvRoutesTest : public ServingFixture {
 protected:
  KvRoutesTest() : ServingFixture({}, routing::RouterMode::Kv) {}

  // The views of the demo's set: worker 1 has rank 0 and, as its first blocks of 16, the prompt.
  void view(std::vector<engine::TokenId> prompt, routing::TargetState state) {
    auto caches = std::make_shared<routing::KvCaches>(
        kv::HashParams{.block_size = 16}, kv::IndexOptions{}, kv::ApproximateIndexOptions{},
        kv::ApproximateIndexOptions{});
    const auto id = caches->index.add_target();
    ASSERT_TRUE(id);
    std::vector<kv::SequenceHash> hashes;
    kv::prompt_hashes(prompt, caches->params, kv::hash_seed({}, {}), hashes);
    std::vector<kv::HeldBlock> held;
    for (const kv::SequenceHash hash : hashes) {
      held.push_back({.engine = hash + 1, .sequence = hash, .copies = {1}});
    }
    ASSERT_EQ(caches->index.restore(*id, held), kv::StoreOutcome::Stored);
    auto view = std::make_shared<routing::KvSetView>();
    view->caches = std::move(caches);
    view->places = {{.worker_id = 1, .slot = 0, .rank = 0}};
    view->states = {state};
    view->checkpoints.resize(1);
    view->by_ref = {*id};
    auto views = std::make_shared<routing::KvViewMap>();
    views->emplace(1, std::move(view));
    service_.set_kv_views(std::move(views));
  }

  static std::string ids_body(std::size_t count, const std::string& extra = {}) {
    std::string out = R"({"model":"demo","prompt":[)";
    for (std::size_t i = 0; i < count; ++i) {
      out += (i == 0 ? "" : ",") + std::to_string(10 + i);
    }
    return out + "]" + extra + "}";
  }
  static std::vector<engine::TokenId> ids(std::size_t count) {
    std::vector<engine::TokenId> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back(static_cast<engine::TokenId>(10 + i));
    }
    return out;
  }
};

TEST_F(KvRoutesTest, ARouteIsExplainedAndNothingIsDone) {
  serve_demo();
  view(ids(40), routing::TargetState::Live);
  const FakeExchange& exchange = post("/v1/route", ids_body(50));
  EXPECT_EQ(exchange.status, 200) << exchange.body;
  EXPECT_EQ(
      exchange.body,
      R"({"object":"route","model":"demo","choices":[{"index":0,"worker_id":1,"dp_rank":0,)"
      R"("endpoint":"http://engine:1","reason":"overlap","prompt_tokens":50,"block_size":16,)"
      R"("total_blocks":4,"overlap_blocks":{"device":2,"host":0,"disk":0},"confirmed_blocks":2,)"
      R"("cached_tokens":32,"prefill_tokens":18,"cost":4.2375,"candidates_total":1,)"
      R"("candidates":[{"worker_id":1,"dp_rank":0,"endpoint":"http://engine:1",)"
      R"("kv_view":"live","overloaded":false,"cost":4.2375,)"
      R"("overlap_blocks":{"device":2,"host":0,"disk":0},"terms":{"effective_blocks":2.0,)"
      R"("raw_prefill":3.125,"credit":2.0,"adjusted_prefill":1.125,"decode":3.0,"requests":0.0,)"
      R"("recompute":0.1125},"load":{"prefill_tokens":0,"active_blocks":0,"requests":0,)"
      R"("active_prefix_blocks":0}}]}]})");
  EXPECT_TRUE(engine_.streams.empty());
  EXPECT_EQ(router_.in_flight(1), 0u);
  EXPECT_THAT(get("/metrics").body, Not(HasSubstr("router_picks_total{reason=\"overlap\"} 1")));
}

TEST_F(KvRoutesTest, EveryPromptIsExplainedAndAChatAsOne) {
  serve_demo();
  view(ids(40), routing::TargetState::Live);
  const json::Value both =
      parsed(post("/v1/route", R"({"model":"demo","prompt":[[10,11],[12,13,14]],"n":2})"));
  const json::Array* choices = both.find("choices")->as_array();
  ASSERT_EQ(choices->size(), 2u);
  EXPECT_EQ(text_of((*choices)[0].find("prompt_tokens")), "2");
  EXPECT_EQ(text_of((*choices)[1].find("prompt_tokens")), "3");
  EXPECT_EQ(text_of((*choices)[1].find("reason")), "\"least_loaded\"");
  const json::Value chat =
      parsed(post("/v1/route", R"({"model":"alias","messages":[{"role":"user","content":"Hi"}]})"));
  ASSERT_EQ(chat.find("choices")->as_array()->size(), 1u);
  EXPECT_EQ(text_of(chat.find("model")), "\"demo\"");
}

TEST_F(KvRoutesTest, AnUnknownCacheIsSaidToBeUnknown) {
  serve_demo();
  const json::Value body = parsed(post("/v1/route", ids_body(50)));
  const json::Value& choice = (*body.find("choices")->as_array())[0];
  EXPECT_EQ(text_of(choice.find("block_size")), "null");
  EXPECT_EQ(text_of(choice.find("total_blocks")), "null");
  EXPECT_EQ(text_of((*choice.find("candidates")->as_array())[0].find("kv_view")), "null");
}

TEST_F(KvRoutesTest, ARouteHasTheErrorsOfARequest) {
  serve_demo();
  view(ids(40), routing::TargetState::Live);
  struct Row {
    std::string body;
    int status;
    std::string param;
  };
  const std::vector<Row> rows{
      {R"({"model":"demo"})", 400, "messages"},
      {R"({"model":"demo","prompt":"a","messages":[]})", 400, "prompt"},
      {R"({"model":"demo","prompt":"a","n":0})", 400, "n"},
      {R"({"model":"demo","prompt":"a","top_n":0})", 400, "top_n"},
      {R"({"model":"none","prompt":"a"})", 404, "model"},
  };
  for (const Row& row : rows) {
    for (const std::string& path : {std::string("/v1/route"), std::string("/v1/completions")}) {
      if (path == "/v1/completions" && row.param == "messages") {
        continue;  // there the missing field is the prompt
      }
      const FakeExchange& exchange = post(path, row.body);
      EXPECT_EQ(exchange.status, row.status) << path << row.body;
      if (path == "/v1/route") {
        EXPECT_EQ(error_param(exchange), row.param) << row.body;
      }
    }
  }
  EXPECT_EQ(post("/v1/route", "{").status, 400);
  EXPECT_EQ(start(request("POST", "/v1/route", "{}", {{"content-type", "text/plain"}})).status,
            415);
  const FakeExchange& pinned =
      start(request("POST", "/v1/route", ids_body(50),
                    {{"content-type", "application/json"}, {"x-dynamo-worker-instance-id", "99"}}));
  EXPECT_EQ(pinned.status, 503);
  const json::Value there = parsed(
      start(request("POST", "/v1/route", ids_body(50),
                    {{"content-type", "application/json"}, {"x-dynamo-worker-instance-id", "1"}})));
  EXPECT_EQ(text_of((*there.find("choices")->as_array())[0].find("reason")), "\"pinned\"");
  EXPECT_EQ(get("/v1/route").status, 405);
}

TEST_F(KvRoutesTest, ALargeBodyIsExplainedFromThePool) {
  serve_demo();
  view(ids(1600), routing::TargetState::Live);
  FakeExchange& exchange = post("/v1/route", ids_body(1600));
  ASSERT_GT(ids_body(1600).size(), 4096u);
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return exchange.finished(); }));
  EXPECT_EQ(exchange.status, 200) << exchange.body;
  EXPECT_THAT(exchange.body, HasSubstr(R"("device":100)"));
  EXPECT_THAT(exchange.body, HasSubstr(R"("cached_tokens":1584)")) << "the last one is computed";
}

TEST_F(KvRoutesTest, ThresholdsAreReadAndChangedOneByOne) {
  serve_demo();
  const auto all = [&] { return get("/busy_threshold").body; };
  constexpr std::string_view kPath = "/busy_threshold";
  EXPECT_EQ(all(), R"({"thresholds":[{"model":"demo","active_decode_blocks_threshold":null,)"
                   R"("active_prefill_tokens_threshold":null,)"
                   R"("active_prefill_tokens_threshold_frac":null}]})");
  const FakeExchange& set = post(
      std::string(kPath),
      R"({"model":"alias","active_decode_blocks_threshold":0.5,"active_prefill_tokens_threshold":7})");
  EXPECT_EQ(set.status, 200);
  EXPECT_EQ(set.body,
            R"({"model":"demo","active_decode_blocks_threshold":0.5,)"
            R"("active_prefill_tokens_threshold":7,"active_prefill_tokens_threshold_frac":null})");
  EXPECT_EQ(post(std::string(kPath), R"({"model":"demo","active_decode_blocks_threshold":null,)"
                                     R"("active_prefill_tokens_threshold_frac":1.5})")
                .body,
            R"({"model":"demo","active_decode_blocks_threshold":null,)"
            R"("active_prefill_tokens_threshold":7,"active_prefill_tokens_threshold_frac":1.5})");
  EXPECT_EQ(post(std::string(kPath), R"({"model":"demo"})").status, 200);
  EXPECT_THAT(
      post(std::string(kPath), R"({"model":"demo","active_decode_blocks_threshold":-0.0})").body,
      HasSubstr(R"("active_decode_blocks_threshold":0.0,)"));
  post(std::string(kPath), R"({"model":"demo","active_decode_blocks_threshold":null})");
  EXPECT_EQ(all(),
            R"({"thresholds":[{"model":"demo","active_decode_blocks_threshold":null,)"
            R"("active_prefill_tokens_threshold":7,"active_prefill_tokens_threshold_frac":1.5}]})");
}

TEST_F(KvRoutesTest, WrongThresholdsNameTheirField) {
  serve_demo();
  const std::vector<std::pair<std::string, std::string>> rows{
      {R"({})", "model"},
      {R"({"model":5})", "model"},
      {R"({"model":""})", "model"},
      {R"({"model":"demo","active_decode_blocks_threshold":1.01})",
       "active_decode_blocks_threshold"},
      {R"({"model":"demo","active_decode_blocks_threshold":-0.1})",
       "active_decode_blocks_threshold"},
      {R"({"model":"demo","active_decode_blocks_threshold":"0.5"})",
       "active_decode_blocks_threshold"},
      {R"({"model":"demo","active_decode_blocks_threshold":true})",
       "active_decode_blocks_threshold"},
      {R"({"model":"demo","active_prefill_tokens_threshold":1.5})",
       "active_prefill_tokens_threshold"},
      {R"({"model":"demo","active_prefill_tokens_threshold":-1})",
       "active_prefill_tokens_threshold"},
      {R"({"model":"demo","active_prefill_tokens_threshold":[1]})",
       "active_prefill_tokens_threshold"},
      {R"({"model":"demo","active_prefill_tokens_threshold_frac":1e7})",
       "active_prefill_tokens_threshold_frac"},
      {R"({"model":"demo","active_prefill_tokens_threshold_frac":-1})",
       "active_prefill_tokens_threshold_frac"},
      {R"({"model":"demo","active_decode_blocks":0.5})", "active_decode_blocks"},
  };
  for (const auto& [body, field] : rows) {
    const FakeExchange& exchange = post("/busy_threshold", body);
    EXPECT_EQ(exchange.status, 400) << body;
    EXPECT_EQ(error_param(exchange), field) << body;
  }
  EXPECT_THAT(get("/busy_threshold").body, Not(HasSubstr("1.5"))) << "nothing was set";
  EXPECT_EQ(post("/busy_threshold", R"({"model":"none"})").status, 404);
  EXPECT_EQ(post("/busy_threshold", "[]").status, 400);
  EXPECT_EQ(post("/busy_threshold", std::string(70'000, ' ') + R"({"model":"demo"})").status, 413);
}

TEST_F(KvRoutesTest, AnOverloadedFleetIsARefusalForBoth) {
  serve_demo();
  view(ids(40), routing::TargetState::Live);
  ASSERT_EQ(
      post("/busy_threshold", R"({"model":"demo","active_prefill_tokens_threshold":10})").status,
      200);
  EXPECT_EQ(post("/v1/completions", ids_body(200)).status, 0) << "runs";
  for (const std::string& path : {std::string("/v1/route"), std::string("/v1/completions")}) {
    const FakeExchange& refused = post(path, ids_body(50));
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(refused.headers.find("retry-after"), "1") << path;
  }
}

TEST_F(KvRoutesTest, HealthTellsOfViews) {
  serve_demo();
  EXPECT_THAT(get("/health").body,
              HasSubstr(R"("healthy":true,"circuit":"closed","taints":[],"kv_views":[]})"));
  view(ids(40), routing::TargetState::Stale);
  EXPECT_THAT(
      get("/health").body,
      HasSubstr(
          R"("healthy":true,"circuit":"closed","taints":[],"kv_views":[{"dp_rank":0,"state":"stale"}]})"));
}

TEST_F(KvRoutesTest, ADumpIsLinesUpToAnEnd) {
  serve_demo();
  view(ids(16), routing::TargetState::Live);
  FakeExchange& exchange = get("/v1/kv/dump");
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return exchange.finished(); }));
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.find("content-type"), "application/x-ndjson");
  std::vector<kv::SequenceHash> hashes;
  kv::prompt_hashes(ids(16), {.block_size = 16}, kv::hash_seed({}, {}), hashes);
  EXPECT_EQ(exchange.body,
            "{\"version\":2}\n"
            R"({"target":{"model":"demo","namespace":"","role":"Aggregated","block_size":16,)"
            R"("bigram":false,"worker_id":1,"dp_rank":0,"endpoint":"http://engine:1",)"
            R"("instance_id":"","state":"live","blocks":1,"checkpoint":null}})"
            "\n{\"blocks\":[[" +
                std::to_string(hashes[0] + 1) + "," + std::to_string(hashes[0]) +
                ",1,0,0,0]]}\n{\"end\":{\"targets\":1,\"blocks\":1}}\n");
  const FakeExchange& head = start(request("HEAD", "/v1/kv/dump"));
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.finished());
  EXPECT_EQ(post("/v1/kv/dump", "{}").status, 405);
}

TEST_F(KvRoutesTest, ADumpWaitsForItsClientAndIsOneAtATime) {
  serve_demo();
  view(ids(160'000), routing::TargetState::Live);  // 10,000 blocks
  FakeExchange& exchange = exchanges_.emplace_back(request("GET", "/v1/kv/dump"));
  exchange.unsent_bytes = 1U << 20U;
  in_turn([&] { tasks_.spawn(handler_(exchange)); });
  // The client takes what there is, and then nothing again.
  const auto take = [&] {
    in_turn([&] {
      exchange.drain();
      exchange.unsent_bytes = 1U << 20U;
    });
  };
  const auto lines = [&] { return std::ranges::count(exchange.body, '\n'); };
  EXPECT_EQ(lines(), 1);
  // The target, then its blocks, 4,096 in lines of 512 at a time, and the end.
  for (const std::ptrdiff_t expected : {2, 2 + 8, 2 + 16, 2 + 20, 2 + 20 + 1}) {
    EXPECT_EQ(get("/v1/kv/dump").status, 503);
    take();
    ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return lines() >= expected; }));
    in_turn([] {});
    EXPECT_EQ(lines(), expected);
    EXPECT_FALSE(exchange.finished());
  }
  take();
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return exchange.finished(); }));
  FakeExchange& next = get("/v1/kv/dump");
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return next.finished(); }));
  EXPECT_EQ(next.body, exchange.body);
}

class OtherModesTest : public ServingFixture {};

TEST_F(OtherModesTest, RoutesOfKvModeSaySo) {
  serve_demo();
  for (const FakeExchange* exchange :
       {&post("/v1/route", R"({"model":"demo","prompt":"a"})"), &get("/busy_threshold"),
        &get("/v1/kv/dump"), &post("/busy_threshold", R"({"model":"demo"})")}) {
    EXPECT_EQ(exchange->status, 400);
    EXPECT_THAT(exchange->body, HasSubstr("--router-mode kv"));
  }
  EXPECT_THAT(get("/health").body, Not(HasSubstr("kv_views")));
}

class NoAdminTest : public ServingFixture {
 protected:
  NoAdminTest() : ServingFixture({.admin = false}, routing::RouterMode::Kv) {}
};

TEST_F(NoAdminTest, AdminRoutesAreGone) {
  serve_demo();
  EXPECT_EQ(post("/v1/route", R"({"model":"demo","prompt":"a"})").status, 404);
  EXPECT_EQ(get("/busy_threshold").status, 404);
  EXPECT_EQ(get("/v1/kv/dump").status, 404);
  EXPECT_EQ(post("/busy_threshold", R"({"model":"demo"})").status, 404);
  EXPECT_EQ(get("/health").status, 200);
}

}  // namespace
}  // namespace fairlead::api
