#include "routing/cost.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace fairlead::routing {
namespace {

KvRouterConfig plain() {
  KvRouterConfig config;
  config.decode_active_request_weight = 0;
  config.recompute_weight = 0;
  return config;
}

const PromptShape kPrompt{.tokens = 64, .full_blocks = 4, .block_size = 16};
const CachedBlocks kThree{.device = 3, .host = 0, .disk = 0};
const TargetLoad kBusy{.prefill_tokens = 32,
                       .active_blocks = 10,
                       .requests = 2,
                       .active_prefix = 3,
                       .min_prefill_tokens = 0};

TEST(Cost, TheWorkedExample) {
  const CostTerms terms = evaluate(plain(), kPrompt, kThree, kBusy);
  EXPECT_EQ(terms.raw_prefill, 6);
  EXPECT_EQ(terms.credit, 3);
  EXPECT_EQ(terms.adjusted_prefill, 3);
  EXPECT_EQ(terms.decode, 11);
  EXPECT_EQ(terms.cost, 14);
  EXPECT_EQ(cached_tokens(terms, kPrompt), 48);
}

TEST(Cost, RunningRequestsAndWorkDoneTwiceWeigh) {
  KvRouterConfig config = plain();
  config.decode_active_request_weight = 1.5;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).cost, 17);
  config.recompute_weight = 0.5;  // one of four blocks is not cached
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).recompute, 0.5);
  config.overlap_score_credit = 0;  // caches do not matter
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).recompute, 0);
}

TEST(Cost, TiersCountByTheirWeights) {
  const CostTerms terms = evaluate(plain(), kPrompt, {.device = 1, .host = 2, .disk = 1}, {});
  EXPECT_EQ(terms.effective_blocks, 1 + 1.5 + 0.25);
  EXPECT_EQ(terms.cost, 4 - 2.75 + 4);
  KvRouterConfig config = plain();
  config.shared_cache_multiplier = 0.5;
  PromptShape shared = kPrompt;
  shared.shared_prefix = 4;  // three of them beyond the device's
  EXPECT_EQ(evaluate(config, shared, {.device = 1, .host = 0, .disk = 0}, {}).credit, 2.5);
}

TEST(Cost, TheCreditFadesWithTheBacklog) {
  KvRouterConfig config = plain();
  config.overlap_score_credit_decay = 2;
  // 32 tokens more than the least: half a prompt ahead.
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).credit, 1.5);
  TargetLoad least = kBusy;
  least.min_prefill_tokens = 32;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, least).credit, 3);
}

TEST(Cost, NothingFallsBelowZero) {
  KvRouterConfig config = plain();
  config.overlap_score_credit = 9;
  EXPECT_EQ(evaluate(config, kPrompt, {.device = 4, .host = 0, .disk = 0}, {}).adjusted_prefill, 0);
}

TEST(Cost, WithoutPrefillTrackingTheCreditComesOffDecode) {
  KvRouterConfig config = plain();
  config.track_prefill_tokens = false;
  config.decode_active_request_weight = 1;
  const CostTerms terms = evaluate(config, kPrompt, kThree, kBusy);
  EXPECT_EQ(terms.raw_prefill, 0);
  EXPECT_EQ(terms.cost, 11 - 3 + 2);
}

TEST(Cost, SwitchesAndPolicies) {
  KvRouterConfig config = plain();
  config.assume_kv_reuse = false;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).decode, 14);
  config.track_active_blocks = false;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).decode, 0);
  config = plain();
  config.policy = SelectionPolicy::LMetric;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).cost, 3 * 12);
  config = plain();
  config.prefill_load_scale = 2;
  EXPECT_EQ(evaluate(config, kPrompt, kThree, kBusy).cost, 17);
  EXPECT_EQ(parse_selection_policy("lmetric"), SelectionPolicy::LMetric);
  EXPECT_FALSE(parse_selection_policy("best"));
}

TEST(Cost, TaintsScaleWithinE) {
  EXPECT_EQ(taint_factor(0), 1);
  EXPECT_NEAR(taint_factor(100), std::exp(-1), 1e-12);
  EXPECT_NEAR(taint_factor(-100), std::exp(1), 1e-12);
}

TEST(Cost, OverridesAreAppliedAndChecked) {
  KvRouterOverrides overrides;
  overrides.overlap_score_credit = 0.25;
  overrides.router_temperature = 0.5;
  overrides.track_prefill_tokens = false;
  auto applied = apply(plain(), overrides);
  ASSERT_TRUE(applied);
  EXPECT_EQ(applied->overlap_score_credit, 0.25);
  EXPECT_EQ(applied->router_temperature, 0.5);
  EXPECT_FALSE(applied->track_prefill_tokens);
  overrides.overlap_score_weight = 3;
  EXPECT_EQ(apply(plain(), overrides)->prefill_load_scale, 3);
  overrides.overlap_score_weight = 0;
  EXPECT_EQ(apply(plain(), overrides)->prefill_load_scale, 0);
  EXPECT_EQ(apply(plain(), overrides)->overlap_score_credit, 0);
  overrides = {};
  for (const double bad : {-1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    overrides.router_temperature = bad;
    EXPECT_EQ(apply(plain(), overrides).error().param, "router_temperature");
  }
  KvRouterConfig config;
  EXPECT_TRUE(validate(config));
  config.host_cache_hit_weight = 1.5;
  EXPECT_EQ(validate(config).error().param, "host_cache_hit_weight");
}

}  // namespace
}  // namespace fairlead::routing
