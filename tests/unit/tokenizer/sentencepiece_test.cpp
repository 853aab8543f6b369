#include "tokenizer/sentencepiece.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "charsmap_testing.hpp"
#include "sentencepiece_testing.hpp"
#include "testing.hpp"
#include "tokenizer/incremental_decoder.hpp"

namespace fairlead::tokenizer {
namespace {

using testing::bytes_field;
using testing::number_field;
using testing::SmallPieces;

std::shared_ptr<const Tokenizer> load(const SmallPieces& pieces,
                                      std::optional<std::string_view> config = {}) {
  auto tokenizer = Tokenizer::parse_file("tokenizer.model", pieces.bytes(), config);
  if (!tokenizer) {
    ADD_FAILURE() << tokenizer.error().message;
    return nullptr;
  }
  return *tokenizer;
}

// The pieces of a text, separated by spaces.
std::string spelled(const Tokenizer& tokenizer, std::string_view text, bool specials = false) {
  std::string out;
  for (const TokenId id : testing::encode(tokenizer, text, specials)) {
    out += (out.empty() ? "" : " ") + tokenizer.token_spelling(id);
  }
  return out;
}

std::string spelled(const SmallPieces& pieces, std::string_view text) {
  const auto tokenizer = load(pieces);
  return tokenizer ? spelled(*tokenizer, text) : "";
}

std::vector<TokenId> ids(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<TokenId> out;
  for (const std::string& token : tokens) {
    out.push_back(tokenizer.token_to_id(token).value());
  }
  return out;
}

// What a stream sends, its parts separated by `|`.
std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  IncrementalDecoder decoder(tokenizer, skip);
  std::string out;
  for (const TokenId id : ids) {
    decoder.push(id, out);
    out += '|';
  }
  decoder.flush(out);
  return out;
}

std::string decoded(const Tokenizer& tokenizer, const std::vector<std::string>& tokens,
                    bool skip = true) {
  const std::vector<TokenId> list = ids(tokenizer, tokens);
  std::string whole = tokenizer.decode(list, skip);
  std::string sent = streamed(tokenizer, list, skip);
  std::erase(sent, '|');
  EXPECT_EQ(sent, whole);
  return whole;
}

SmallPieces letters(SentencePieceKind kind = SentencePieceKind::Bpe) {
  SmallPieces pieces(kind);
  return pieces.add("▁", -20).add("a", -21).add("b", -22).add("c", -23);
}

TEST(SentencePieceBpe, MergesByScoreWhateverTheParts) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("ab", -2).add("bc", -1).add("abc", -3);
  EXPECT_EQ(spelled(pieces, "abc"), "abc");
  EXPECT_EQ(spelled(pieces, "abcabab"), "abc ab ab");
  EXPECT_EQ(spelled(pieces, "aabc c"), "a abc ▁ c");
}

TEST(SentencePieceBpe, OfEqualScoresTheLeftmostGoesFirst) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("ab", -1).add("bc", -1).add("aa", -1);
  EXPECT_EQ(spelled(pieces, "abc"), "ab c");
  EXPECT_EQ(spelled(pieces, "aab"), "aa b");
  EXPECT_EQ(spelled(pieces, "bcab"), "bc ab");
  std::string text;
  std::string expected;
  for (int i = 0; i < 200; ++i) {  // longer than what is merged without a queue
    text += "abc";
    expected += i == 0 ? "ab c" : " ab c";
  }
  EXPECT_EQ(spelled(pieces, text), expected);
}

TEST(SentencePieceBpe, CharactersThatAreNoPiecesAreParts) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("xy", -1).add("axy", -2).add("é!", -3);
  EXPECT_EQ(spelled(pieces, "axy xy"), "axy ▁ xy");
  EXPECT_EQ(spelled(pieces, "xa yxé"), "<unk> a ▁ <unk>") << "one for all that is unknown";
  EXPECT_EQ(spelled(pieces, "é!x?"), "é! <unk>");
  EXPECT_EQ(spelled(pieces.add_bytes(), "xé?a"), "<0x78> <0xC3> <0xA9> <0x3F> a");
}

TEST(SentencePieceBpe, PiecesThatAreNotGivenOutFallApartAsTheyWereLastFound) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("ab", -1, PieceKind::Unused).add("abc", -2).add("bc", -3).add("c▁", -9);
  EXPECT_EQ(spelled(pieces, "ab"), "a b");
  EXPECT_EQ(spelled(pieces, "abc"), "abc");
  // Two ways to find "aab": the last one counts, for all of the text.
  SmallPieces two = letters().keep_spaces();
  two.add("aa", -1).add("ab", -2).add("aab", -3, PieceKind::Unused);
  EXPECT_EQ(spelled(two, "aab"), "aa b");
  SmallPieces other = letters().keep_spaces();
  other.add("ab", -1).add("aa", -5).add("aab", -3, PieceKind::Unused);
  EXPECT_EQ(spelled(other, "aab"), "a ab");
  SmallPieces character = letters().keep_spaces();
  character.add("x", -1, PieceKind::Unused).add("xa", -2);
  EXPECT_EQ(spelled(character, "xax"), "xa <unk>");
  SmallPieces with_user = letters().keep_spaces();
  with_user.add("ab", -1, PieceKind::Unused).add("bca", 0, PieceKind::UserDefined);
  EXPECT_EQ(spelled(with_user, "abbcab?é"), "a b bca b <unk>");
}

TEST(SentencePieceBpe, UserDefinedPiecesStayApart) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("ab", -1).add("bb", -2).add("cab", -3);
  pieces.add("b", 0, PieceKind::UserDefined).pieces.size();
  EXPECT_FALSE(Tokenizer::parse_file("tokenizer.model", pieces.bytes(), {})) << "b is there twice";
  SmallPieces user(SentencePieceKind::Bpe);
  user.keep_spaces().add("a", -1).add("c", -2).add("ac", -3).add("ca", -4);
  user.add("<c>", 0, PieceKind::UserDefined).add("▁▁", 0, PieceKind::UserDefined);
  EXPECT_EQ(spelled(user, "a<c>ac  a"), "a <c> ac ▁▁ a");
  EXPECT_EQ(spelled(user, "<<c>>"), "<unk> <c> <unk>");
}

TEST(SentencePieceBpe, ControlPiecesAreNotFoundInAText) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.add("<", -30).add("s", -31).add(">", -32).add("<s", -1).add("y", 0, PieceKind::Control);
  EXPECT_EQ(spelled(pieces, "<s>a"), "<s > a");
  EXPECT_EQ(spelled(pieces, "aya"), "a <unk> a");
}

TEST(SentencePieceUnigram, TakesTheBestSumAndUserDefinedPiecesFirst) {
  SmallPieces pieces = letters(SentencePieceKind::Unigram).keep_spaces();
  pieces.add("ab", -30).add("bc", -40).add("abc", -50);
  EXPECT_EQ(spelled(pieces, "abc"), "abc");
  EXPECT_EQ(spelled(pieces, "abbc"), "ab bc");
  pieces.add("cab", 0, PieceKind::UserDefined).add("aa", -1, PieceKind::Unused);
  EXPECT_EQ(spelled(pieces, "abcabcaa"), "ab cab c a a");
}

TEST(SentencePieceUnigram, UnknownCharactersAreOneOrBytes) {
  SmallPieces pieces = letters(SentencePieceKind::Unigram).keep_spaces();
  pieces.add("x", -1, PieceKind::Unused).add("!?a", -5);
  EXPECT_EQ(spelled(pieces, "a!?xéb!?a"), "a <unk> b !?a");
  EXPECT_EQ(spelled(pieces.add_bytes(), "!éa"), "<0x21> <0xC3> <0xA9> a");
}

TEST(SentencePieceUnigram, AddsInThirtyTwoBits) {
  // In 32 bits both ways have the same sum, and the piece that began first wins.
  SmallPieces pieces(SentencePieceKind::Unigram);
  pieces.keep_spaces().add("a", -0.1F).add("b", -90000).add("ab", -90000.102F);
  EXPECT_EQ(spelled(pieces, "ab"), "ab");
  // Far from 0 sums are counted anew, so that they keep their digits.
  SmallPieces close(SentencePieceKind::Unigram);
  close.keep_spaces().add("x", -60000).add("a", -1).add("b", -1).add("ab", -2.001F);
  EXPECT_EQ(spelled(close, "xxab"), "x x a b");
}

TEST(SentencePieceWords, AreLookedUpWhole) {
  SmallPieces pieces(SentencePieceKind::Word);
  pieces.add("▁a", -1).add("▁b c", -1).add("▁ab", -1, PieceKind::Unused);
  EXPECT_EQ(spelled(pieces, "a a"), "▁a ▁a");
  EXPECT_EQ(spelled(pieces, "a ab x a"), "▁a <unk> ▁a");
  pieces.keep_spaces();
  EXPECT_EQ(spelled(pieces, "a▁a a"), "<unk> ▁a ▁a");
}

TEST(SentencePieceCharacters, AreLookedUpWithUserDefinedPieces) {
  SmallPieces pieces = letters(SentencePieceKind::Char).keep_spaces();
  pieces.add("ab", -1).add("bca", 0, PieceKind::UserDefined).add("x", -1, PieceKind::Unused);
  EXPECT_EQ(spelled(pieces, "abbcab cxé"), "a b bca b ▁ c <unk>");
}

TEST(SentencePieceText, NormalizesFirst) {
  const std::string map = testing::charsmap({{"A", "a"}, {"\u00a0", " "}});
  SmallPieces pieces = letters();
  pieces.normalizer = bytes_field(2, map);
  EXPECT_EQ(spelled(pieces, " A\u00a0 b "), "▁ a ▁ b");
  pieces.trainer = number_field(24, 1);
  EXPECT_EQ(spelled(pieces, " A\u00a0 b "), "a ▁ b ▁");
  pieces.normalizer = bytes_field(2, "no map");
  EXPECT_FALSE(Tokenizer::parse_file("tokenizer.model", pieces.bytes(), {}));
}

TEST(SentencePieceText, DecodesAsTheLibrary) {
  SmallPieces prefix = letters();
  prefix.normalizer = number_field(4, 0);
  prefix.add("▁▁", -1, PieceKind::UserDefined).add("▁a▁", -1).add("<0x41>", -1);
  const auto once = load(prefix);
  EXPECT_EQ(decoded(*once, {"▁", "▁", "a"}), " a") << "one space less";
  EXPECT_EQ(decoded(*once, {"a", "▁", "▁a▁"}), "a  a ");
  EXPECT_EQ(decoded(*once, {"▁▁", "a"}), " a");
  EXPECT_EQ(decoded(*once, {"<s>", "▁", "a", "</s>", "b"}), "ab");
  EXPECT_EQ(decoded(*once, {"<unk>", "▁", "a"}), " \u2047  a");
  EXPECT_EQ(decoded(*once, {"<0x41>"}), "<0x41>") << "no byte without byte_fallback";
  const auto all = load(letters().add("▁▁", -1, PieceKind::UserDefined));
  EXPECT_EQ(decoded(*all, {"▁", "▁", "▁", "a", "▁"}), "a ");
  EXPECT_EQ(decoded(*all, {"▁▁", "▁", "a"}), "  a");
  const auto none = load(letters().keep_spaces());
  EXPECT_EQ(decoded(*none, {"▁", "a"}), " a");
  EXPECT_EQ(none->decode(std::vector<TokenId>{500, 4}, true), "a") << "unknown ids are skipped";
}

TEST(SentencePieceText, ControlPiecesShowWhenAskedFor) {
  const auto tokenizer = load(letters());
  EXPECT_EQ(decoded(*tokenizer, {"<s>", "▁", "a"}, false), "<s> a");
  EXPECT_TRUE(tokenizer->is_special(1));
  EXPECT_FALSE(tokenizer->is_special(0)) << "the library writes what is unknown";
  EXPECT_EQ(tokenizer->token_bytes(3), " ");
  EXPECT_EQ(tokenizer->token_bytes(0), " \u2047 ");
  EXPECT_EQ(tokenizer->token_spelling(3), "▁");
  EXPECT_EQ(tokenizer->token_spelling(0), "<unk>");
}

TEST(SentencePieceText, BytesBecomeCharacters) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.trainer += bytes_field(44, "?");
  const auto tokenizer = load(pieces.add_bytes());
  EXPECT_EQ(decoded(*tokenizer, {"a", "<0xE4>", "<0xB8>", "<0xAD>", "b"}), "a中b");
  EXPECT_EQ(decoded(*tokenizer, {"<0xE4>", "<0xB8>", "<unk>"}), "\uFFFD\uFFFD?");
  EXPECT_EQ(decoded(*tokenizer, {"<0xFF>", "<0xC3>", "<0xA9>", "<0xED>", "<0xA0>", "<0x80>"}),
            "\uFFFDé\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(streamed(*tokenizer, ids(*tokenizer, {"<0xC3>", "<0xA9>", "<0xF0>", "<0x9F>"}), true),
            "|é|||\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->token_to_id("<0xC3>").value()), "\xC3");
}

TEST(SentencePieceText, ADenormalizerHoldsBackWhatItMayChange) {
  SmallPieces pieces = letters().keep_spaces();
  pieces.denormalizer = bytes_field(2, testing::charsmap({{"ab", "x"}, {"abca", "y"}})) +
                        number_field(3, 0) + number_field(4, 0) + number_field(5, 0);
  const auto tokenizer = load(pieces);
  EXPECT_EQ(decoded(*tokenizer, {"a", "b", "c", "a", "b"}), "yb");
  EXPECT_EQ(streamed(*tokenizer, ids(*tokenizer, {"c", "a", "b", "c", "c", "a"}), true),
            "c||||xcc||a");
}

TEST(SentencePieceText, StreamsEqualDecoding) {
  SmallPieces pieces = letters();
  pieces.add("▁▁", -1).add("▁ab", -1).add_bytes();
  pieces.denormalizer = bytes_field(2, testing::charsmap({{"ab", "x"}, {"  ", "_"}}));
  std::mt19937 random(11);
  for (int i = 0; i < 3000; ++i) {
    pieces.normalizer = number_field(3, random() % 2) + number_field(4, random() % 2);
    if (i % 300 == 150) {
      pieces.denormalizer.clear();
    }
    static std::shared_ptr<const Tokenizer> tokenizer;
    if (i % 100 == 0) {
      tokenizer = load(pieces);
    }
    std::vector<TokenId> list(random() % 12);
    for (TokenId& id : list) {
      id = random() % 3 != 0 ? random() % 9 : random() % 280;
    }
    for (const bool skip : {true, false}) {
      std::string sent = streamed(*tokenizer, list, skip);
      const std::string whole = tokenizer->decode(list, skip);
      std::erase(sent, '|');
      std::string without = whole;
      std::erase(without, '|');
      ASSERT_EQ(sent, without);
    }
  }
}

TEST(SentencePieceText, AStreamGoesOnBehindAPrompt) {
  const auto tokenizer = load(letters().keep_spaces().add_bytes());
  const std::vector<TokenId> prompt = ids(*tokenizer, {"a", "<0xC3>"});
  IncrementalDecoder decoder(*tokenizer, true, prompt);
  std::string out;
  decoder.push(tokenizer->token_to_id("<0xA9>").value(), out);
  decoder.push(tokenizer->token_to_id("▁").value(), out);
  decoder.flush(out);
  EXPECT_EQ(out, "é ");
}

TEST(SentencePieceFolder, AddsTheTokensThatItsConfigAsksFor) {
  const auto specials = [](std::optional<std::string_view> config) {
    const auto tokenizer = load(letters(), config);
    return tokenizer ? spelled(*tokenizer, "a", true) : "";
  };
  EXPECT_EQ(specials({}), "<s> ▁ a");
  EXPECT_EQ(specials(""), "<s> ▁ a");
  EXPECT_EQ(specials(R"({"add_bos_token":false})"), "▁ a");
  EXPECT_EQ(specials(R"({"add_bos_token":true,"add_eos_token":true})"), "<s> ▁ a </s>");
  EXPECT_EQ(specials(R"({"add_eos_token":true,"eos_token":"c"})"), "<s> ▁ a c");
  SmallPieces none;
  none.add("<unk>", 0, PieceKind::Unknown).add("<s>", -1).add("▁", -1).add("a", -1);
  EXPECT_EQ(spelled(*load(none), "a", true), "▁ a") << "its <s> is no control piece";
}

TEST(SentencePieceFolder, FindsSpecialTokensInAText) {
  EXPECT_EQ(spelled(*load(letters()), "a</s>b"), "▁ a <unk> b");
  EXPECT_EQ(spelled(*load(letters(), ""), "a</s>b</s> c"), "▁ a </s> ▁ b </s> ▁ c");
  SmallPieces pieces = letters();
  pieces.normalizer = number_field(4, 0);
  const auto with = [&](std::string_view config, std::string_view text) {
    return spelled(*load(pieces, config), text);
  };
  EXPECT_EQ(with(R"({"legacy":false})", "a</s>b</s> c"), "▁ a </s> b </s> ▁ c");
  EXPECT_EQ(with(R"({"legacy":true})", "</s>b</s> c"), "</s> ▁ b </s> ▁ ▁ c");
  EXPECT_EQ(with(R"({"tokenizer_class":"LlamaTokenizer"})", "</s>b"), "</s> b");
  EXPECT_EQ(with(R"({"legacy":true,"tokenizer_class":"LlamaTokenizer"})", "</s>b"), "</s> ▁ b");
  const auto added = load(pieces, R"({"unk_token":"<unk>","additional_special_tokens":["<x>"],
      "added_tokens_decoder":{"3":{"content":"▁"},"0":{"content":"<unk>","special":true},
                              "9":{"content":"<y>","special":false}}})");
  ASSERT_TRUE(added);
  EXPECT_EQ(testing::encode(*added, "<x>a<y><unk>"), (std::vector<TokenId>{7, 3, 4, 9, 0}));
  EXPECT_EQ(added->decode(std::vector<TokenId>{0, 7, 9}, true), "<y>");
}

TEST(SentencePieceFolder, NamesItsEnds) {
  const auto tokenizer = load(letters());
  ASSERT_NE(tokenizer->special_tokens().find("eos_token"), nullptr);
  EXPECT_EQ(*tokenizer->special_tokens().find("eos_token"), "</s>");
  EXPECT_EQ(*tokenizer->special_tokens().find("bos_token"), "<s>");
}

TEST(SentencePieceText, ATokenHoldsSoMuchText) {
  EXPECT_EQ(load(letters().add_bytes().keep_spaces())->min_tokens(std::string(60, 'a')), 10U)
      << "a byte piece is the longest";
  EXPECT_EQ(load(letters().add_bytes())->min_tokens(std::string(60, ' ')), 0U);
  EXPECT_EQ(load(letters().keep_spaces())->min_tokens(std::string(60, 'x')), 0U);
}

}  // namespace
}  // namespace fairlead::tokenizer
