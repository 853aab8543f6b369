#include <gtest/gtest.h>

#include <fmt/format.h>

#include <random>
#include <string>
#include <vector>

#include "tokenizer/models_testing.hpp"
#include "tokenizer/testing.hpp"

// `Tokenizer::min_tokens` of the general path, against what texts really become.

namespace fairlead::tokenizer {
namespace {

using testing::added_token;
using testing::bpe;
using testing::encode;
using testing::make;
using testing::random_text;

constexpr std::string_view kPrepend = R"({"type":"Prepend","prepend":"\u2581"})";
constexpr std::string_view kReplace =
    R"({"type":"Replace","pattern":{"String":" "},"content":"\u2581"})";

std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
  }
  return tokens;
}

// Four characters in the longest token but for those of bytes, of which there are six.
std::string byte_fallback_bpe(std::string_view more = "") {
  std::vector<std::string> tokens = byte_tokens();
  for (const char* token : {"<unk>", "a", "s", "\u2581", "as", "\u2581as", "\u2581asa"}) {
    tokens.emplace_back(token);
  }
  return bpe(tokens, {"a s", "\u2581 as", "\u2581as a"},
             R"("byte_fallback":true,"unk_token":"<unk>","fuse_unk":true)" + std::string(more));
}

std::string unigram(bool bytes, const std::string& unk_id = "0") {
  std::string out = R"({"type":"Unigram","unk_id":)" + unk_id +
                    R"(,"byte_fallback":true,"vocab":[["<unk>",-20],["s",-2],["ssss",-3])";
  for (const std::string& token : bytes ? byte_tokens() : std::vector<std::string>()) {
    out += fmt::format(R"(,["{}",-30])", token);
  }
  return out + "]}";
}

struct Parts {
  std::string model = byte_fallback_bpe();
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string added_tokens = "[]";

  std::string json() const {
    return R"({"version":"1.0","added_tokens":)" + added_tokens + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre_tokenizer +
           R"(,"post_processor":null,"decoder":{"type":"Fuse"},"model":)" + model + "}";
  }
};

std::string steps(std::string_view type, std::string_view member,
                  std::initializer_list<std::string_view> parts) {
  std::string out = fmt::format(R"({{"type":"{}","{}":[)", type, member);
  for (const std::string_view part : parts) {
    out += (out.ends_with('[') ? "" : ",") + std::string(part);
  }
  return out + "]}";
}

std::string normalizers(std::initializer_list<std::string_view> parts) {
  return steps("Sequence", "normalizers", parts);
}

// Fails when a text has fewer tokens than was said. True when something was said at all.
bool holds(const Parts& parts) {
  const auto tokenizer = make(parts.json());
  if (tokenizer == nullptr) {
    return false;
  }
  std::mt19937 random(11);
  bool any = false;
  for (int i = 0; i < 200; ++i) {
    std::string text = random_text(random, random() % 60);
    for (std::size_t more = random() % 30; more > 0; --more) {
      constexpr std::string_view kWords[] = {" asa", "ssss", "<|x|>", "\u00E9", " ", "e\u0301"};
      text += kWords[random() % std::size(kWords)];
    }
    std::vector<TokenId> ids;
    if (!tokenizer->encode(text, false, ids)) {
      continue;
    }
    EXPECT_LE(tokenizer->min_tokens(text), ids.size()) << text;
    any = any || tokenizer->min_tokens(text) > 0;
  }
  return any;
}

TEST(MinTokens, FollowsFromTheCharactersOfTheLongestToken) {
  const auto tokenizer = make(Parts{.normalizer = normalizers({kPrepend, kReplace})}.json());
  EXPECT_EQ(tokenizer->min_tokens(""), 0U);
  EXPECT_EQ(tokenizer->min_tokens("abcdef"), 1U) << "the spelling of a byte is the longest";
  EXPECT_EQ(tokenizer->min_tokens("abcdefg"), 2U);
  EXPECT_EQ(tokenizer->min_tokens(std::string(600, ' ')), 100U);
  EXPECT_EQ(tokenizer->min_tokens("\u4E2D\u4E2D\u4E2D\u4E2D\u4E2D\u4E2D"), 1U)
      << "characters count, not bytes";
}

TEST(MinTokens, AnAddedTokenMayBeTheLongest) {
  Parts parts;
  parts.added_tokens = "[" + added_token("<|\u00E9\u00E9\u00E9\u00E9|>", "special") + "," +
                       added_token("<|x|>", "normalized") + "]";
  EXPECT_EQ(make(parts.json())->min_tokens(std::string(80, 'a')), 10U);
  EXPECT_TRUE(holds(parts));
  parts.added_tokens = "[" + added_token("<|x|>", "rstrip") + "]";
  EXPECT_FALSE(holds(parts)) << "takes any amount of white space";
}

TEST(MinTokens, NormalizersMayShortenSoMuch) {
  const auto longest = [](std::string_view normalizer) {
    const auto tokenizer = make(Parts{.normalizer = normalizers({normalizer})}.json());
    const std::size_t least = tokenizer->min_tokens(std::string(7200, 'a'));
    return least == 0 ? 0 : 7200 / least;
  };
  const auto replace = [&](std::string_view from, std::string_view to) {
    return longest(fmt::format(R"({{"type":"Replace","pattern":{{"String":"{}"}},"content":"{}"}})",
                               from, to));
  };
  EXPECT_EQ(longest(kReplace), 6U);
  EXPECT_EQ(longest(R"({"type":"Lowercase"})"), 6U);
  EXPECT_EQ(longest(R"({"type":"ByteLevel"})"), 6U);
  EXPECT_EQ(longest(R"({"type":"NFD"})"), 6U);
  EXPECT_EQ(longest(R"({"type":"NFKC"})"), 24U);
  EXPECT_EQ(replace("s", "aaa"), 6U);
  EXPECT_EQ(replace("sss", "a"), 18U);
  EXPECT_EQ(replace("sss", "aa"), 12U);
  EXPECT_EQ(replace("s", ""), 0U);
  EXPECT_EQ(longest(R"({"type":"Replace","pattern":{"Regex":"s+"},"content":"a"})"), 0U);
  EXPECT_EQ(longest(R"({"type":"Strip","strip_left":true,"strip_right":true})"), 0U);
  EXPECT_EQ(longest(R"({"type":"StripAccents"})"), 0U);
  EXPECT_EQ(longest(R"({"type":"Nmt"})"), 0U);
  EXPECT_EQ(longest(R"({"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
                    R"("strip_accents":null,"lowercase":true})"),
            0U);
}

TEST(MinTokens, HoldsForWhateverKeepsText) {
  constexpr std::string_view kShrink =
      R"({"type":"Replace","pattern":{"String":"ss"},"content":"s"})";
  for (const std::string& normalizer :
       {std::string("null"), normalizers({kPrepend, kReplace}), normalizers({R"({"type":"NFC"})"}),
        normalizers({R"({"type":"NFKC"})", R"({"type":"Lowercase"})"}), normalizers({kShrink}),
        normalizers({R"({"type":"NFKD"})", R"({"type":"ByteLevel"})"}),
        normalizers({kShrink, kShrink, R"({"type":"NFC"})"})}) {
    for (const std::string_view pre_tokenizer :
         {R"(null)", R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first"})",
          R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})",
          R"({"type":"Digits","individual_digits":true})",
          R"({"type":"Punctuation","behavior":"MergedWithNext"})"}) {
      for (const std::string& model :
           {byte_fallback_bpe(), byte_fallback_bpe(R"(,"end_of_word_suffix":"</w>")"),
            byte_fallback_bpe(R"(,"ignore_merges":true)"), unigram(true), unigram(false, "null"),
            bpe({"<unk>", "s", "a", "sa"}, {"s a"}, R"("unk_token":"<unk>")")}) {
        const Parts parts{.model = model,
                          .normalizer = normalizer,
                          .pre_tokenizer = std::string(pre_tokenizer),
                          .added_tokens = "[" + added_token("<|x|>", "normalized") + "]"};
        const bool said = holds(parts);
        // Without an unknown token most texts are errors.
        EXPECT_TRUE(said || model == unigram(false, "null")) << parts.json();
      }
    }
  }
}

TEST(MinTokens, NothingIsSaidWhereTextMayVanishOrAnyAmountBecomeOne) {
  for (const std::string_view pre_tokenizer :
       {R"({"type":"Whitespace"})", R"({"type":"WhitespaceSplit"})", R"({"type":"UnicodeScripts"})",
        R"({"type":"BertPreTokenizer"})", R"({"type":"CharDelimiterSplit","delimiter":"-"})",
        R"({"type":"Punctuation","behavior":"Removed"})"}) {
    EXPECT_FALSE(holds({.pre_tokenizer = std::string(pre_tokenizer)})) << pre_tokenizer;
  }
  for (const std::string& model :
       {unigram(false), bpe({"s"}),
        bpe({"<unk>", "s"}, {}, R"("unk_token":"<unk>","fuse_unk":true)"),
        bpe({"<0x41>", "s"}, {}, R"("byte_fallback":true)"),
        bpe({"<unk>", "s", "##s"}, {}, R"("unk_token":"<unk>","continuing_subword_prefix":"##")"),
        std::string(R"({"type":"WordLevel","vocab":{"<unk>":0},"unk_token":"<unk>"})"),
        std::string(R"({"type":"WordPiece","vocab":{"<unk>":0},"unk_token":"<unk>",)"
                    R"("continuing_subword_prefix":"##","max_input_chars_per_word":100})")}) {
    EXPECT_FALSE(holds({.model = model})) << model;
  }
}

TEST(MinTokens, AFastPathBehindAnyNormalizerHasOneToo) {
  testing::SmallModel small;
  small.normalizer = R"({"type":"NFKC"})";
  small.merges = {{"a", "a"}, {"aa", "aa"}};
  const auto tokenizer = make(small.json());
  EXPECT_EQ(tokenizer->min_tokens(std::string(160, 'a')), 10U);
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const std::string text = random_text(random, 100);
    EXPECT_LE(tokenizer->min_tokens(text), encode(*tokenizer, text).size()) << text;
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
