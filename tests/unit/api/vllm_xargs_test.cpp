#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "api/openai/prepare.hpp"
#include "api/serving_fixture.hpp"
#include "engine/capability.hpp"
#include "engine/extra_args.hpp"

// One test per requirement of the discovery specification: XV, what a client may write; XF, what
// becomes of it on the way to the engine.

namespace fairlead::api::openai {
namespace {

using engine::Capability;
using observe::Endpoint;
using ::testing::HasSubstr;

class VllmXargs : public ::testing::Test {
 protected:
  static std::string body_of(Endpoint endpoint, const std::string& extra) {
    return (endpoint == Endpoint::ChatCompletions
                ? R"({"model":"m","messages":[{"role":"user","content":"Hello"}])"
                : R"({"model":"m","prompt":[5,6])") +
           (extra.empty() ? extra : "," + extra) + "}";
  }
  Prepared run(Endpoint endpoint, const std::string& extra) {
    std::string body = body_of(endpoint, extra);
    body.reserve(body.size() + net::http::kBodyPadding);
    PrepareInput input;
    input.endpoint = endpoint;
    input.options = options_;
    input.models = served_models({served_});
    return prepare(input, body, reader_);
  }
  engine::GenerateRequest good(Endpoint endpoint, const std::string& extra) {
    Prepared prepared = run(endpoint, extra);
    EXPECT_TRUE(prepared.spec.has_value()) << extra << ": " << prepared.spec.error().message;
    return prepared.spec ? std::move(prepared.spec->request) : engine::GenerateRequest();
  }
  engine::GenerateRequest good(const std::string& extra) {
    return good(Endpoint::ChatCompletions, extra);
  }
  /// What the engine gets of these `vllm_xargs`.
  std::string forwarded(const std::string& xargs) {
    return json::dump(good(R"("vllm_xargs":)" + xargs).extra_args);
  }
  /// Both endpoints refuse it, with and without dropping of unknown fields.
  void refused(const std::string& extra, const std::string& param, const std::string& text) {
    for (const bool ignoring : {false, true}) {
      options_.ignore_unsupported_fields = ignoring;
      for (const Endpoint endpoint : {Endpoint::ChatCompletions, Endpoint::Completions}) {
        const Prepared prepared = run(endpoint, extra);
        ASSERT_FALSE(prepared.spec.has_value()) << extra << " ignoring=" << ignoring;
        const Error& error = prepared.spec.error();
        EXPECT_EQ(traits(error.code).http_status, 400) << extra;
        EXPECT_EQ(error.param, param) << extra << ": " << error.message;
        EXPECT_THAT(error.message, HasSubstr(text)) << extra;
      }
    }
    options_.ignore_unsupported_fields = false;
  }
  void set_defaults(const std::string& extra_args) {
    auto copy = std::make_shared<chat::ModelAssets>(*served_.assets);
    copy->defaults.extra_args = *json::parse(extra_args);
    served_.assets = copy;
  }

  ServedModel served_{make_model("m", 64), demo_assets()};
  ApiOptions options_;
  JsonReader reader_;
};

TEST_F(VllmXargs, Xv1IsAFieldOfBothEndpointsAndIsNeverDropped) {
  for (const bool ignoring : {false, true}) {
    options_.ignore_unsupported_fields = ignoring;
    for (const Endpoint endpoint : {Endpoint::ChatCompletions, Endpoint::Completions}) {
      const auto request = good(endpoint, R"("vllm_xargs":{"diffusion_max_steps":4})");
      EXPECT_EQ(json::dump(request.extra_args), R"({"diffusion_max_steps":4})");
      EXPECT_TRUE(request.extra_args_required);
      EXPECT_TRUE(engine::required_capabilities(request).has(Capability::VllmXargs));
    }
  }
}

TEST_F(VllmXargs, Xv2MustBeAnObject) {
  for (const std::string value : {"[]", "[{\"a\":1}]", "\"a\"", "1", "true"}) {
    refused(R"("vllm_xargs":)" + value, "vllm_xargs", "must be an object");
  }
  refused(R"("vllm_xargs":null)", "vllm_xargs", "must be an object, not null");
}

TEST_F(VllmXargs, Xv2AnEmptyObjectAsksForNothing) {
  const auto request = good(R"("vllm_xargs":{})");
  EXPECT_TRUE(request.extra_args.is_null());
  EXPECT_FALSE(request.extra_args_required);
  EXPECT_TRUE(engine::required_capabilities(request).empty());
}

TEST_F(VllmXargs, Xv3TakesScalarsAndArraysOfThem) {
  for (const std::string xargs :
       {R"({"a":"text","b":1,"c":-0.5,"d":true,"e":false,"f":""})",
        R"({"list":["x",1,2.5,false],"none":[]})", R"({"":1,"ключ":"значение","a b":"\n\""})"}) {
    EXPECT_EQ(forwarded(xargs), xargs);
  }
  refused(R"("vllm_xargs":{"ok":1,"k":null})", "vllm_xargs.k", "not null");
  refused(R"("vllm_xargs":{"k":{}})", "vllm_xargs.k", "not an object");
  refused(R"("vllm_xargs":{"k":{"a":1}})", "vllm_xargs.k", "not an object");
  refused(R"("vllm_xargs":{"k":[1,null]})", "vllm_xargs.k", "not null");
  refused(R"("vllm_xargs":{"k":[1,[2]]})", "vllm_xargs.k", "not an array");
  refused(R"("vllm_xargs":{"k":[[]]})", "vllm_xargs.k", "not an array");
  refused(R"("vllm_xargs":{"k":[{"a":1}]})", "vllm_xargs.k", "not an object");
}

TEST_F(VllmXargs, Xv3NumbersStayWhatTheyAre) {
  const std::string xargs =
      R"({"max":9223372036854775807,"min":-9223372036854775808,"big":18446744073709551615,)"
      R"("list":[9007199254740993,0.1,1.0,1e+22,-0.0]})";
  EXPECT_EQ(forwarded(xargs), xargs);
  refused(R"("vllm_xargs":{"k":NaN})", "", "not valid JSON");
  refused(R"("vllm_xargs":{"k":1e999})", "", "not valid JSON");
}

TEST_F(VllmXargs, Xv3TheLastOfRepeatedKeysCounts) {
  EXPECT_EQ(forwarded(R"({"a":1,"b":2,"a":3})"), R"({"a":3,"b":2})");
  EXPECT_EQ(json::dump(good(R"("vllm_xargs":{"a":1},"vllm_xargs":{"b":2})").extra_args),
            R"({"b":2})");
  const auto emptied = good(R"("vllm_xargs":{"a":1},"vllm_xargs":{})");
  EXPECT_FALSE(emptied.extra_args_required);
}

TEST_F(VllmXargs, Xv3IsBounded) {
  const auto list = [](std::size_t count) {
    return fmt::format(R"("vllm_xargs":{{"k":[{}]}})", fmt::join(std::vector<int>(count, 7), ","));
  };
  EXPECT_EQ(good(list(16384)).extra_args.find("k")->as_array()->size(), 16384U);
  refused(list(16385), "vllm_xargs", "at most 65536 bytes and 16384 values");
  const auto text = [](std::size_t bytes) {
    return fmt::format(R"("vllm_xargs":{{"k":"{}"}})", std::string(bytes, 'x'));
  };
  constexpr std::size_t kAround = 8;  // {"k":""}
  EXPECT_EQ(json::dump(good(text(65536 - kAround)).extra_args).size(), 65536U);
  refused(text(65537 - kAround), "vllm_xargs", "at most 65536 bytes and 16384 values");
  good(list(16384) + R"(,"n":32)");
  refused(list(16384) + R"(,"n":33)", "vllm_xargs", "at most 15887 values for 33 choices");
}

TEST_F(VllmXargs, Xv4ConnectorInputsAreNotTheClients) {
  for (const std::string key :
       {"kv_transfer_params", "ec_transfer_params", "kv_hints", "bootstrap_host", "bootstrap_port",
        "bootstrap_room", "bootstrap_made_up"}) {
    for (const std::string value : {"1", "\"x\"", "[1]", "{\"remote_host\":\"h\"}", "null"}) {
      refused(fmt::format(R"("vllm_xargs":{{"fine":1,"{}":{}}})", key, value), "vllm_xargs." + key,
              "only the server sets it");
      refused(fmt::format(R"("nvext":{{"{}":{}}})", key, value), "nvext." + key, "no such key");
    }
    refused(fmt::format(R"("{}":{{"remote_host":"h"}})", key), key, "not supported");
    refused(fmt::format(R"("{}":1)", key), key, "not supported");
  }
  // Escapes are not a way around.
  refused(R"("vllm_xargs":{"kv_transfer_p\u0061rams":"x"})", "vllm_xargs.kv_transfer_params",
          "only the server sets it");
  EXPECT_EQ(forwarded(R"({"kv_transfer":1,"my_bootstrap_host":2})"),
            R"({"kv_transfer":1,"my_bootstrap_host":2})");
}

TEST_F(VllmXargs, Xv5TypesAreCheckedThoughUnknownFieldsAreDropped) {
  options_.ignore_unsupported_fields = true;
  const Prepared wrong = run(Endpoint::Completions, R"("frobnicate":{},"vllm_xargs":{"k":null})");
  ASSERT_FALSE(wrong.spec.has_value());
  EXPECT_EQ(wrong.spec.error().param, "vllm_xargs.k");
  const auto right = good(Endpoint::Completions, R"("frobnicate":{},"vllm_xargs":{"k":1})");
  EXPECT_EQ(json::dump(right.extra_args), R"({"k":1})");
}

TEST_F(VllmXargs, Xf1TheObjectIsForwardedVerbatim) {
  EXPECT_EQ(forwarded(R"({"z":[1,"a"],"a":"z","temperature":"hot"})"),
            R"({"z":[1,"a"],"a":"z","temperature":"hot"})");
}

TEST_F(VllmXargs, Xf2WithoutTheFieldNothingIsAskedOfTheEngine) {
  set_defaults(R"({"k":1})");
  const auto request = good("");
  EXPECT_EQ(json::dump(request.extra_args), R"({"k":1})");
  EXPECT_FALSE(request.extra_args_required) << "defaults may be left out where there is no place";
  EXPECT_TRUE(engine::required_capabilities(request).empty());
}

TEST_F(VllmXargs, Xf3NamesOfSamplingOptionsDoNotBecomeThem) {
  const auto plain = good(R"("temperature":0.5)");
  const auto request = good(
      R"("temperature":0.5,"vllm_xargs":{"temperature":2,"top_k":3,"n":4,"seed":5,"max_tokens":1,
         "stop_token_ids":[1],"ignore_eos":true,"vllm_xargs":"x","priority":9})");
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, plain.sampling.top_k);
  EXPECT_EQ(request.sampling.seed, plain.sampling.seed);
  EXPECT_EQ(request.stop.max_tokens, plain.stop.max_tokens);
  EXPECT_EQ(request.stop.stop_token_ids, plain.stop.stop_token_ids);
  EXPECT_FALSE(request.stop.ignore_eos);
  EXPECT_EQ(request.priority, 0);
  EXPECT_EQ(*request.extra_args.find("temperature")->as_int(), 2);
}

TEST_F(VllmXargs, Xf4TheRequestOverridesDefaultsKeyByKey) {
  set_defaults(R"({"kept":{"nested":[1]},"over":[1,2],"also":"x"})");
  EXPECT_EQ(forwarded(R"({"over":"mine","new":true})"),
            R"({"kept":{"nested":[1]},"over":"mine","also":"x","new":true})");
  EXPECT_EQ(forwarded("{}"), R"({"kept":{"nested":[1]},"over":[1,2],"also":"x"})");
}

TEST_F(VllmXargs, Xf5ConnectorInputsOfDefaultsAreDropped) {
  set_defaults(R"({"kv_transfer_params":{"a":1},"k":1,"ec_transfer_params":2,"kv_hints":3,
                   "bootstrap_room":4})");
  EXPECT_EQ(json::dump(good("").extra_args), R"({"k":1})");
  EXPECT_EQ(forwarded(R"({"x":2})"), R"({"k":1,"x":2})");
  set_defaults(R"({"kv_transfer_params":{}})");
  EXPECT_TRUE(good("").extra_args.is_null());
}

TEST_F(VllmXargs, Xf6WhatTheServerHandsOverHasItsOwnPlace) {
  auto request = good(R"("vllm_xargs":{"k":1})");
  EXPECT_TRUE(request.kv_transfer_params.is_null());
  EXPECT_TRUE(request.ec_transfer_params.is_null());
  request.kv_transfer_params = *json::parse(R"({"do_remote_decode":true})");
  EXPECT_EQ(json::dump(request.extra_args), R"({"k":1})");
}

TEST_F(VllmXargs, Xf7DefaultsAreSharedAndStayAsTheyWere) {
  const std::string defaults = R"({"a":[1,2],"b":"x","kv_hints":1})";
  set_defaults(defaults);
  const auto shared = served_.assets;
  for (int i = 0; i < 3; ++i) {
    const auto request = good(fmt::format(R"("vllm_xargs":{{"a":{},"c":{}}})", i, i));
    EXPECT_EQ(json::dump(request.extra_args), fmt::format(R"({{"a":{},"b":"x","c":{}}})", i, i));
  }
  EXPECT_EQ(json::dump(shared->defaults.extra_args), defaults);
  EXPECT_EQ(json::dump(good("").extra_args), R"({"a":[1,2],"b":"x"})");
}

}  // namespace
}  // namespace fairlead::api::openai
