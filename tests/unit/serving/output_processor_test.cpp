#include "serving/output_processor.hpp"

#include <gtest/gtest.h>

#include "serving/testing.hpp"

namespace fairlead::serving {
namespace {

using testing::byte_tokenizer;
using testing::ids_of;

struct Result {
  std::string text;
  std::size_t used = 0;
  std::optional<ChoiceEnd> end;
};

// Feeds ids in messages of `piece` ids; the last one carries `finish`.
Result run(const OutputRules& rules, const std::vector<std::uint32_t>& ids,
           const engine::Finish* finish, std::size_t piece) {
  OutputProcessor processor(rules, *byte_tokenizer(), {});
  Result result;
  for (std::size_t i = 0; i < ids.size() && !result.end; i += piece) {
    const std::size_t count = std::min(piece, ids.size() - i);
    const bool last = i + count == ids.size();
    auto step =
        processor.push(std::span(ids).subspan(i, count), last ? finish : nullptr, result.text);
    result.used += step.used;
    result.end = std::move(step.end);
  }
  return result;
}

engine::Finish finish_at(engine::FinishReason reason) {
  engine::Finish finish;
  finish.reason = reason;
  return finish;
}

TEST(OutputProcessor, LengthEndsWithTheWholeText) {
  const auto finish = finish_at(engine::FinishReason::Length);
  for (std::size_t piece = 1; piece < 9; ++piece) {
    const Result result = run({}, ids_of("héllo 😀"), &finish, piece);
    EXPECT_EQ(result.text, "héllo 😀");
    ASSERT_TRUE(result.end);
    EXPECT_EQ(result.end->reason, EndReason::Length);
    EXPECT_EQ(result.end->matched.index(), 0u);
  }
}

TEST(OutputProcessor, AnIncompleteCharacterIsFlushedHonestly) {
  const auto finish = finish_at(engine::FinishReason::Length);
  for (std::size_t piece = 1; piece < 5; ++piece) {
    EXPECT_EQ(run({}, ids_of("a\xF0\x9F\x98"), &finish, piece).text, "a\xEF\xBF\xBD");
  }
}

TEST(OutputProcessor, EosEndsWithoutTextAndWithoutBeingReported) {
  OutputRules rules;
  rules.eos_token_ids = {256};
  auto ids = ids_of("bye");
  ids.push_back(256);
  ids.push_back('x');
  for (std::size_t piece = 1; piece < 6; ++piece) {
    const Result result = run(rules, ids, nullptr, piece);
    EXPECT_EQ(result.text, "bye");
    EXPECT_EQ(result.used, 4u);
    ASSERT_TRUE(result.end);
    EXPECT_EQ(result.end->reason, EndReason::Stop);
    EXPECT_EQ(result.end->matched.index(), 0u);
  }
}

TEST(OutputProcessor, AUserStopTokenIsReportedAndHidden) {
  OutputRules rules;
  rules.user_stop_ids = {'b'};
  const Result hidden = run(rules, ids_of("abc"), nullptr, 3);
  EXPECT_EQ(hidden.text, "a");
  EXPECT_EQ(hidden.used, 2u);
  EXPECT_EQ(std::get<engine::TokenId>(hidden.end->matched), static_cast<std::uint32_t>('b'));
  rules.include_stop = true;
  EXPECT_EQ(run(rules, ids_of("abc"), nullptr, 1).text, "ab");
}

TEST(OutputProcessor, IgnoreEosLeavesTheUsersStopsWorking) {
  OutputRules rules;
  rules.eos_token_ids = {256};
  rules.ignore_eos = true;
  rules.stop_strings = {"END"};
  auto ids = ids_of("one");
  ids.push_back(256);
  for (const std::uint32_t id : ids_of("twoENDx")) {
    ids.push_back(id);
  }
  const Result result = run(rules, ids, nullptr, 1);
  EXPECT_EQ(result.text, "onetwo");
  EXPECT_EQ(std::get<std::string>(result.end->matched), "END");
}

TEST(OutputProcessor, StopStringsAreFoundAcrossEveryCut) {
  OutputRules rules;
  rules.stop_strings = {"lo w", "wor"};
  for (std::size_t piece = 1; piece < 12; ++piece) {
    const Result result = run(rules, ids_of("hello world"), nullptr, piece);
    EXPECT_EQ(result.text, "hel") << piece;
    EXPECT_EQ(result.used, 7u) << piece;
    EXPECT_EQ(std::get<std::string>(result.end->matched), "lo w");
  }
}

TEST(OutputProcessor, WithheldTextComesOutAtTheEnd) {
  OutputRules rules;
  rules.stop_strings = {"STOP"};
  const auto finish = finish_at(engine::FinishReason::Length);
  const Result result = run(rules, ids_of("a STO"), &finish, 1);
  EXPECT_EQ(result.text, "a STO");
  EXPECT_EQ(result.end->reason, EndReason::Length);
}

TEST(OutputProcessor, NothingStopsBeforeMinTokens) {
  OutputRules rules;
  rules.stop_strings = {"a"};
  rules.eos_token_ids = {256};
  rules.min_tokens = 3;
  const Result result = run(rules, ids_of("aaaa"), nullptr, 1);
  EXPECT_EQ(result.text, "aa");
  EXPECT_EQ(result.used, 3u);
}

TEST(OutputProcessor, SpecialTokensAreShownOnlyOnRequest) {
  const auto finish = finish_at(engine::FinishReason::Length);
  OutputRules rules;
  const std::vector<std::uint32_t> ids{'a', 256, 257, 'b'};
  EXPECT_EQ(run(rules, ids, &finish, 4).text, "a<stop>b");
  rules.skip_special_tokens = false;
  EXPECT_EQ(run(rules, ids, &finish, 4).text, "a<eos><stop>b");
  rules.detokenize = false;
  EXPECT_EQ(run(rules, ids, &finish, 4).text, "");
}

TEST(OutputProcessor, TheEnginesStopTokenIsHiddenEvenWhenWeDoNotKnowIt) {
  engine::Finish finish = finish_at(engine::FinishReason::Stop);
  finish.eos_token_id = 'c';
  const Result result = run({}, ids_of("abc"), &finish, 1);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.used, 3u);
  EXPECT_EQ(result.end->matched.index(), 0u);
}

}  // namespace
}  // namespace fairlead::serving
