#include "cli/sampling_defaults.hpp"

#include <gtest/gtest.h>

namespace fairlead::cli {
namespace {

TEST(SamplingDefaults, ExtraArgumentsAreOverlaidKeyByKey) {
  chat::SamplingDefaults defaults;
  defaults.temperature = 0.5;
  // The model's own, then the flag's, then the card's.
  defaults.extra_args = *json::parse(R"({"a":1,"b":{"x":1},"c":[1]})");
  const auto flag = *json::parse(R"({"extra_args":{"b":2,"d":"flag"},"temperature":0.75})");
  const auto card = *json::parse(R"({"extra_args":{"d":"card","e":null}})");
  ASSERT_TRUE(overlay_sampling(flag, defaults).has_value());
  ASSERT_TRUE(overlay_sampling(card, defaults).has_value());
  EXPECT_EQ(json::dump(defaults.extra_args), R"({"a":1,"b":2,"c":[1],"d":"card","e":null})");
  EXPECT_EQ(defaults.temperature, 0.75);
  EXPECT_EQ(json::dump(flag), R"({"extra_args":{"b":2,"d":"flag"},"temperature":0.75})");
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

}  // namespace
}  // namespace fairlead::cli
