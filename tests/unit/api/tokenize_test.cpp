#include "api/openai/tokenize.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/serving_fixture.hpp"

// /tokenize and /detokenize: what bodies mean, what is answered, and what is refused.

namespace fairlead::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTokenize = "/tokenize";
constexpr const char* kDetokenize = "/detokenize";
constexpr const char* kHello = R"({"role":"user","content":"Hello"})";

std::string param_of(const FakeExchange& exchange) {
  const auto body = json::parse(exchange.body);
  const json::Value* error = body ? body->find("error") : nullptr;
  const json::Value* param = error ? error->find("param") : nullptr;
  return param && param->as_string() ? *param->as_string() : "none in " + exchange.body;
}

class TokenizeTest : public ServingFixture {
 protected:
  using ServingFixture::ServingFixture;

  static std::vector<engine::TokenId> ids(std::string_view text) {
    std::vector<engine::TokenId> out;
    EXPECT_TRUE(demo_assets()->tokenizer->encode(text, false, out));
    return out;
  }
  static std::string list(const std::vector<engine::TokenId>& ids) {
    return fmt::format("[{}]", fmt::join(ids, ","));
  }
  static std::string answer(std::string_view text, std::string_view context = "8192") {
    const auto tokens = ids(text);
    return fmt::format(R"({{"count":{},"max_model_len":{},"tokens":{},"token_strs":null}})",
                       tokens.size(), context, list(tokens));
  }
  void expect_refused(const char* path, const std::string& body, int status,
                      const std::string& param) {
    const FakeExchange& exchange = post(path, body);
    EXPECT_EQ(exchange.status, status) << body << exchange.body;
    EXPECT_EQ(param_of(exchange), param) << body << exchange.body;
  }
};

TEST_F(TokenizeTest, APromptBecomesIdsWithoutAnEngine) {
  serve_demo(100);
  const FakeExchange& exchange = post(kTokenize, R"({"model":"alias","prompt":"Hello a b"})");
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.body, answer("Hello a b", "100"));
  EXPECT_EQ(exchange.headers.find("content-type"), "application/json");
  EXPECT_TRUE(engine_.streams.empty());
  EXPECT_EQ(post(kTokenize, R"({"model":"demo","prompt":""})").body,
            R"({"count":0,"max_model_len":100,"tokens":[],"token_strs":null})");
}

TEST_F(TokenizeTest, SpellingsComeWithTheIds) {
  serve_demo();
  const FakeExchange& exchange =
      post(kTokenize, R"({"prompt":"<|user|> é","return_token_strs":true})");
  const auto tokens = ids("<|user|> é");
  std::string spellings;
  for (const engine::TokenId id : tokens) {
    spellings +=
        (spellings.empty() ? "\"" : ",\"") + demo_assets()->tokenizer->token_spelling(id) + "\"";
  }
  EXPECT_EQ(exchange.body,
            fmt::format(R"({{"count":{},"max_model_len":8192,"tokens":{},"token_strs":[{}]}})",
                        tokens.size(), list(tokens), spellings));
  EXPECT_THAT(exchange.body, HasSubstr(R"(["<|user|>","Ġ)"));
}

TEST_F(TokenizeTest, AChatIsRenderedAsForAGeneration) {
  serve_demo();
  const std::string chat = fmt::format(R"({{"messages":[{}])", kHello);
  EXPECT_EQ(post(kTokenize, chat + "}").body, answer("<|user|>Hello<|assistant|>"));
  EXPECT_EQ(post(kTokenize, chat + R"(,"add_generation_prompt":false})").body,
            answer("<|user|>Hello"));
  EXPECT_EQ(post(kTokenize, chat + R"(,"add_generation_prompt":false,)"
                                   R"("continue_final_message":true})")
                .body,
            answer("<|user|>Hello"));
  const FakeExchange& generated =
      post("/v1/chat/completions", fmt::format(R"({},"model":"demo"}})", chat));
  ASSERT_EQ(engine_.streams.size(), 1U) << generated.body;
  EXPECT_EQ(engine_.streams[0].request.prompt, ids("<|user|>Hello<|assistant|>"));
}

TEST_F(TokenizeTest, TheBodyOfAGenerationIsTakenAsItIs) {
  serve_demo();
  EXPECT_EQ(post(kTokenize, fmt::format(R"({{"model":"demo","messages":[{}],"temperature":0.5,)"
                                        R"("max_tokens":9,"stream":true,"n":2,"stop":["a"],)"
                                        R"("tool_choice":"auto","response_format":{{}}}})",
                                        kHello))
                .body,
            answer("<|user|>Hello<|assistant|>"));
  EXPECT_EQ(post(kTokenize, R"({"model":"demo","prompt":"a b","max_tokens":0,"echo":true})").body,
            answer("a b"));
  // Only what the prompt does not depend on: the count would be another one.
  expect_refused(kTokenize, R"({"prompt":"a","truncate_prompt_tokens":5})", 400,
                 "truncate_prompt_tokens");
}

TEST_F(TokenizeTest, TextsMayBeLongerThanTheContext) {
  serve_demo(4);
  EXPECT_EQ(post(kTokenize, R"({"prompt":"a b c d e f g h"})").body,
            answer("a b c d e f g h", "4"));
}

TEST_F(TokenizeTest, NoMoreIdsThanAnyContextHas) {
  constexpr std::size_t kMost = std::size_t{1} << 22;
  JsonReader reader;
  for (const std::size_t count : {kMost, kMost + 1}) {
    std::string body = R"({"tokens":[1)";
    body.reserve(2 * count + 32 + net::http::kBodyPadding);
    for (std::size_t i = 1; i < count; ++i) {
      body += ",1";
    }
    body += "]}";
    const auto parsed = openai::parse_detokenize(reader, body, {});
    ASSERT_EQ(parsed.has_value(), count == kMost);
    if (!parsed) {
      EXPECT_EQ(parsed.error().param, "tokens");
    }
  }
}

TEST_F(TokenizeTest, WrongBodiesNameTheirField) {
  serve_demo();
  const std::vector<std::pair<std::string, std::string>> rows{
      {R"({})", "messages"},
      {R"({"prompt":null,"messages":null})", "messages"},
      {R"({"prompt":"a","messages":[]})", "prompt"},
      {R"({"prompt":5})", "prompt"},
      {R"({"prompt":["a"]})", "prompt"},
      {R"({"prompt":[1,2]})", "prompt"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[{"role":"user"}]})", "messages[0].content"},
      {R"({"prompt":"a","model":5})", "model"},
      {R"({"prompt":"a","model":" "})", "model"},
      {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens"},
      {R"({"prompt":"a","return_token_strs":"yes"})", "return_token_strs"},
      {R"({"prompt":"a","tokens":[1]})", "tokens"},
      {R"({"prompt":"a","top_n":0,"tok":1})", "top_n"},
  };
  for (const auto& [body, param] : rows) {
    expect_refused(kTokenize, body, 400, param);
  }
  const std::vector<std::pair<std::string, std::string>> chats{
      {R"("continue_final_message":true)", "continue_final_message"},
      {R"("chat_template":"x")", "chat_template"},
      {R"("chat_template_kwargs":{"chat_template":"x"})", "chat_template_kwargs"},
      {R"("chat_template_kwargs":[])", "chat_template_kwargs"},
      {R"("documents":[1])", "documents"},
      {R"("mm_processor_kwargs":{"a":1})", "mm_processor_kwargs"},
      {R"("media_io_kwargs":{"a":1})", "media_io_kwargs"},
      {R"("tools":5)", "tools"},
      {R"("tools":[5])", "tools[0]"},
      {R"("tools":[{"type":"web"}])", "tools[0].type"},
      {R"("tools":[{"type":"function"}])", "tools[0].function"},
      {R"("tools":[{"function":{"name":"a"}},{"function":{}}])", "tools[1].function.name"},
      {R"("tools":[{"function":{"name":"a","parameters":1}}])", "tools[0].function.parameters"},
      {R"("return_token_str":true)", "return_token_str"},
  };
  for (const auto& [extra, param] : chats) {
    expect_refused(kTokenize, fmt::format(R"({{"messages":[{}],{}}})", kHello, extra), 400, param);
  }
  for (const char* body : {"", "[]", "{", R"({"prompt":"\ud800"})", "{\"prompt\":\"a\x01\"}"}) {
    EXPECT_EQ(post(kTokenize, body).status, 400) << body;
    EXPECT_EQ(post(kDetokenize, body).status, 400) << body;
  }
}

TEST_F(TokenizeTest, RoutesOfGenerationsDoNotKnowItsFields) {
  serve_demo();
  expect_refused("/v1/completions", R"({"model":"demo","prompt":"a","return_token_strs":true})",
                 400, "return_token_strs");
  expect_refused("/v1/completions", R"({"prompt":"a"})", 400, "model");
}

TEST_F(TokenizeTest, MoreValuesThanABodyMayHoldAreRefusedWhereverTheyEnd) {
  serve_demo();
  // The messages hold all there may be, so that what follows has none left.
  std::string body = R"({"model":"demo","messages":[{"role":"user","content":[)";
  for (std::size_t i = 0; i + 4 < kMaxValues; ++i) {
    body += i == 0 ? "\"\"" : ",\"\"";
  }
  body += "]}],";
  for (const char* last : {R"("tools":[]})", R"("documents":[]})"}) {
    for (const char* path : {kTokenize, "/v1/chat/completions"}) {
      if (std::string_view(last).contains("tools") && path != std::string_view(kTokenize)) {
        continue;  // read without a document
      }
      FakeExchange& exchange = post(path, body + last);
      ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return exchange.finished(); }));
      EXPECT_EQ(exchange.status, 400) << path << last;
      EXPECT_THAT(exchange.body, HasSubstr("holds more than 1048576 values")) << path << last;
    }
  }
}

TEST_F(TokenizeTest, IdsBecomeTextAgain) {
  serve_demo();
  const std::string text = "<|user|>Héllo \\\" wörld<|end|>";
  const FakeExchange& exchange =
      post(kDetokenize, R"({"model":"demo","tokens":)" + list(ids(text)) + "}");
  EXPECT_EQ(exchange.status, 200);
  std::string expected = R"({"prompt":)";
  json::append_string(expected, text);
  EXPECT_EQ(exchange.body, expected + "}");
  EXPECT_EQ(post(kDetokenize, R"({"tokens":[]})").body, R"({"prompt":""})");
  const auto parts = ids("é");
  if (parts.size() > 1) {
    EXPECT_EQ(post(kDetokenize, fmt::format(R"({{"tokens":[{}]}})", parts[0])).body,
              R"({"prompt":"�"})");
  }
  EXPECT_TRUE(engine_.streams.empty());
}

TEST_F(TokenizeTest, WrongIdsAreNamedByTheirPlace) {
  serve_demo();
  const std::vector<std::pair<std::string, std::string>> rows{
      {R"({})", "tokens"},
      {R"({"tokens":null})", "tokens"},
      {R"({"tokens":5})", "tokens"},
      {R"({"tokens":"a"})", "tokens"},
      {R"({"tokens":[[1]]})", "tokens[0]"},
      {R"({"tokens":[1,"2"]})", "tokens[1]"},
      {R"({"tokens":[1,2,true]})", "tokens[2]"},
      {R"({"tokens":[null]})", "tokens[0]"},
      {R"({"tokens":[1.5]})", "tokens[0]"},
      {R"({"tokens":[0,-1]})", "tokens[1]"},
      {R"({"tokens":[4294967296]})", "tokens[0]"},
      {R"({"tokens":[99999999999999999999999]})", "tokens[0]"},
      {R"({"tokens":[2611,2612]})", "tokens[1]"},
      {R"({"tokens":[4294967295]})", "tokens[0]"},
      {R"({"tokens":[1],"model":[]})", "model"},
      {R"({"tokens":[1],"prompt":"a"})", "prompt"},
  };
  for (const auto& [body, param] : rows) {
    expect_refused(kDetokenize, body, 400, param);
  }
  EXPECT_THAT(post(kDetokenize, R"({"tokens":[2611,2612]})").body,
              HasSubstr("`tokens[1]` is out of vocabulary: 2612; its size is 2612"));
}

TEST_F(TokenizeTest, IdsThatOnlyTheModelHasAreNoText) {
  serve_demo();
  auto assets = std::make_shared<chat::ModelAssets>(*demo_assets());
  assets->vocab_size = 3000;
  service_.set_assets({}, std::move(assets));
  const std::string hello = list(ids("Hello"));
  EXPECT_EQ(post(kDetokenize, R"({"tokens":[2999,)" + hello.substr(1) + "}").body,
            R"({"prompt":"Hello"})");
  expect_refused(kDetokenize, R"({"tokens":[3000]})", 400, "tokens[0]");
}

TEST_F(TokenizeTest, ModelsAreFoundAndReadyAsForGenerations) {
  const std::string body = R"({"model":"demo","prompt":"a"})";
  EXPECT_EQ(post(kTokenize, body).status, 503) << "nothing is served";
  EXPECT_EQ(post(kDetokenize, R"({"tokens":[1]})").status, 503);
  serve_demo();
  expect_refused(kTokenize, R"({"model":"none","prompt":"a"})", 404, "model");
  expect_refused(kDetokenize, R"({"model":"none","tokens":[]})", 404, "model");
  for (const char* model : {"", R"("model":null,)", R"("model":"",)"}) {
    EXPECT_EQ(post(kTokenize, fmt::format(R"({{{}"prompt":"a"}})", model)).status, 200) << model;
    EXPECT_EQ(post(kDetokenize, fmt::format(R"({{{}"tokens":[1]}})", model)).status, 200) << model;
  }
  auto fleet = std::make_shared<fleet::Fleet>(*service_.fleet());
  auto adapter = std::make_shared<fleet::Model>(*make_model("lora"));
  adapter->base_name = "demo";
  fleet->models.push_back(std::move(adapter));
  service_.set_fleet(fleet);
  EXPECT_EQ(post(kTokenize, R"({"prompt":"a"})").status, 200) << "adapters are no choice";
  fleet = std::make_shared<fleet::Fleet>(*fleet);
  fleet->models.push_back(bare_model("other"));
  service_.set_fleet(fleet);
  expect_refused(kTokenize, R"({"prompt":"a"})", 404, "model");
  expect_refused(kDetokenize, R"({"tokens":[1]})", 404, "model");
  EXPECT_EQ(post(kTokenize, R"({"model":"other","prompt":"a"})").status, 503) << "no worker";
  service_.set_draining();
  EXPECT_EQ(post(kTokenize, body).status, 503);
}

TEST_F(TokenizeTest, TheWayInIsThatOfTheOtherRoutes) {
  serve_demo();
  EXPECT_EQ(get(kTokenize).status, 405);
  EXPECT_EQ(get(kDetokenize).headers.find("allow"), "POST, OPTIONS");
  EXPECT_EQ(start(request("POST", kTokenize, "{}", {{"content-type", "text/plain"}})).status, 415);
  const FakeExchange& named =
      start(request("POST", kTokenize, R"({"prompt":"a"})",
                    {{"content-type", "application/json"}, {"x-request-id", "r-1"}}));
  EXPECT_EQ(named.headers.find("x-request-id"), "r-1");
}

TEST_F(TokenizeTest, LargeBodiesAreWorkedOnInThePool) {
  serve_demo();
  std::string text;
  while (text.size() < 40'000) {
    text += "word é ";
  }
  FakeExchange& exchange = post(kTokenize, R"({"prompt":")" + text + R"("})");
  EXPECT_FALSE(exchange.finished());
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return exchange.finished(); }));
  EXPECT_EQ(exchange.body, answer(text));
  FakeExchange& back = post(kDetokenize, R"({"tokens":)" + list(ids(text)) + "}");
  EXPECT_FALSE(back.finished());
  ASSERT_TRUE(net::testing::run_until(reactor_, [&] { return back.finished(); }));
  EXPECT_EQ(back.body, R"({"prompt":")" + text + R"("})");
}

TEST_F(TokenizeTest, RequestsAreCountedByEndpointAndNotAsGenerations) {
  serve_demo();
  post(kTokenize, R"({"prompt":"a"})");
  post(kDetokenize, R"({"tokens":[1]})");
  post(kDetokenize, R"({"tokens":[-1]})");
  FakeExchange& left = post(kTokenize, R"({"prompt":")" + std::string(50'000, 'a') + R"("})");
  EXPECT_FALSE(left.finished());
  in_turn([this] { tasks_.cancel(); });
  const std::string metrics = get("/metrics").body;
  const auto counted = [](const char* family, const char* labels) {
    return fmt::format("fairlead_frontend_{}{{{}", family, labels);
  };
  EXPECT_THAT(metrics,
              HasSubstr(counted("requests_total",
                                R"(model="demo",endpoint="tokenize",)"
                                R"(request_type="unary",status="success",error_type=""} 1)")));
  EXPECT_THAT(metrics,
              HasSubstr(counted("requests_started_total", R"(model="demo",endpoint="detokenize",)"
                                                          R"(request_type="unary"} 1)")));
  EXPECT_THAT(metrics,
              HasSubstr(counted("requests_total", R"(model="unknown",endpoint="detokenize",)"
                                                  R"(request_type="unary",status="error",)"
                                                  R"(error_type="validation"} 1)")));
  EXPECT_THAT(metrics, HasSubstr(counted("model_cancellation_total",
                                         R"(model="unknown",endpoint="tokenize",)"
                                         R"(request_type="unary"} 1)")));
  EXPECT_THAT(metrics, HasSubstr(counted("request_duration_seconds_count", R"(model="demo"} 0)")));
  EXPECT_THAT(metrics, HasSubstr(counted("inflight_requests", R"(model="demo"} 0)")));
  EXPECT_THAT(metrics, Not(HasSubstr(R"(endpoint="tokenize",request_type="stream")")));
}

class UnknownFieldsTest : public TokenizeTest {
 protected:
  UnknownFieldsTest() : TokenizeTest({.ignore_unsupported_fields = true}) {}
};

TEST_F(UnknownFieldsTest, AreDroppedWhenTheServerIsToldTo) {
  serve_demo();
  EXPECT_EQ(post(kTokenize, R"({"prompt":"a b","frobnicate":{"x":[1]}})").body, answer("a b"));
  EXPECT_EQ(post(kDetokenize, R"({"tokens":[],"frobnicate":1})").body, R"({"prompt":""})");
}

class TokenAnswerBounds : public ::testing::Test {
 protected:
  using TokenAnswer = openai::TokenAnswer;

  TokenAnswerBounds() {
    input_.models = served_models({{make_model("demo"), demo_assets()}});
    bounds_.answers = budget_;
  }
  TokenAnswer run(bool encode, std::string body, const std::stop_token& stop = {}) {
    body.reserve(body.size() + net::http::kBodyPadding);
    return encode ? openai::tokenize(input_, bounds_, body, reader_, stop)
                  : openai::detokenize(input_, bounds_, body, reader_, stop);
  }
  static std::string text_body(std::size_t words) {
    std::string out = R"({"return_token_strs":true,"prompt":")";
    for (std::size_t i = 0; i < words; ++i) {
      out += " a";
    }
    return out + "\"}";
  }
  static std::string ids_body(std::size_t count) {
    std::string out = R"({"tokens":[2610)";
    for (std::size_t i = 1; i < count; ++i) {
      out += ",2610";
    }
    return out + "]}";
  }

  openai::PrepareInput input_;
  std::shared_ptr<net::http::BodyBudget> budget_ =
      std::make_shared<net::http::BodyBudget>(std::size_t{1} << 22);
  serving::ServiceOptions bounds_;
  JsonReader reader_;
};

TEST_F(TokenAnswerBounds, AnAnswerIsNoLargerThanAllowed) {
  bounds_.answer_bytes = 100'000;
  for (const bool encode : {true, false}) {
    const auto body = [&](std::size_t count) {
      return encode ? text_body(count) : ids_body(count);
    };
    EXPECT_TRUE(run(encode, body(5'000)).body) << encode;
    const TokenAnswer refused = run(encode, body(50'000));
    ASSERT_FALSE(refused.body) << encode;
    EXPECT_EQ(refused.body.error().code, ErrorCode::AnswerTooLarge) << encode;
    EXPECT_THAT(refused.body.error().message, HasSubstr("--http-answer-limit-mb")) << encode;
  }
  EXPECT_EQ(budget_->used(), 0U);
}

TEST_F(TokenAnswerBounds, AnswersCountTogetherUntilTheyAreTaken) {
  for (const bool encode : {true, false}) {
    const std::string body = encode ? text_body(100'000) : ids_body(100'000);
    TokenAnswer first = run(encode, body);
    ASSERT_TRUE(first.body) << encode << first.body.error().message;
    EXPECT_GE(budget_->used(), first.body->size());
    std::vector<TokenAnswer> more;
    while (more.size() < 10 && (more.empty() || more.back().body)) {
      more.push_back(run(encode, body));
    }
    ASSERT_FALSE(more.back().body) << encode;
    EXPECT_EQ(more.back().body.error().code, ErrorCode::Overloaded);
    more.clear();
    first = {};
    EXPECT_EQ(budget_->used(), 0U);
  }
}

TEST_F(TokenAnswerBounds, WhatNobodyWaitsForEnds) {
  std::stop_source source;
  source.request_stop();
  for (const bool encode : {true, false}) {
    const TokenAnswer ended = run(encode, encode ? text_body(1) : ids_body(1), source.get_token());
    ASSERT_FALSE(ended.body);
    EXPECT_EQ(ended.body.error().code, ErrorCode::ClientGone);
  }
}

}  // namespace
}  // namespace fairlead::api
