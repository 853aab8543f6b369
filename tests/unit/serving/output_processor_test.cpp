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

// Models that write a whole canvas at once have EOS in its middle.
TEST(OutputProcessor, OnlyTheEngineEndsAtEos) {
  const auto length = finish_at(engine::FinishReason::Length);
  auto ids = ids_of("by");
  ids.push_back(256);
  ids.push_back('e');
  for (const bool ignore : {false, true}) {
    for (const bool skip : {false, true}) {
      OutputRules rules;
      rules.eos_token_ids = {256};
      rules.ignore_eos = ignore;
      rules.skip_special_tokens = skip;
      for (std::size_t piece = 1; piece < 6; ++piece) {
        const Result result = run(rules, ids, &length, piece);
        EXPECT_EQ(result.text, skip ? "bye" : "by<eos>e");
        EXPECT_EQ(result.used, 4u);
        ASSERT_TRUE(result.end);
        EXPECT_EQ(result.end->reason, EndReason::Length);
      }
    }
  }
}

TEST(OutputProcessor, EosAtTheEnginesEndIsHiddenAndNotReported) {
  const auto unreported = finish_at(engine::FinishReason::Stop);
  auto reported = unreported;
  reported.eos_token_id = 256;
  auto as_stop = unreported;
  as_stop.stop_token_id = 256;
  auto ids = ids_of("bye");
  ids.push_back(256);
  OutputRules rules;
  rules.eos_token_ids = {256};
  rules.skip_special_tokens = false;
  for (const engine::Finish* finish :
       std::initializer_list<const engine::Finish*>{&unreported, &reported, &as_stop}) {
    for (std::size_t piece = 1; piece < 6; ++piece) {
      const Result result = run(rules, ids, finish, piece);
      EXPECT_EQ(result.text, "bye");
      EXPECT_EQ(result.used, 4u);
      ASSERT_TRUE(result.end);
      EXPECT_EQ(result.end->reason, EndReason::Stop);
      EXPECT_EQ(result.end->matched.index(), 0u);
    }
  }
  // Another token is reported: this one is text.
  auto other = unreported;
  other.stop_token_id = 'x';
  EXPECT_EQ(run(rules, ids, &other, 1).text, "bye<eos>");
  rules.include_stop = true;
  EXPECT_EQ(run(rules, ids, &reported, 2).text, "bye<eos>");
}

TEST(OutputProcessor, AUsersStopEndsAlsoBehindEos) {
  OutputRules rules;
  rules.eos_token_ids = {256};
  rules.user_stop_ids = {'c'};
  std::vector<std::uint32_t> ids{'a', 256, 'b', 'c', 'd'};
  const Result result = run(rules, ids, nullptr, 2);
  EXPECT_EQ(result.text, "ab");
  EXPECT_EQ(result.used, 4u);
  EXPECT_EQ(std::get<engine::TokenId>(result.end->matched), static_cast<std::uint32_t>('c'));
}

struct Offsets {
  std::vector<std::uint32_t> all;
  std::string text;
};

Offsets offsets_of(OutputRules rules, const std::vector<std::uint32_t>& ids, std::size_t piece) {
  rules.offsets = true;
  OutputProcessor processor(rules, *byte_tokenizer(), {});
  Offsets out;
  for (std::size_t i = 0; i < ids.size(); i += piece) {
    const auto part = std::span(ids).subspan(i, std::min(piece, ids.size() - i));
    const auto step = processor.push(part, nullptr, out.text);
    EXPECT_EQ(processor.offsets().size(), step.used);
    out.all.insert(out.all.end(), processor.offsets().begin(), processor.offsets().end());
    if (step.end) {
      break;
    }
  }
  return out;
}

TEST(OutputProcessor, OffsetsCountTheCharactersBeforeEachToken) {
  using Expected = std::vector<std::uint32_t>;
  auto ids = ids_of("hé😀!");
  ids.insert(ids.begin() + 1, 256);  // no text
  OutputRules stop;
  stop.stop_strings = {"lo w"};
  OutputRules late = stop;
  late.min_tokens = 6;
  OutputRules token;
  token.user_stop_ids = {'c'};
  for (std::size_t piece = 1; piece < 12; ++piece) {
    EXPECT_EQ(offsets_of({}, ids, piece).all, (Expected{0, 1, 1, 1, 2, 2, 2, 2, 3})) << piece;
    EXPECT_EQ(offsets_of(stop, ids_of("hello world"), piece).all, (Expected{0, 1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(offsets_of(late, ids_of("lo w lo wx"), piece).all,
              (Expected{0, 1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(offsets_of(token, ids_of("abcd"), piece).all, (Expected{0, 1, 2}));
  }
  OutputProcessor without(stop, *byte_tokenizer(), {});
  std::string text;
  without.push(ids, nullptr, text);
  EXPECT_TRUE(without.offsets().empty()) << "nobody asked";
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
  rules.user_stop_ids = {'a'};
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
