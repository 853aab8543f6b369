#include "mock/sglang_request.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "sglang/runtime.pb.h"

namespace fairlead::mock {
namespace {

namespace pb = ::sglang::runtime::v1;

MockOptions options_of(Role role = Role::Aggregated) {
  MockOptions options;
  options.interface = Interface::Sglang;
  options.role = role;
  options.max_model_len = 100;
  options.vocab_size = 50;
  return options;
}

pb::GenerateRequest request_of(int prompt, int max_new_tokens) {
  pb::GenerateRequest request;
  for (int i = 0; i < prompt; ++i) {
    request.add_input_ids(i % 50);
  }
  request.mutable_sampling_params()->set_max_new_tokens(max_new_tokens);
  return request;
}

SglangRequest accepted(const pb::GenerateRequest& request, const MockOptions& options) {
  const SglangOutcome outcome = check_sglang_request(request, "rid", options);
  const auto* checked = std::get_if<SglangRequest>(&outcome);
  EXPECT_TRUE(checked);
  return checked ? *checked : SglangRequest();
}

std::string raised(const pb::GenerateRequest& request, const MockOptions& options) {
  const SglangOutcome outcome = check_sglang_request(request, "rid", options);
  const auto* status = std::get_if<net::grpc::Status>(&outcome);
  return status ? status->message : "";
}

std::string aborted(const pb::GenerateRequest& request, const MockOptions& options) {
  const SglangOutcome outcome = check_sglang_request(request, "rid", options);
  const auto* abort = std::get_if<SglangAbort>(&outcome);
  return abort ? abort->message : "";
}

TEST(SglangRequest, PromptAndAnswerMustFitTheContextWithOneToSpare) {
  const MockOptions options = options_of();
  EXPECT_EQ(accepted(request_of(60, 39), options).spec.stop.max_new_tokens, 39U);
  EXPECT_TRUE(raised(request_of(60, 40), options).starts_with("Requested token count exceeds"));
  EXPECT_TRUE(raised(request_of(100, 0), options).starts_with("The input (100 tokens)"));
  EXPECT_EQ(max_request_input(options), 94U);
  EXPECT_TRUE(aborted(request_of(94, 1), options).starts_with("Input length (94 tokens)"));
  accepted(request_of(93, 1), options);
}

TEST(SglangRequest, AnUnsetLengthIsClippedToTheContext) {
  pb::GenerateRequest request = request_of(60, 0);
  EXPECT_TRUE(accepted(request, options_of()).no_tokens);
  request.clear_sampling_params();
  const SglangRequest unset = accepted(request, options_of());
  EXPECT_FALSE(unset.no_tokens);
  EXPECT_EQ(unset.spec.stop.max_new_tokens, 39U);
}

TEST(SglangRequest, TokensOutsideTheVocabularyAreDeadly) {
  for (const int token : {-1, 50, std::numeric_limits<int>::max()}) {
    pb::GenerateRequest request = request_of(3, 1);
    request.add_input_ids(token);
    const SglangOutcome outcome = check_sglang_request(request, "rid", options_of());
    ASSERT_TRUE(std::holds_alternative<SglangDeath>(outcome)) << token;
    EXPECT_EQ(std::get<SglangDeath>(outcome).token, token);
  }
}

TEST(SglangRequest, NumbersAreWrittenAsPythonDoes) {
  EXPECT_EQ(python_float(-1), "-1.0");
  EXPECT_EQ(python_float(0.1), "0.1");
  EXPECT_EQ(python_float(-0.1F), "-0.10000000149011612");
  EXPECT_EQ(python_float(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(python_float(-std::numeric_limits<double>::infinity()), "-Infinity");
}

TEST(SglangRequest, HalvesOfARequestNeedARoom) {
  for (const Role role : {Role::Prefill, Role::Decode}) {
    EXPECT_TRUE(aborted(request_of(3, 5), options_of(role)).starts_with("Invalid request: "));
    pb::GenerateRequest request = request_of(3, 5);
    request.mutable_disaggregated_params()->set_bootstrap_room(9);
    request.mutable_sampling_params()->set_n(3);
    const SglangRequest checked = accepted(request, options_of(role));
    EXPECT_EQ(checked.room->room, 9);
    EXPECT_EQ(checked.choices, 1U);
    EXPECT_EQ(checked.spec.awaits_peer, role == Role::Prefill);
    EXPECT_EQ(checked.spec.awaits_kv, role == Role::Decode);
    EXPECT_EQ(checked.spec.stop.max_new_tokens, role == Role::Prefill ? 1U : 5U);
    request.mutable_disaggregated_params()->set_bootstrap_host("2.2.2.2");
    EXPECT_FALSE(accepted(request, options_of(role)).spec.awaits_peer);
  }
}

TEST(SglangRequest, TheRoomChoosesThePrefillRank) {
  MockOptions options = options_of(Role::Prefill);
  options.data_parallel_size = 4;
  pb::GenerateRequest request = request_of(3, 1);
  request.mutable_disaggregated_params()->set_bootstrap_room(7);
  EXPECT_EQ(accepted(request, options).spec.rank, 3U);
  request.set_routed_dp_rank(2);
  EXPECT_TRUE(raised(request, options).starts_with("follow_bootstrap_room conflict"));
  options.load_balance = LoadBalance::RoundRobin;
  EXPECT_EQ(accepted(request, options).spec.rank, 2U);
  request.set_routed_dp_rank(4);
  EXPECT_EQ(raised(request, options), "routed_dp_rank=4 out of range [0, 4)");
}

TEST(SglangRequest, OlderReleasesSkipFieldsTheyDoNotKnow) {
  MockOptions options = options_of();
  pb::GenerateRequest request = request_of(3, 1);
  request.mutable_sampling_params()->mutable_guided_decoding()->set_regex("");
  EXPECT_TRUE(check_sglang_fields(request, options));
  options.without = *parse_dialect("sglang-0.5.16");
  EXPECT_FALSE(check_sglang_fields(request, options));
}

TEST(SglangRequest, DialectsLoseMoreTheOlderTheyAre) {
  std::size_t last = 0;
  for (const char* name : {"sglang-0.5.23", "sglang-0.5.22", "sglang-0.5.21", "sglang-0.5.20",
                           "sglang-0.5.19", "sglang-0.5.18", "sglang-0.5.17", "sglang-0.5.16"}) {
    const auto missing = parse_dialect(name);
    ASSERT_TRUE(missing) << name;
    EXPECT_GE(missing->size(), last) << name;
    last = missing->size();
  }
  EXPECT_EQ(last, 8U);
  EXPECT_FALSE(parse_dialect("sglang-0.5.15"));
}

TEST(SglangOptions, PlacesOfPeersBelongToOneEngineEach) {
  MockOptions options;
  options.interface = Interface::Sglang;
  options.role = Role::Prefill;
  ASSERT_TRUE(resolve(options));
  EXPECT_EQ(options.bootstrap_listen, "127.0.0.1:0");
  options.role = Role::Decode;
  EXPECT_FALSE(resolve(options));
  MockOptions vllm;
  vllm.kv_transfer_listen = "127.0.0.1:0";
  EXPECT_FALSE(resolve(vllm));
  vllm.role = Role::Prefill;
  EXPECT_TRUE(resolve(vllm));
}

}  // namespace
}  // namespace fairlead::mock
