#include "tokenizer/added_tokens.hpp"

#include <gtest/gtest.h>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

using testing::added_token;
using testing::make;
using testing::pieces;
using testing::SmallModel;

SmallModel with(std::initializer_list<std::string> tokens) {
  SmallModel small;
  small.added_tokens = "[";
  for (const std::string& token : tokens) {
    small.added_tokens += (small.added_tokens.size() > 1 ? "," : "") + token;
  }
  small.added_tokens += "]";
  small.pre_tokenizer = R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":
      {"Regex":"\\s+"},"behavior":"MergedWithNext","invert":false},{"type":"ByteLevel",
      "add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  return small;
}

TEST(LiteralMatcher, LeftmostThenLongest) {
  LiteralMatcher matcher;
  for (const std::string_view literal : {"ab", "abcd", "bc", "", "x", "abcd"}) {
    matcher.add(literal);
  }
  const auto found = matcher.find("zabcz", 0);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->span, (Span{1, 3}));
  EXPECT_EQ(found->index, 0u);
  EXPECT_EQ(matcher.find("zabcdx", 0)->index, 1u);
  EXPECT_EQ(matcher.find("zabcdx", 2)->index, 2u);
  EXPECT_EQ(matcher.find("zabcdx", 5)->index, 4u);
  EXPECT_FALSE(matcher.find("abc", 2));
  EXPECT_FALSE(LiteralMatcher().find("abc", 0));
}

TEST(AddedTokens, WrittenIdsCountForNothing) {
  // 256 byte tokens, so the next free ids are 256 and 257; "a" is in the vocabulary.
  const auto tokenizer =
      make(with({added_token("<x>"), added_token("a"), added_token("<y>")}).json());
  EXPECT_EQ(tokenizer->token_to_id("<x>"), 256u);
  EXPECT_EQ(tokenizer->token_to_id("a"), static_cast<TokenId>('a'));
  EXPECT_EQ(tokenizer->token_to_id("<y>"), 257u);
  EXPECT_EQ(tokenizer->vocab_size(), 258u);
}

TEST(AddedTokens, MatchTheLongest) {
  const auto tokenizer = make(with({added_token("<|a|>"), added_token("<|a|>x")}).json());
  EXPECT_EQ(pieces(*tokenizer, "1<|a|>x<|a|>y<|a|"), "1|<|a|>x|<|a|>|y|<|||a||");
}

TEST(AddedTokens, StripTakesWhiteSpace) {
  const auto tokenizer =
      make(with({added_token("<l>", "lstrip"), added_token("<r>", "rstrip")}).json());
  EXPECT_EQ(pieces(*tokenizer, "a \u2003<l> b"), "a|<l>| |b");
  EXPECT_EQ(pieces(*tokenizer, "a <r> \n b"), "a| |<r>|b");
  EXPECT_EQ(pieces(*tokenizer, "<r>  <l>"), "<r>|<l>");
}

TEST(AddedTokens, TextBehindAnRstripCanBeProducedTwice) {
  const auto tokenizer = make(with({added_token("<x>", "rstrip"), added_token(" b")}).json());
  EXPECT_EQ(pieces(*tokenizer, "a<x> b"), "a|<x>| b");
}

TEST(AddedTokens, SingleWordNeedsNonWordNeighbours) {
  const auto tokenizer = make(with({added_token("<m>", "single_word")}).json());
  EXPECT_EQ(pieces(*tokenizer, "<m>,<m>"), "<m>|,|<m>");
  EXPECT_EQ(pieces(*tokenizer, "a<m>"), "a|<|m|>");
  EXPECT_EQ(pieces(*tokenizer, "<m>1"), "<|m|>|1");
}

TEST(AddedTokens, NormalizedOnesMatchNormalizedText) {
  SmallModel small = with({added_token("caf\u00E9", "normalized"),
                           added_token("\u212B", "normalized"), added_token("e\u0301")});
  small.normalizer = R"({"type":"NFC"})";
  const auto tokenizer = make(small.json());
  EXPECT_EQ(testing::encode(*tokenizer, "caf\u00E9"), (std::vector<TokenId>{256}));
  EXPECT_EQ(testing::encode(*tokenizer, "A\u030A"), (std::vector<TokenId>{257}));
  // The raw token comes first and cuts the word.
  EXPECT_EQ(pieces(*tokenizer, "cafe\u0301"), "c|a|f|e\u0301");
}

}  // namespace
}  // namespace fairlead::tokenizer
