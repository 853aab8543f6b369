#include "engine/capability.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "engine/client.hpp"

namespace fairlead::engine {
namespace {

TEST(Capability, EveryRowIsFoundByItsName) {
  std::set<std::string_view> names;
  for (const CapabilityTraits& row : capability_table()) {
    EXPECT_EQ(find_capability(row.name), row.capability);
    EXPECT_EQ(capability_traits(row.capability).name, row.name);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_FALSE(row.field.empty());
    EXPECT_FALSE(row.probed.empty());
  }
  EXPECT_EQ(names.size(), kCapabilityCount);
  EXPECT_FALSE(find_capability("vllm"));
}

TEST(Capability, APlainRequestNeedsNone) {
  EXPECT_TRUE(required_capabilities({}).empty());
  GenerateRequest request;
  request.output.logprobs = 20;
  request.extra_args = *json::parse(R"({"default_only": 1})");
  EXPECT_TRUE(required_capabilities(request).empty()) << "defaults are never required";
}

TEST(Capability, WhatARequestNeeds) {
  GenerateRequest request;
  request.extra_args_required = true;
  EXPECT_EQ(required_capabilities(request), CapabilitySet{Capability::VllmXargs});
  request.output.logprob_token_ids = {1};
  request.output.prompt_logprobs = 0;
  request.sampling.bad_words = {{1, 2}};
  request.lora_name = "sql";
  const CapabilitySet all{Capability::VllmXargs, Capability::LogprobTokenIds,
                          Capability::PromptLogprobs, Capability::BadWordsTokenIds,
                          Capability::Lora};
  EXPECT_EQ(required_capabilities(request), all);
  EXPECT_EQ(capability_names(all),
            "vllm_xargs, logprob_token_ids, bad_words_token_ids, prompt_logprobs, lora");
  EXPECT_EQ(capability_field(all), "vllm_xargs");
}

TEST(CapabilitySet, IsASet) {
  CapabilitySet set{Capability::Lora};
  EXPECT_TRUE(set.covers({}));
  EXPECT_TRUE(set.covers(set));
  EXPECT_FALSE(CapabilitySet{}.covers(set));
  set.add(Capability::VllmXargs);
  EXPECT_EQ(set.without({Capability::Lora}), CapabilitySet{Capability::VllmXargs});
  set.remove(Capability::VllmXargs);
  EXPECT_EQ(set, CapabilitySet{Capability::Lora});
  EXPECT_TRUE(capability_names({}).empty());
  EXPECT_TRUE(capability_field({}).empty());
}

TEST(EngineNames, AreBoundedWithAWarning) {
  EngineInfo info;
  info.served_model_name = "m";
  const std::string longest(kMaxModelNameBytes, 'x');
  info.aliases = {longest + "x", longest};
  info.lora_adapters = {longest + "x", "sql"};
  info.lora_paths = {"/a", "/b"};
  ASSERT_TRUE(bound_names(info));
  EXPECT_EQ(info.aliases, std::vector<std::string>{longest});
  EXPECT_EQ(info.lora_adapters, std::vector<std::string>{"sql"});
  EXPECT_EQ(info.lora_paths, std::vector<std::string>{"/b"});
  EXPECT_EQ(info.warnings, (std::vector<std::string>{"1 of the engine's 2 aliases are left out",
                                                     "1 of the engine's 2 adapters are left out"}));

  EngineInfo many;
  many.served_model_name = "m";
  many.aliases.assign(kMaxAliases + 10, "a");
  many.lora_adapters.assign(kMaxAdapters + 5, "b");
  ASSERT_TRUE(bound_names(many));
  EXPECT_EQ(many.aliases.size(), kMaxAliases);
  EXPECT_EQ(many.lora_adapters.size(), kMaxAdapters);
  EngineInfo unchanged = many;
  unchanged.warnings.clear();
  ASSERT_TRUE(bound_names(unchanged));
  EXPECT_TRUE(unchanged.warnings.empty());

  many.served_model_name = longest + "x";
  EXPECT_EQ(bound_names(many).error().code, ErrorCode::EngineProtocol);
}

// One name in cards, errors and requests.
TEST(Capability, CA1TheNameIsThatOfTheField) {
  EXPECT_EQ(capability_traits(Capability::VllmXargs).name, "vllm_xargs");
  EXPECT_EQ(find_capability("vllm_xargs"), Capability::VllmXargs);
}

}  // namespace
}  // namespace fairlead::engine
