#include "serving/hand_off.hpp"

#include <gtest/gtest.h>

#include <set>

namespace fairlead::serving {
namespace {

fleet::Worker prefill_worker(std::uint32_t ranks) {
  fleet::Worker worker;
  worker.endpoint.host = "10.0.0.7";
  worker.info.data_parallel_size = ranks;
  worker.info.bootstrap_port = 8998;
  return worker;
}

TEST(HandOffTest, RoomsAreOfThePrefillRankAndBelow63Bits) {
  std::mt19937_64 random(3);
  for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 64U}) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (int i = 0; i < 100; ++i) {
        const auto made = make_bootstrap(prefill_worker(ranks), rank, random);
        ASSERT_TRUE(made.has_value());
        ASSERT_GE(made->room, 0);
        ASSERT_EQ(static_cast<std::uint64_t>(made->room) % ranks, rank);
      }
    }
  }
  EXPECT_EQ(make_bootstrap(prefill_worker(1), 0, random)->host, "10.0.0.7");
}

TEST(HandOffTest, WithoutARankRoomsSpreadOverAll) {
  std::mt19937_64 random(3);
  std::set<std::int64_t> ranks;
  for (int i = 0; i < 100; ++i) {
    const auto made = make_bootstrap(prefill_worker(4), std::nullopt, random);
    ASSERT_GE(made->room, 0);
    ranks.insert(made->room % 4);
  }
  EXPECT_EQ(ranks.size(), 4u);
}

TEST(HandOffTest, RoomsDiffer) {
  std::mt19937_64 random(3);
  std::set<std::int64_t> rooms;
  for (int i = 0; i < 1000; ++i) {
    rooms.insert(make_bootstrap(prefill_worker(4), 1, random)->room);
  }
  EXPECT_EQ(rooms.size(), 1000u);
}

TEST(HandOffTest, AnEngineWithoutABootstrapPortIsNamed) {
  std::mt19937_64 random(3);
  fleet::Worker worker = prefill_worker(1);
  worker.info.bootstrap_port = 0;
  const auto made = make_bootstrap(worker, 0, random);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, ErrorCode::HandOffMissing);
  EXPECT_EQ(made.error().param, "disaggregation_bootstrap_port");
}

engine::GenerateRequest whole() {
  engine::GenerateRequest request;
  request.request_id = "r";
  request.prompt = {1, 2, 3};
  request.stop.max_tokens = 50;
  request.output.logprobs = 3;
  request.output.prompt_logprobs = 1;
  request.extra_args = json::Object({json::Member{.key = "k", .value = 1}});
  return request;
}

TEST(HandOffTest, AVllmPrefillLegIsOneTokenWhoseCacheIsWanted) {
  const engine::GenerateRequest leg = prefill_leg(whole(), HandOff::AfterPrefill);
  EXPECT_EQ(leg.leg, engine::Leg::Prefill);
  EXPECT_EQ(leg.stop.max_tokens, 1u);
  EXPECT_EQ(leg.stop.min_tokens, 1u);
  EXPECT_FALSE(leg.output.logprobs.has_value());
  EXPECT_EQ(leg.output.prompt_logprobs, 1u);
  EXPECT_EQ(json::dump(leg.kv_transfer_params), R"({"do_remote_decode":true})");
  EXPECT_EQ(json::dump(leg.extra_args), R"({"k":1})");
}

TEST(HandOffTest, AnSglangPrefillLegKeepsLogprobsForTheFirstToken) {
  const engine::GenerateRequest leg = prefill_leg(whole(), HandOff::Bootstrap);
  EXPECT_EQ(leg.stop.max_tokens, 1u);
  EXPECT_EQ(leg.output.logprobs, 3u);
  EXPECT_TRUE(leg.kv_transfer_params.is_null());
}

Result<json::Value> taken(std::string_view params) {
  engine::Finish finish;
  finish.kv_transfer_params = *json::parse(params);
  return take_over(finish);
}

TEST(HandOffTest, ParametersAreTakenOverWhole) {
  constexpr std::string_view kPull =
      R"({"do_remote_prefill":true,"remote_engine_id":"e","remote_host":"h","remote_port":5600,)"
      R"("remote_block_ids":[1,2],"anything":{"else":1}})";
  EXPECT_EQ(json::dump(*taken(kPull)), kPull);
  constexpr std::string_view kOther = R"({"ticket":"abc"})";
  EXPECT_EQ(json::dump(*taken(kOther)), kOther);
}

TEST(HandOffTest, WhatIsMissingIsNamed) {
  const auto nothing = take_over(engine::Finish());
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, ErrorCode::HandOffMissing);
  EXPECT_EQ(nothing.error().param, "kv_transfer_params");
  const auto no_host = taken(
      R"({"do_remote_prefill":true,"remote_engine_id":"e","remote_port":1,"remote_block_ids":[]})");
  ASSERT_FALSE(no_host.has_value());
  EXPECT_EQ(no_host.error().param, "kv_transfer_params.remote_host");
  EXPECT_EQ(traits(no_host.error().code).http_status, 502);
}

}  // namespace
}  // namespace fairlead::serving
