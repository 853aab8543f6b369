#include "serving/migration.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace fairlead::serving {
namespace {

using engine::GenerateRequest;

TEST(MigrationTest, WhatOnlyTokensDecideCanGoOnElsewhere) {
  GenerateRequest request;
  request.sampling.temperature = 0;
  request.sampling.seed = 7;  // nothing is drawn
  request.sampling.top_k = 5;
  request.sampling.logit_bias = {{3, 1.0F}};
  request.sampling.bad_words = {{4}, {5}};
  request.stop.min_tokens = 3;
  request.stop.thinking_token_budget = -1;
  request.output.logprobs = 2;
  request.lora_name = "adapter";
  EXPECT_EQ(migration_obstacle(request), "");
  request.sampling.temperature = 1;
  request.sampling.seed.reset();
  EXPECT_EQ(migration_obstacle(request), "");
}

TEST(MigrationTest, WhatTheEngineCountsItselfCannot) {
  const std::pair<std::string_view, std::function<void(GenerateRequest&)>> rows[] = {
      {"structured output", [](auto& r) { r.structured.emplace(); }},
      {"penalties", [](auto& r) { r.sampling.presence_penalty = 0.5F; }},
      {"penalties", [](auto& r) { r.sampling.frequency_penalty = -0.5F; }},
      {"penalties", [](auto& r) { r.sampling.repetition_penalty = 1.1F; }},
      {"a seed and a temperature above 0", [](auto& r) { r.sampling.seed = 1; }},
      {"bad words of several tokens", [](auto& r) { r.sampling.bad_words = {{1, 2}}; }},
      {"a thinking budget", [](auto& r) { r.stop.thinking_token_budget = 100; }},
      {"extra arguments", [](auto& r) { r.extra_args_required = true; }},
  };
  for (const auto& [name, set] : rows) {
    GenerateRequest request;
    set(request);
    EXPECT_EQ(migration_obstacle(request), name);
  }
}

TEST(MigrationTest, WhatWasDeliveredIsTakenOffTheLimits) {
  engine::StopConditions stop;
  stop.max_tokens = 10;
  stop.min_tokens = 4;
  EXPECT_TRUE(reduce(stop, 3));
  EXPECT_EQ(stop.max_tokens, 7u);
  EXPECT_EQ(stop.min_tokens, 1u);
  EXPECT_TRUE(reduce(stop, 6));
  EXPECT_EQ(stop.max_tokens, 1u);
  EXPECT_EQ(stop.min_tokens, 0u);
  EXPECT_FALSE(reduce(stop, 1));
}

}  // namespace
}  // namespace fairlead::serving
