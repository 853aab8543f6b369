#include "mock/reply.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "mock/sequence.hpp"
#include "mock/token_formula.hpp"

namespace fairlead::mock {
namespace {

std::vector<TokenId> take(const Reply& reply, std::size_t count, std::span<const TokenId> prompt) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < count; ++i) {
    const auto token = reply.at(i, prompt);
    if (!token) {
      break;
    }
    tokens.push_back(*token);
  }
  return tokens;
}

TEST(TokenFormula, GivesThePublishedVector) {
  const Reply reply(TokenFormula(42, "req-1"), 0);
  EXPECT_EQ(take(reply, 5, {}), (std::vector<TokenId>{2110, 19376, 28263, 4772, 16215}));
}

TEST(TokenFormula, DependsOnSeedAndRequest) {
  EXPECT_NE(TokenFormula(42, "req-1").at(0), TokenFormula(43, "req-1").at(0));
  EXPECT_NE(TokenFormula(42, "req-1").at(0), TokenFormula(42, "req-2").at(0));
}

TEST(TokenChain, GoesOnFromAnyPrefix) {
  auto source = ReplySource::parse("chain", 9, 0);
  ASSERT_TRUE(source);
  const auto answer = [&](std::vector<TokenId> prompt, std::uint32_t count) {
    Sequence sequence;
    sequence.prompt_tokens = prompt.size();
    sequence.tokens = std::move(prompt);
    sequence.reply = source->next("any");
    sequence.stop.max_new_tokens = count;
    for (std::uint32_t i = 0; i < count; ++i) {
      sequence.tokens.push_back(*draw(sequence).token);
    }
    return sequence.tokens;
  };
  const std::vector<TokenId> whole = answer({5, 6, 7}, 10);
  EXPECT_EQ(answer({whole.begin(), whole.begin() + 8}, 5), whole);
  EXPECT_EQ(whole[3], TokenChain(9).at(3, 7));
  EXPECT_NE(TokenChain(9).at(3, 7), TokenChain(9).at(3, 8));
  EXPECT_NE(TokenChain(9).at(3, 7), TokenChain(9).at(4, 7));
}

TEST(TokenFormula, LogprobsFallWithTheDistanceOfTheId) {
  EXPECT_FLOAT_EQ(token_logprob(1000), -0.1F);
  EXPECT_FLOAT_EQ(token_logprob(1009), -1.0F);
  EXPECT_FLOAT_EQ(candidate_logprob(1009, 1009, 32000), -1.0F);
  EXPECT_FLOAT_EQ(candidate_logprob(1009, 1012, 32000), -1.3F);
  EXPECT_FLOAT_EQ(candidate_logprob(31999, 0, 32000), -1.1F);
}

TEST(Reply, StaysInsideASmallVocabulary) {
  const Reply reply(TokenFormula(42, "req-1"), 500);
  for (const TokenId token : take(reply, 100, {})) {
    EXPECT_LT(token, 500U);
  }
}

TEST(Reply, EchoIsThePromptAndEnds) {
  const std::vector<TokenId> prompt = {7, 8, 9};
  EXPECT_EQ(take(Reply::echo(), 10, prompt), prompt);
  EXPECT_EQ(Reply::echo().repeated_at(4, prompt), 8U);
}

TEST(Reply, ReasoningIsMarkedAtBothEnds) {
  Reply reply = Reply::echo();
  reply.add_reasoning({.start_token = 1, .end_token = 2, .ratio = 0.5}, 8);
  const std::vector<TokenId> prompt = {10, 11, 12, 13, 14, 15, 16, 17};
  EXPECT_EQ(take(reply, 8, prompt), (std::vector<TokenId>{1, 11, 12, 2, 14, 15, 16, 17}));
}

class ScriptFile : public ::testing::Test {
 protected:
  void TearDown() override { std::remove(path_.c_str()); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  Result<ReplySource> parse() { return ReplySource::parse("script:" + path_, 1, 0); }

  std::string path_ = ::testing::TempDir() + "fairlead_mock_script.jsonl";
};

TEST_F(ScriptFile, ListsAreDealtInOrderAndRepeated) {
  write("[1, 2, 3]\n\n[4]\n");
  auto source = parse();
  ASSERT_TRUE(source);
  EXPECT_EQ(take(source->next("a"), 9, {}), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(take(source->next("b"), 9, {}), (std::vector<TokenId>{4}));
  EXPECT_EQ(take(source->next("c"), 9, {}), (std::vector<TokenId>{1, 2, 3}));
}

TEST_F(ScriptFile, ErrorsNameTheLine) {
  write("[1]\n[-1]\n");
  const auto source = parse();
  ASSERT_FALSE(source);
  EXPECT_NE(source.error().message.find(":2:"), std::string::npos) << source.error().message;
}

Sequence sequence_of(std::vector<TokenId> prompt, StopRules stop) {
  Sequence sequence;
  sequence.prompt_tokens = prompt.size();
  sequence.tokens = std::move(prompt);
  sequence.stop = std::move(stop);
  return sequence;
}

std::vector<StepOutput> draw_all(Sequence& sequence) {
  std::vector<StepOutput> outputs;
  do {
    outputs.push_back(draw(sequence));
    if (outputs.back().token) {
      sequence.tokens.push_back(*outputs.back().token);
    }
  } while (outputs.back().finish == FinishReason::None);
  return outputs;
}

TEST(Draw, EosEndsAndIsReported) {
  Sequence sequence = sequence_of({5, 6, 7, 8}, {.max_new_tokens = 9, .eos = 7});
  const auto outputs = draw_all(sequence);
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_TRUE(outputs.back().eos);
  EXPECT_EQ(outputs.back().finish, FinishReason::Stop);
}

TEST(Draw, StopTokenEndsUnlessTooEarly) {
  StopRules rules{.max_new_tokens = 4, .stop_ids = {6}};
  Sequence early = sequence_of({5, 6, 7, 8}, rules);
  EXPECT_EQ(draw_all(early).back().stop_token, 6U);
  rules.min_new_tokens = 2;
  Sequence late = sequence_of({5, 6, 7, 8}, rules);
  const auto outputs = draw_all(late);
  EXPECT_EQ(outputs.size(), 4U);
  EXPECT_EQ(outputs[1].token, 5U) << "a stop token is not even drawn before min_new_tokens";
  EXPECT_EQ(outputs.back().finish, FinishReason::Length);
}

TEST(Draw, IgnoredEosIsATokenLikeAnyOther) {
  Sequence sequence = sequence_of({5, 7}, {.max_new_tokens = 5, .eos = 7, .ignore_eos = true});
  const auto outputs = draw_all(sequence);
  ASSERT_EQ(outputs.size(), 5U);
  EXPECT_EQ(outputs[1].token, 7U);
  EXPECT_EQ(outputs[2].token, 5U) << "the reply begins again";
  EXPECT_EQ(outputs.back().finish, FinishReason::Length);
}

TEST(Draw, EndOfReplyIsEosOrABareStop) {
  Sequence with_eos = sequence_of({5}, {.max_new_tokens = 9, .eos = 99});
  EXPECT_EQ(draw_all(with_eos).back().token, 99U);
  Sequence without = sequence_of({5}, {.max_new_tokens = 9});
  const auto outputs = draw_all(without);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_FALSE(outputs.back().token);
  EXPECT_EQ(outputs.back().finish, FinishReason::Stop);
}

}  // namespace
}  // namespace fairlead::mock
