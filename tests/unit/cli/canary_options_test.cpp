#include "cli/canary_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/config_file.hpp"
#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

const std::vector<std::string> kTables{"serve", "demo"};

struct Inputs {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> variables = {};
  std::string file = {};
};

Result<fleet::CanaryOptions> options_of(const Inputs& inputs) {
  const Result<RawArguments> raw = parse_arguments(serve_table(), inputs.arguments);
  if (!raw) {
    return std::unexpected(raw.error());
  }
  const auto entries = parse_config(inputs.file, "serve", kTables);
  const auto environment = [&](const std::string& name) -> std::optional<std::string> {
    const auto found = inputs.variables.find(name);
    return found == inputs.variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto settings = Settings::resolve(serve_table(), *raw, environment, *entries, "f.toml");
  if (!settings) {
    return std::unexpected(settings.error());
  }
  return canary_options(*settings);
}

fleet::CanaryOptions good(const Inputs& inputs) {
  const auto options = options_of(inputs);
  EXPECT_TRUE(options.has_value()) << options.error().message;
  return options ? *options : fleet::CanaryOptions();
}

TEST(CanarySettings, OffByDefault) {
  const auto options = good({});
  EXPECT_FALSE(options.enabled);
  EXPECT_EQ(options.wait, net::Duration(10s));
  EXPECT_EQ(options.timeout, net::Duration(3s));
  EXPECT_EQ(options.busy_stall, net::Duration(60s));
  EXPECT_TRUE(options.payload.sampling.unset);
  EXPECT_TRUE(options.per_model.empty());
}

TEST(CanarySettings, ComeFromTheVariablesOfOtherFrontends) {
  const auto options = good({.arguments = {},
                             .variables = {{"DYN_HEALTH_CHECK_ENABLED", "true"},
                                           {"DYN_CANARY_WAIT_TIME", "2.5"},
                                           {"DYN_HEALTH_CHECK_REQUEST_TIMEOUT", "1"},
                                           {"DYN_HEALTH_CHECK_BUSY_STALL", "7"},
                                           {"DYN_HEALTH_CHECK_PAYLOAD",
                                            R"({"token_ids":[5],"sampling_options":
                                                {"temperature":0.0,"top_p":1.0}})"}}});
  EXPECT_TRUE(options.enabled);
  EXPECT_EQ(options.wait, net::Duration(2500ms));
  EXPECT_EQ(options.timeout, net::Duration(1s));
  EXPECT_EQ(options.busy_stall, net::Duration(7s));
  EXPECT_THAT(options.payload.token_ids, ElementsAre(5));
  EXPECT_EQ(options.payload.sampling.temperature, 0.0F);
}

TEST(CanarySettings, PayloadsMayBeNamedForModels) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "canary_payload.json").string();
  std::ofstream(path) << R"({"token_ids": [8, 9]})";
  const auto options = good(
      {.arguments = {"--health-check-payload", R"({"token_ids":[1,2]})", "--health-check-payload",
                     R"(org/m=x={"token_ids":[3]})", "--health-check-payload=other=@" + path}});
  EXPECT_THAT(options.payload.token_ids, ElementsAre(1, 2));
  ASSERT_EQ(options.per_model.size(), 2U);
  EXPECT_THAT(options.per_model.at("org/m=x").token_ids, ElementsAre(3));
  EXPECT_THAT(options.per_model.at("other").token_ids, ElementsAre(8, 9));
  const auto of_file =
      good({.arguments = {}, .file = "health-check-payload = ['{\"token_ids\":[4,5]}', 'm={}']"});
  EXPECT_THAT(of_file.payload.token_ids, ElementsAre(4, 5));
  EXPECT_TRUE(of_file.per_model.contains("m"));
}

TEST(CanarySettings, MistakesAreOneLineWithTheOrigin) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"[1]", "--health-check-payload: not a JSON object"},
      {"5", "--health-check-payload: not a JSON object"},
      {"m=5", "--health-check-payload: not a JSON object"},
      {R"(m={"x":1})", "--health-check-payload: unknown key(s) `x`"},
      {"@/does/not/exist", "--health-check-payload: "},
  };
  for (const auto& [text, message] : rows) {
    const auto options = options_of({.arguments = {"--health-check-payload", text}});
    ASSERT_FALSE(options.has_value()) << text;
    EXPECT_THAT(options.error().message, HasSubstr(message)) << text;
    EXPECT_EQ(options.error().code, ErrorCode::InvalidRequest);
    EXPECT_EQ(options.error().message.find('\n'), std::string::npos);
  }
  const std::string flag = "--health-check-payload";
  const auto twice = options_of({.arguments = {flag, "m={}", flag, R"(m={"token_ids":[5]})"}});
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().message, "--health-check-payload: model `m` is named twice");
  const auto common = options_of({.arguments = {flag, "{}", flag, "{}"}});
  ASSERT_FALSE(common.has_value());
  EXPECT_EQ(common.error().message, "--health-check-payload: two payloads are for all models");
  const auto options =
      options_of({.arguments = {}, .variables = {{"DYN_HEALTH_CHECK_PAYLOAD", "oops"}}});
  ASSERT_FALSE(options.has_value());
  EXPECT_THAT(options.error().message, HasSubstr("DYN_HEALTH_CHECK_PAYLOAD: not a JSON object"));
}

}  // namespace
}  // namespace fairlead::cli
