#include "serving/conditional_disaggregation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/testing.hpp"
#include "serving/remote_kv_watch.hpp"

namespace fairlead::serving {
namespace {

using Policy = ConditionalDisaggregation::Policy;
using ::testing::HasSubstr;

ConditionalDisaggregation config(std::string_view json) {
  ConditionalDisaggregation out;
  out.enabled = true;
  const Result<> applied = out.apply(json);
  EXPECT_TRUE(applied.has_value()) << applied.error().message;
  return out;
}

bool bypasses(const ConditionalDisaggregation& config, std::uint32_t prompt, std::uint32_t cached,
              std::optional<PromptLoad> prefill = {}, PromptLoad decode = {}) {
  return bypasses_prefill(config, prompt, cached, decode, prefill);
}

TEST(ConditionalDisaggregationTest, FewNewTokensStayAndBothBoundsAreStrict) {
  const auto defaults = config("{}");
  EXPECT_TRUE(bypasses(defaults, 10'000, 8'000));
  EXPECT_TRUE(bypasses(defaults, 10'000, 7'953));   // 2,047 new
  EXPECT_FALSE(bypasses(defaults, 10'000, 7'952));  // 2,048
  EXPECT_FALSE(bypasses(defaults, 1'000, 300));     // 0.7 of it
  EXPECT_TRUE(bypasses(defaults, 1'000, 301));
  EXPECT_FALSE(bypasses(defaults, 100, 0));
  EXPECT_TRUE(bypasses(defaults, 100, 200));  // never below 0
  EXPECT_FALSE(bypasses(ConditionalDisaggregation(), 10'000, 9'999));
}

TEST(ConditionalDisaggregationTest, ABusyPrefillWorkerIsSpared) {
  const auto load = config(R"({"policy": "prefill_load", "prefill_busy_threshold": 0.5})");
  EXPECT_FALSE(bypasses(load, 100, 99, PromptLoad{500, 1000}));
  EXPECT_TRUE(bypasses(load, 100, 0, PromptLoad{501, 1000}));
  EXPECT_FALSE(bypasses(load, 100, 0, PromptLoad{9999, 0}));  // unknown is not busy
  EXPECT_FALSE(bypasses(load, 100, 0));
  const auto either = config(R"({"policy": "isl_or_load", "prefill_busy_threshold": 0.5})");
  EXPECT_TRUE(bypasses(either, 100, 99, PromptLoad{0, 1000}));
  EXPECT_TRUE(bypasses(either, 100, 0, PromptLoad{501, 1000}));
  EXPECT_FALSE(bypasses(either, 100, 0, PromptLoad{0, 1000}));
}

TEST(ConditionalDisaggregationTest, ABusyOrUnknownDecodeWorkerIsSparedToo) {
  const auto spared = config(R"({"decode_busy_threshold": 1})");
  EXPECT_TRUE(bypasses(spared, 100, 90, {}, {1000, 1000}));
  EXPECT_FALSE(bypasses(spared, 100, 90, {}, {1001, 1000}));
  EXPECT_FALSE(bypasses(spared, 100, 90, {}, {0, 0}));
}

TEST(ConditionalDisaggregationTest, WrongConfigurationIsNamed) {
  const auto error = [](std::string_view json) {
    ConditionalDisaggregation out;
    const Result<> applied = out.apply(json);
    EXPECT_FALSE(applied.has_value());
    return applied ? std::string() : applied.error().message;
  };
  EXPECT_THAT(error("[]"), HasSubstr("object"));
  EXPECT_THAT(error(R"({"policy": "never"})"), HasSubstr("`policy` must be"));
  EXPECT_THAT(error(R"({"eff_isl_ratio_threshold": 1.5})"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(error(R"({"eff_isl_threshold": "x"})"), HasSubstr("`eff_isl_threshold`"));
  EXPECT_THAT(error(R"({"isl": 1})"), HasSubstr("`isl` is not a key"));
}

TEST(RemoteKvWatchTest, WarnsAfterAMinuteWithoutAnyUse) {
  RemoteKvWatch watch;
  const observe::ModelShard model;
  const observe::ModelShard other;
  const net::TimePoint start{std::chrono::hours(1)};
  const auto after = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  EXPECT_FALSE(watch.note(model, false, after(0)));
  EXPECT_FALSE(watch.note(model, false, after(59)));
  EXPECT_FALSE(watch.note(other, false, after(60)));
  EXPECT_TRUE(watch.note(model, false, after(60)));
  EXPECT_FALSE(watch.note(model, false, after(119)));
  EXPECT_FALSE(watch.note(model, true, after(120)));
  EXPECT_FALSE(watch.note(model, false, after(121)));
  EXPECT_FALSE(watch.note(model, false, after(180)));
  EXPECT_TRUE(watch.note(model, false, after(181)));
}

}  // namespace
}  // namespace fairlead::serving
