#include "cli/sampling_defaults.hpp"

#include <gtest/gtest.h>

#include "engine/request.hpp"

namespace fairlead::cli {
namespace {

TEST(SamplingDefaults, ExtraArgumentsAreOverlaidKeyByKey) {
  chat::SamplingDefaults defaults;
  defaults.temperature = 0.5;
  // The model's own, then the card's, then the flag's.
  defaults.extra_args = *json::parse(R"({"a":1,"b":{"x":1},"c":[1]})");
  const auto card = *json::parse(R"({"extra_args":{"b":2,"d":"card"},"temperature":0.75})");
  const auto flag = *json::parse(R"({"extra_args":{"d":"flag","e":null}})");
  ASSERT_TRUE(overlay_sampling(card, defaults).has_value());
  ASSERT_TRUE(overlay_sampling(flag, defaults).has_value());
  EXPECT_EQ(json::dump(defaults.extra_args), R"({"a":1,"b":2,"c":[1],"d":"flag","e":null})");
  EXPECT_EQ(defaults.temperature, 0.75);
  EXPECT_EQ(json::dump(card), R"({"extra_args":{"b":2,"d":"card"},"temperature":0.75})");
}

TEST(SamplingDefaults, NoExtraArgumentsChangeNothing) {
  chat::SamplingDefaults defaults;
  ASSERT_TRUE(overlay_sampling(json::Value(), defaults).has_value());
  ASSERT_TRUE(overlay_sampling(*json::parse(R"({"top_k":4})"), defaults).has_value());
  EXPECT_TRUE(defaults.extra_args.is_null());
  EXPECT_EQ(defaults.top_k, 4);
}

TEST(SamplingDefaults, ExtraArgumentsMustBeAnObject) {
  chat::SamplingDefaults defaults;
  const auto refused = overlay_sampling(*json::parse(R"({"extra_args":[1]})"), defaults);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "`extra_args` must be an object");
}

TEST(SamplingDefaults, CountsOfLogProbabilitiesAreTakenOrLeftOut) {
  chat::SamplingDefaults defaults;
  ASSERT_TRUE(overlay_sampling(*json::parse(R"({"logprobs":20,"prompt_logprobs":-1})"), defaults));
  EXPECT_EQ(defaults.logprobs, 20u);
  EXPECT_EQ(defaults.prompt_logprobs, engine::kAllCandidates);
  for (const char* wrong : {"\"many\"", "-1", "21", "1.5", "true", "null", "[1]"}) {
    chat::SamplingDefaults untouched;
    auto params = *json::parse(std::string(R"({"top_k":4,"logprobs":)") + wrong + "}");
    EXPECT_TRUE(overlay_sampling(params, untouched)) << wrong;
    EXPECT_FALSE(untouched.logprobs) << wrong;
    EXPECT_EQ(untouched.top_k, 4) << wrong;
    drop_wrong_counts("--default-sampling-params", params);
    EXPECT_EQ(json::dump(params), R"({"top_k":4})") << wrong;
  }
  auto right = *json::parse(R"({"logprobs":0,"prompt_logprobs":3})");
  drop_wrong_counts("--default-sampling-params", right);
  EXPECT_EQ(json::dump(right), R"({"logprobs":0,"prompt_logprobs":3})");
}

}  // namespace
}  // namespace fairlead::cli
