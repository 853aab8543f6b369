#include "tokenizer/sentencepiece_normalizer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "charsmap_testing.hpp"
#include "testing.hpp"

namespace fairlead::tokenizer {
namespace {

SentencePieceNormalizer make(const NormalizerRules& rules,
                             const std::vector<std::string>& user_defined = {}) {
  std::vector<SentencePiece> pieces;
  for (const std::string& text : user_defined) {
    pieces.push_back({text, 0, PieceKind::UserDefined});
  }
  auto normalizer = SentencePieceNormalizer::create(rules, user_defined_matcher(pieces));
  EXPECT_TRUE(normalizer);
  return std::move(*normalizer);
}

std::string applied(const SentencePieceNormalizer& normalizer, std::string_view text,
                    bool dummy_prefix = true) {
  std::string out;
  const Result<> done = normalizer.apply(text, dummy_prefix, out, {});
  EXPECT_TRUE(done);
  return out;
}

std::string streamed(const SentencePieceNormalizer& normalizer,
                     const std::vector<std::string>& texts) {
  SentencePieceNormalizer::Stream stream(normalizer);
  std::string out;
  for (const std::string& text : texts) {
    stream.push(text, out);
  }
  stream.finish(out);
  return out;
}

TEST(SentencePieceNormalizer, PutsASpaceInFrontAndTakesExtraOnes) {
  const SentencePieceNormalizer normalizer = make({});
  EXPECT_EQ(applied(normalizer, "  a  b\n c "), "▁a▁b\n▁c");
  EXPECT_EQ(applied(normalizer, "a", false), "a");
  EXPECT_EQ(applied(normalizer, ""), "");
  EXPECT_EQ(applied(normalizer, "   "), "");
  EXPECT_EQ(applied(normalizer, "a▁▁"), "▁a") << "looks like the library's own spaces";
  EXPECT_EQ(applied(normalizer, "▁a ▁ b"), "▁▁a▁▁▁b");
  EXPECT_FALSE(normalizer.keeps_text());
}

TEST(SentencePieceNormalizer, KeepsSpacesWhenToldSo) {
  NormalizerRules rules;
  rules.remove_extra_whitespaces = false;
  EXPECT_EQ(applied(make(rules), " a  b "), "▁▁a▁▁b▁");
  EXPECT_EQ(applied(make(rules), " "), "▁▁");
  EXPECT_EQ(applied(make(rules), ""), "");
  rules.whitespace_as_suffix = true;
  EXPECT_EQ(applied(make(rules), " a"), "▁a▁");
  rules.add_dummy_prefix = false;
  EXPECT_EQ(applied(make(rules), " a"), "▁a");
  EXPECT_TRUE(make(rules).keeps_text());
  rules.escape_whitespaces = false;
  rules.add_dummy_prefix = true;
  EXPECT_EQ(applied(make(rules), " ▁a"), " ▁a ");
  rules.remove_extra_whitespaces = true;
  EXPECT_EQ(applied(make(rules), " ▁a  "), "▁a ") << "the space behind is the added one";
}

TEST(SentencePieceNormalizer, TakesTheLongestKeyAtEachPlace) {
  const std::string map = testing::charsmap({{"a", "x"}, {"ab", "y "}, {"abcd", "z"}, {"q", ""}});
  NormalizerRules rules;
  rules.charsmap = map;
  const SentencePieceNormalizer normalizer = make(rules);
  EXPECT_EQ(applied(normalizer, "abcabcda"), "▁y▁czx");
  EXPECT_EQ(applied(normalizer, "ab ab  c"), "▁y▁y▁c") << "one space for those of the map and text";
  EXPECT_EQ(applied(normalizer, "qq"), "") << "nothing but the added space, which goes";
  EXPECT_EQ(applied(normalizer, " q a"), "▁x") << "what vanishes does not end the extra spaces";
}

TEST(SentencePieceNormalizer, LeavesUserDefinedTextsAlone) {
  const std::string map = testing::charsmap({{"a", "x"}, {"ba", "y"}});
  NormalizerRules rules;
  rules.charsmap = map;
  const SentencePieceNormalizer normalizer = make(rules, {"aa", "aab", "c  d", " e"});
  EXPECT_EQ(applied(normalizer, "aaa aab"), "▁aax▁aab");
  EXPECT_EQ(applied(normalizer, "baa"), "▁yx") << "a key that begins before goes first";
  EXPECT_EQ(applied(normalizer, "c  d  c"), "▁c▁▁d▁c");
  EXPECT_EQ(applied(normalizer, "a  e"), "▁x▁e") << "its space is an extra one all the same";
}

TEST(SentencePieceNormalizer, OfUserDefinedTextsThatBeginAlikeSixtyFourCount) {
  std::vector<std::string> texts;
  for (std::size_t size = 1; size <= 70; ++size) {
    texts.emplace_back(size, 'a');
  }
  std::vector<SentencePiece> pieces;
  for (const std::string& text : texts) {
    pieces.push_back({text, 0, PieceKind::UserDefined});
  }
  const auto match = user_defined_matcher(pieces).find("x" + std::string(100, 'a'), 0);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->span.begin, 1U);
  EXPECT_EQ(match->span.end, 65U);
  EXPECT_EQ(match->index, 63U);
}

TEST(SentencePieceNormalizer, AStreamGivesTheSame) {
  const std::string map = testing::charsmap(
      {{"a", "x"}, {"ab", "y "}, {"abcd", "z"}, {"q", ""}, {"  ", "_"}, {"\u00e9", "e"}});
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    NormalizerRules rules;
    rules.charsmap = random() % 4 != 0 ? std::string_view(map) : std::string_view();
    rules.add_dummy_prefix = random() % 2 == 0;
    rules.remove_extra_whitespaces = random() % 2 == 0;
    rules.escape_whitespaces = random() % 2 == 0;
    rules.whitespace_as_suffix = random() % 4 == 0;
    const SentencePieceNormalizer normalizer = make(rules);
    std::vector<std::string> texts(random() % 8);
    std::string whole;
    for (std::string& text : texts) {
      static constexpr std::array<std::string_view, 10> kOften = {"a", "b", "ab", "c", "d",
                                                                  " ", " ", "▁",  "q", "\u00e9"};
      for (std::size_t n = random() % 5; n != 0; --n) {
        text += kOften[random() % kOften.size()];
      }
      whole += text;
    }
    const std::string expected = applied(normalizer, whole);
    EXPECT_TRUE(utf8::valid(expected));
    EXPECT_EQ(streamed(normalizer, texts), expected) << '"' << whole << '"';
  }
}

TEST(SentencePieceNormalizer, HasBounds) {
  const std::string too_long = testing::charsmap({{"a", std::string(1025, 'x')}});
  NormalizerRules rules;
  rules.charsmap = too_long;
  EXPECT_FALSE(SentencePieceNormalizer::create(rules, {}));
  const std::string map = testing::charsmap({{"a", std::string(1024, 'x')}, {"\xC3", "!"}});
  rules.charsmap = map;
  const SentencePieceNormalizer normalizer = make(rules);
  std::string out;
  EXPECT_EQ(normalizer.apply(std::string(100000, 'a'), true, out, {}).error().code,
            ErrorCode::InvalidRequest);
  EXPECT_LT(out.size(), std::size_t{16} << 20);
  EXPECT_EQ(applied(normalizer, "\u00e9"), "▁!\uFFFD") << "a key may end inside a character";
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(normalizer.apply(std::string(1 << 20, 'b'), true, out, stop.get_token()).error().code,
            ErrorCode::ClientGone);
}

}  // namespace
}  // namespace fairlead::tokenizer
