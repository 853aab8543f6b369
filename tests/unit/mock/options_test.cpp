#include "mock/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "mock/stop_strings.hpp"

namespace fairlead::mock {
namespace {

TEST(Faults, ReadBackAsTheyWereWritten) {
  for (const char* text :
       {"refuse", "stall-open", "stall-open:all", "stall-after:3", "reset-after:0", "end-after:5",
        "error-after:2:UNAVAILABLE", "error-after:2:503", "slow:250", "drop-event:0.25",
        "not-serving", "logprobs-null", "logprobs-empty", "logprobs-short", "logprob-nan:1",
        "logprob-unsampled:0", "cumulative"}) {
    const auto fault = parse_fault(text);
    ASSERT_TRUE(fault) << text;
    EXPECT_EQ(format_fault(*fault), text);
  }
  EXPECT_EQ(parse_fault("error-after:1:14")->status, 14);
}

TEST(Faults, StatusesAreSaidByBothInterfaces) {
  const auto pair = [](const char* text) {
    const Fault fault = *parse_fault(text);
    return std::pair(grpc_status(fault), http_status(fault));
  };
  EXPECT_EQ(pair("error-after:0:UNAVAILABLE"), std::pair(14, 503));
  EXPECT_EQ(pair("error-after:0:503"), std::pair(14, 503));
  EXPECT_EQ(pair("error-after:0:500"), std::pair(13, 500));
  EXPECT_EQ(pair("error-after:0:UNKNOWN"), std::pair(2, 500));
  EXPECT_EQ(pair("error-after:0:418"), std::pair(2, 418));
}

TEST(Faults, MalformedOnesSayWhatIsExpected) {
  for (const char* text :
       {"", "nonsense", "refuse:1", "stall-open:x", "stall-after", "stall-after:", "stall-after:-1",
        "error-after:1", "error-after:1:OK", "error-after:1:99", "error-after:1:600", "logprob-nan",
        "cumulative:1", "slow:x", "drop-event:2", "drop-event:-1"}) {
    const auto fault = parse_fault(text);
    ASSERT_FALSE(fault) << text;
    EXPECT_FALSE(fault.error().message.empty());
  }
  EXPECT_NE(parse_fault("error-after:1").error().message.find("error-after:N:STATUS"),
            std::string::npos);
}

TEST(Adapters, AreNumberedAndAreNotTheModel) {
  MockOptions options;
  options.loras = {"one", "two"};
  EXPECT_EQ(options.lora_id("two"), 2U);
  EXPECT_EQ(options.lora_id("three"), 0U);
  EXPECT_TRUE(resolve(options));
  options.without = {Capability::Lora};
  EXPECT_EQ(options.lora_id("two"), 0U);
  for (const char* wrong : {"", "one", "mocker-model"}) {
    options.loras = {"one", wrong};
    const auto result = resolve(options);
    ASSERT_FALSE(result) << wrong;
    EXPECT_EQ(result.error().param, "--lora");
  }
}

TEST(ExtraEngineArgs, SetWhatTheyName) {
  MockOptions options;
  const auto result = apply_extra_engine_args(
      options,
      R"({"num_gpu_blocks": 100, "block_size": 16, "max_num_seqs": 3, "max_num_batched_tokens": 64,
          "enable_prefix_caching": false, "enable_chunked_prefill": false, "speedup_ratio": 0,
          "preemption_mode": "fifo", "max_model_len": null, "engine_type": "vllm", "dp_size": 2,
          "reasoning": {"start_thinking_token_id": 5, "end_thinking_token_id": 6,
                        "thinking_ratio": 0.5}})");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(options.num_gpu_blocks, 100U);
  EXPECT_EQ(options.block_size, 16U);
  EXPECT_EQ(options.scheduler.max_running, 3U);
  EXPECT_EQ(options.scheduler.max_batched_tokens, 64U);
  EXPECT_FALSE(options.enable_prefix_caching);
  EXPECT_FALSE(options.scheduler.chunked_prefill);
  EXPECT_EQ(options.speedup_ratio, 0);
  EXPECT_EQ(options.scheduler.preemption, PreemptionMode::Oldest);
  EXPECT_EQ(options.max_model_len, MockOptions().max_model_len);
  EXPECT_EQ(options.data_parallel_size, 2U);
  ASSERT_TRUE(options.reasoning);
  EXPECT_EQ(options.reasoning->end_token, 6U);
}

TEST(ExtraEngineArgs, RefuseWhatTheyDoNotKnow) {
  MockOptions options;
  for (const char* text :
       {R"({"num_gpu_block": 1})", R"({"block_size": "16"})", "{", R"({"block_size": -1})",
        R"({"engine_type": "sglang"})", R"({"planner_profile_data": "x.npz"})", "/no/such/file",
        R"({"reasoning": {"thinking_ratio": 0.5}})"}) {
    EXPECT_FALSE(apply_extra_engine_args(options, text)) << text;
  }
}

TEST(SetOption, KnowsEveryFlagAndNamesItInErrors) {
  MockOptions options;
  EXPECT_TRUE(set_option(options, "listen", "[::1]:0"));
  EXPECT_EQ(options.listen_host, "[::1]");
  EXPECT_TRUE(set_option(options, "fault", "slow:5"));
  EXPECT_TRUE(set_option(options, "fault", "stall-after:1"));
  EXPECT_EQ(options.faults.size(), 2U);
  EXPECT_TRUE(set_option(options, "dialect", "vllm-generate"));
  EXPECT_FALSE(options.has(Capability::Control));
  const auto result = set_option(options, "block-size", "big");
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().message.starts_with("--block-size: ")) << result.error().message;
  EXPECT_FALSE(set_option(options, "no-such-flag", "1"));
}

TEST(Resolve, ContextMustFitTheCache) {
  MockOptions options;
  EXPECT_TRUE(resolve(options));
  EXPECT_EQ(options.max_model_len, 32768U);
  MockOptions small;
  small.num_gpu_blocks = 10;
  small.block_size = 16;
  EXPECT_TRUE(resolve(small));
  EXPECT_EQ(small.max_model_len, 144U);
  small.max_model_len = 145;
  EXPECT_FALSE(resolve(small));
}

TEST(StopStrings, HoldsBackWhatCouldBecomeOne) {
  StopStrings stop({"abc"}, false);
  std::string shown;
  EXPECT_FALSE(stop.push("xxa", true, shown));
  EXPECT_EQ(shown, "x");
  EXPECT_FALSE(stop.push("bd", true, shown));
  EXPECT_EQ(shown, "xxa");
  EXPECT_EQ(stop.push("abcz", true, shown), "abc");
  EXPECT_EQ(shown, "xxabd");
}

TEST(StopStrings, IncludedMatchIsShownAndNothingIsHeldBack) {
  StopStrings stop({"zz", "bc"}, true);
  std::string shown;
  EXPECT_FALSE(stop.push("ab", true, shown));
  EXPECT_EQ(shown, "ab");
  EXPECT_EQ(stop.push("cd", true, shown), "bc");
  EXPECT_EQ(shown, "abc");
}

TEST(StopStrings, UnarmedMatchesNothingAndFlushShowsTheRest) {
  StopStrings stop({"abc"}, false);
  std::string shown;
  EXPECT_FALSE(stop.push("abc", false, shown));
  stop.flush(shown);
  EXPECT_EQ(shown, "abc");
}

}  // namespace
}  // namespace fairlead::mock
