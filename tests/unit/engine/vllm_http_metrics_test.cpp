#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/vllm_http/metrics_text.hpp"

namespace fairlead::engine::vllm_http {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(VllmHttpMetrics, UsageIsPerEngine) {
  EXPECT_THAT(
      read_kv_usage("# HELP vllm:kv_cache_usage_perc KV-cache usage.\n"
                    "# TYPE vllm:kv_cache_usage_perc gauge\n"
                    "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a} 7\"} 0.25\n"
                    "vllm:kv_cache_usage_perc{model_name=\"m\",engine=\"3\"} 1.0 1700000000\n"
                    "vllm:kv_cache_usage_percent{engine=\"5\"} 0.5\n"
                    "vllm:kv_cache_usage_perc{engine=\"4\"} 5e-2"),
      ElementsAre(KvUsage{.rank = 0, .share = 0.25}, KvUsage{.rank = 3, .share = 1},
                  KvUsage{.rank = 4, .share = 0.05}));
}

TEST(VllmHttpMetrics, WhatIsNoShareOfARankIsLeftOut) {
  EXPECT_THAT(read_kv_usage(""), IsEmpty());
  for (const std::string line :
       {"{engine=\"0\"} nan", "{engine=\"0\"} inf", "{engine=\"0\"}", "{engine=\"0\"} x",
        "{engine=\"x\"} 1", "{engine=\"-1\"} 1", "{model_name=\"m\"} 1", "{", "{engine=\"0"}) {
    EXPECT_THAT(read_kv_usage("vllm:kv_cache_usage_perc" + line), IsEmpty()) << line;
  }
  EXPECT_THAT(read_kv_usage("vllm:kv_cache_usage_perc{engine=\"0\"} 1.5\n"
                            "vllm:kv_cache_usage_perc{engine=\"1\"} -3"),
              ElementsAre(KvUsage{.rank = 0, .share = 1}, KvUsage{.rank = 1, .share = 0}));
}

TEST(VllmHttpMetrics, RanksAreBounded) {
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += "vllm:kv_cache_usage_perc{engine=\"" + std::to_string(i) + "\"} 0\n";
  }
  EXPECT_THAT(read_kv_usage(text), SizeIs(4096));
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
