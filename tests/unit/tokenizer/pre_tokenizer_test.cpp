#include "tokenizer/pre_tokenizer.hpp"

#include <gtest/gtest.h>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

std::string join(const Result<Split>& step, std::string_view text) {
  std::vector<Span> spans;
  EXPECT_TRUE(step && step->apply(text, 0, spans));
  std::string out;
  for (const Span& span : spans) {
    out += out.empty() ? "" : "_";
    out += text.substr(span.begin, span.end - span.begin);
  }
  return out;
}

TEST(Split, BehavioursOnALiteral) {
  constexpr std::string_view kText = "the-final--countdown";
  const auto split = [&](SplitBehavior behavior, bool invert = false) {
    return join(Split::from_string("-", behavior, invert), kText);
  };
  EXPECT_EQ(split(SplitBehavior::Isolated), "the_-_final_-_-_countdown");
  EXPECT_EQ(split(SplitBehavior::Removed), "the_final_countdown");
  EXPECT_EQ(split(SplitBehavior::Removed, true), "-_-_-");
  EXPECT_EQ(split(SplitBehavior::MergedWithPrevious), "the-_final-_-_countdown");
  EXPECT_EQ(split(SplitBehavior::MergedWithNext), "the_-final_-_-countdown");
  EXPECT_EQ(split(SplitBehavior::Contiguous), "the_-_final_--_countdown");
}

TEST(Split, ALiteralIsNoRegex) {
  EXPECT_EQ(join(Split::from_string(".", SplitBehavior::Isolated, false), "a.b"), "a_._b");
}

TEST(Split, RegexWithGapsAndEmptyMatches) {
  EXPECT_EQ(join(Split::from_regex("[0-9]{1,3}", SplitBehavior::Isolated, false), "a12345b"),
            "a_123_45_b");
  EXPECT_EQ(join(Split::from_regex("x*", SplitBehavior::Isolated, false), "axxb"), "a_xx_b");
  EXPECT_EQ(join(Split::from_regex("[a-z]+", SplitBehavior::Removed, true), "ab1cd"), "ab_cd");
}

Result<PreTokenizer> create(std::string_view config) {
  return PreTokenizer::create(*json::parse(config));
}

TEST(PreTokenizer, RefusesByName) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"null", "without a ByteLevel"},
      {R"({"type":"Metaspace"})", "'Metaspace'"},
      {R"({"type":"Sequence","pretokenizers":[{"type":"Punctuation"},{"type":"ByteLevel"}]})",
       "'Punctuation'"},
      {R"({"type":"Digits","individual_digits":1})", "individual_digits"},
      {R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})",
       "'Digits' after ByteLevel"},
      {R"({"type":"Sequence"})", "without pretokenizers"},
      {R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd","invert":false})", "behavior"},
      {R"({"type":"Split","behavior":"Removed","invert":false})", "pattern"},
      {R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Removed","invert":false})", "regex"},
      {R"({"type":"Split","pattern":{"String":"a"},"behavior":"Removed","invert":3})", "invert"},
      {R"({"type":"ByteLevel","use_regex":"yes"})", "use_regex"},
      {"7", "type ''"},
  };
  for (const auto& [config, reason] : cases) {
    const Result<PreTokenizer> result = create(config);
    ASSERT_FALSE(result) << config;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
  }
}

TEST(PreTokenizer, PrefixSpaceGoesBeforeEveryPiece) {
  testing::SmallModel small;
  small.pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true})";
  small.added_tokens = "[" + testing::added_token("<x>") + "]";
  const auto tokenizer = testing::make(small.json());
  EXPECT_EQ(testing::pieces(*tokenizer, "a<x>b<x> c"), " |a|<x>| |b|<x>| |c");
  EXPECT_EQ(testing::pieces(*tokenizer, ""), "");
}

TEST(PreTokenizer, StepsApplyToEveryPieceInOrder) {
  testing::SmallModel small;
  small.merges = {{"a", "b"}, {"ab", "1"}, {"1", "2"}};
  small.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[
           {"type":"Split","pattern":{"Regex":"[0-9]"},"behavior":"Isolated","invert":false},
           {"type":"Split","pattern":{"String":"b"},"behavior":"MergedWithPrevious","invert":false},
           {"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  EXPECT_EQ(testing::pieces(*testing::make(small.json()), "ab12ab"), "ab|1|2|ab");
}

TEST(PreTokenizer, DigitsAloneOrInRuns) {
  testing::SmallModel small;
  small.merges = {{"1", "2"}, {"a", "b"}};
  const auto with = [&](std::string_view digits) {
    small.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[)" + std::string(digits) +
                          R"(,{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true}]})";
    return testing::pieces(*testing::make(small.json()), "ab12ab");
  };
  EXPECT_EQ(with(R"({"type":"Digits","individual_digits":true})"), "ab|1|2|ab");
  EXPECT_EQ(with(R"({"type":"Digits"})"), "ab|12|ab");
}

}  // namespace
}  // namespace fairlead::tokenizer
