#include "mock/logprobs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mock/reply.hpp"
#include "mock/sequence.hpp"

namespace fairlead::mock {
namespace {

std::vector<TokenId> ids_of(const ScoredToken& scored) {
  std::vector<TokenId> ids;
  for (const Candidate& candidate : scored.candidates) {
    ids.push_back(candidate.id);
  }
  return ids;
}

LogprobFaults faults_of(std::string_view text) {
  const std::vector<Fault> faults = {*parse_fault(text)};
  return LogprobFaults(faults);
}

TEST(Logprobs, TheMostLikelyFollowTheTokenAndWrap) {
  const ScoredToken scored = score(99, {.top_n = 3, .token_ids = {}}, 100, true);
  EXPECT_EQ(ids_of(scored), (std::vector<TokenId>{99, 0, 1}));
  EXPECT_EQ(scored.candidates[2].rank, 3U);
  EXPECT_FLOAT_EQ(scored.candidates[0].logprob, scored.token.logprob);
  EXPECT_EQ(ids_of(score(99, {.top_n = 2, .token_ids = {}}, 100, false)),
            (std::vector<TokenId>{0, 1}));
  EXPECT_EQ(score(7, {.top_n = 500, .token_ids = {}}, 100, true).candidates.size(), 100U);
}

TEST(Logprobs, ChosenIdsKeepTheirOrder) {
  const ScoredToken scored = score(5, {.top_n = 0, .token_ids = {9, 5, 2}}, 100, true);
  EXPECT_EQ(ids_of(scored), (std::vector<TokenId>{9, 5, 2}));
  EXPECT_EQ(scored.candidates[2].rank, 3U);
  EXPECT_FLOAT_EQ(scored.candidates[1].logprob, scored.token.logprob);
}

TEST(Logprobs, FaultsSpoilOnePlace) {
  const CandidateChoice choice{.top_n = 2, .token_ids = {}};
  for (std::uint64_t position = 0; position < 3; ++position) {
    ScoredToken scored = score(5, choice, 100, true);
    faults_of("logprob-nan:1").apply(scored, position);
    EXPECT_EQ(std::isnan(scored.token.logprob), position == 1);
    EXPECT_EQ(std::isnan(scored.candidates[0].logprob), position == 1);
    EXPECT_FALSE(std::isnan(scored.candidates[1].logprob));
    scored = score(5, choice, 100, true);
    faults_of("logprob-unsampled:1").apply(scored, position);
    EXPECT_EQ(scored.unsampled, position == 1);
    EXPECT_EQ(ids_of(scored).size(), position == 1 ? 1U : 2U);
  }
}

Sequence sequence_of(Reply reply, StopRules stop) {
  Sequence sequence;
  sequence.tokens = {1, 2};
  sequence.prompt_tokens = 2;
  sequence.reply = std::move(reply);
  sequence.stop = std::move(stop);
  return sequence;
}

TEST(ForcedReply, HasOneTokenForEver) {
  Reply reply = Reply::echo();
  reply.restrict_to({8});
  reply.add_reasoning({.start_token = 5, .end_token = 6, .ratio = 1}, 4);
  reply.force(7);
  const std::vector<TokenId> prompt = {1, 2};
  for (std::uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(reply.at(i, prompt), 7U);
  }
}

TEST(Canvas, EosEndsNothingAndTheReplyEndsByItself) {
  Reply reply = Reply::echo();
  reply.put(1, 9);
  StopRules stop{.max_new_tokens = 10};
  stop.eos = 9;
  stop.ignore_eos = true;
  stop.canvas = true;
  Sequence sequence = sequence_of(std::move(reply), std::move(stop));
  EXPECT_EQ(draw(sequence).token, 1U);
  sequence.tokens.push_back(1);
  const StepOutput eos = draw(sequence);
  EXPECT_EQ(eos.token, 9U);
  EXPECT_EQ(eos.finish, FinishReason::None);
  sequence.tokens.push_back(9);
  const StepOutput end = draw(sequence);
  EXPECT_FALSE(end.token);
  EXPECT_EQ(end.finish, FinishReason::Stop);
}

}  // namespace
}  // namespace fairlead::mock
