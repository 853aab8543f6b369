#include "observe/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fairlead::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Metrics, ShardsAreAddedUp) {
  Registry registry("fairlead_frontend", 2);
  for (std::size_t reactor = 0; reactor < 2; ++reactor) {
    RequestScope scope(registry.shard("m", reactor), Endpoint::ChatCompletions, RequestType::Stream,
                       10.0);
    scope.prompt(100, 40);
    scope.tokens(1, 10.5);
    scope.tokens(4, 10.6);
    scope.finish(nullptr, 13.0);
  }
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("fairlead_frontend_requests_total{model=\"m\",endpoint=\"chat_"
                              "completions\",request_type=\"stream\",status=\"success\",error_type="
                              "\"\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("fairlead_frontend_output_tokens_total{model=\"m\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("inflight_requests{model=\"m\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("queued_requests{model=\"m\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("inter_token_latency_seconds_count{model=\"m\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("time_to_first_token_seconds_bucket{model=\"m\",le=\"0.47\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("time_to_first_token_seconds_bucket{model=\"m\",le=\"1\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("request_duration_seconds_sum{model=\"m\"} 6\n"));
}

TEST(Metrics, RouterOverheadIsInMillisecondsAndOfKvModeOnly) {
  using std::chrono::microseconds;
  Registry registry("p", 2, true);
  for (std::size_t reactor = 0; reactor < 2; ++reactor) {
    RequestScope scope(registry.shard("m", reactor), Endpoint::Completions, RequestType::Unary,
                       1.0);
    scope.router_overhead(RouterStep::BlockHashing, microseconds(15));
    scope.router_overhead(RouterStep::Total, microseconds(250 + 1000 * reactor));
  }
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("p_router_overhead_block_hashing_ms_bucket{model=\"m\",le=\"0.01\"} "
                              "0\n"));
  EXPECT_THAT(text, HasSubstr("p_router_overhead_block_hashing_ms_bucket{model=\"m\",le=\"0.02\"} "
                              "2\n"));
  EXPECT_THAT(text, HasSubstr("p_router_overhead_total_ms_sum{model=\"m\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("p_router_overhead_total_ms_bucket{model=\"m\",le=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("p_router_overhead_indexer_find_matches_ms_count{model=\"m\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("p_router_overhead_scheduling_ms_count{model=\"m\"} 0\n"));
  Registry other("p", 1);
  other.shard("m", 0);
  EXPECT_THAT(other.render(), Not(HasSubstr("router_overhead")));
}

TEST(Metrics, ARequestThatIsJustDroppedCountsAsCancelled) {
  Registry registry("p", 1);
  {
    RequestScope scope(registry.shard("m", 0), Endpoint::Completions, RequestType::Unary, 1.0);
  }
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("status=\"error\",error_type=\"cancelled\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("p_model_cancellation_total{model=\"m\",endpoint=\"completions\","
                              "request_type=\"unary\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("p_queued_requests{model=\"m\"} 0\n"));
}

TEST(Metrics, ARequestBeingPreparedIsInFlightUnderAnUnknownModel) {
  Registry registry("p", 1);
  ModelShard& shard = registry.shard(Registry::kUnknownModel, 0);
  {
    PreparingScope scope(shard, Endpoint::Completions, 1.0);
    const std::string text = registry.render();
    EXPECT_THAT(text, HasSubstr("p_inflight_requests{model=\"unknown\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("p_queued_requests{model=\"unknown\"} 1\n"));
    scope.done();
  }
  EXPECT_THAT(registry.render(), HasSubstr("p_inflight_requests{model=\"unknown\"} 0\n"));
  EXPECT_THAT(registry.render(), Not(HasSubstr("error_type=\"cancelled\"")));
  {
    const PreparingScope abandoned(shard, Endpoint::Completions, 1.0);
  }
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("p_inflight_requests{model=\"unknown\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("p_queued_requests{model=\"unknown\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("p_model_cancellation_total{model=\"unknown\",endpoint=\"completions\","
                        "request_type=\"unary\"} 1\n"));
}

TEST(Metrics, NamesAndLabelsAreMadeLegal) {
  Registry registry("9 my-prefix", 1);
  registry.shard("a\"b\\c\nd", 0).inflight.add(1);
  const std::string text = registry.render();
  EXPECT_THAT(text, HasSubstr("__my_prefix_inflight_requests{model=\"a\\\"b\\\\c\\nd\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("9 my")));
}

}  // namespace
}  // namespace fairlead::observe
