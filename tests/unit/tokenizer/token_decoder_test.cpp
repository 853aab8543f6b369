#include "tokenizer/token_decoder.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.hpp"

// Whole decodings are what `tokenizers` 0.23.3 gives for the same configuration and tokens.
namespace fairlead::tokenizer {
namespace {

using Tokens = std::vector<std::string_view>;

constexpr const char* kLlama =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
constexpr const char* kGemma =
    R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"}]})";
constexpr const char* kMetaspace =
    R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
constexpr const char* kWordPiece = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
constexpr const char* kBpe = R"({"type":"BPEDecoder","suffix":"</w>"})";
constexpr const char* kByteFallback = R"({"type":"ByteFallback"})";
constexpr const char* kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";

std::string ctc(const char* pad, const char* delimiter, const char* cleanup) {
  return std::string(R"({"type":"CTC","pad_token":")") + pad + R"(","word_delimiter_token":")" +
         delimiter + R"(","cleanup":)" + cleanup + "}";
}

// A Sequence of Fuse and another decoder.
std::string fused(const std::string& decoder) {
  return R"({"type":"Sequence","decoders":[{"type":"Fuse"},)" + decoder + "]}";
}

std::string replace(const char* kind, const char* pattern, const char* content) {
  return std::string(R"({"type":"Replace","pattern":{")") + kind + R"(":")" + pattern +
         R"("},"content":")" + content + R"("})";
}

std::string strip(const char* content, int start, int stop) {
  return std::string(R"({"type":"Strip","content":")") + content + R"(","start":)" +
         std::to_string(start) + R"(,"stop":)" + std::to_string(stop) + "}";
}

TokenDecoder make(std::string_view config) {
  auto decoder = TokenDecoder::create(*json::parse(config));
  EXPECT_TRUE(decoder) << config << ": " << (decoder ? "" : decoder.error().message);
  return decoder ? std::move(*decoder) : *TokenDecoder::create(json::Value());
}

std::string decode(std::string_view config, const Tokens& tokens) {
  return make(config).decode(tokens);
}

// The deltas of the tokens and of the flush, separated by `|`.
std::string deltas(std::string_view config, const Tokens& tokens, const Tokens& prompt = {}) {
  const TokenDecoder decoder = make(config);
  TokenDecoder::Stream stream(decoder, prompt);
  std::string out;
  for (const std::string_view token : tokens) {
    stream.push(token, out);
    out += '|';
  }
  stream.flush(out);
  return out;
}

std::string refusal(std::string_view config) {
  const auto decoder = TokenDecoder::create(*json::parse(config));
  return decoder ? "" : decoder.error().message;
}

TEST(TokenDecoding, NoDecoderJoinsTokensWithASpace) {
  EXPECT_EQ(decode("null", {"▁c", "b", "", "▁c"}), "▁c b  ▁c");
  EXPECT_EQ(decode("null", {}), "");
  EXPECT_EQ(deltas("null", {"a", "b", ""}), "a| b| |");
  EXPECT_EQ(decode(R"({"type":"Sequence","decoders":[]})", {"a", "b"}), "ab");
}

TEST(TokenDecoding, MetaspaceDropsTheMarksOfTheFirstToken) {
  EXPECT_EQ(decode(kMetaspace, {"▁a▁b", "▁c", "", "▁"}), "ab c ");
  EXPECT_EQ(decode(kMetaspace, {"", "▁a▁b", "▁c"}), " a b c");
  EXPECT_EQ(decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})",
                   {"▁a▁b", "▁c", "", "▁"}),
            " a b c ");
  EXPECT_EQ(deltas(kMetaspace, {"▁a", "b", "▁c"}), "a|b| c|");
}

TEST(TokenDecoding, WordPieceJoinsAndCleansEachToken) {
  const Tokens tokens = {"##a", "b", "##c", ".", "", "####d", " do not", "it's"};
  EXPECT_EQ(decode(kWordPiece, tokens), "##a bc. ##d  don't it's");
  EXPECT_EQ(decode(R"({"type":"WordPiece","prefix":"##","cleanup":false})", tokens),
            "##a bc . ##d  do not it's");
  EXPECT_EQ(decode(R"({"type":"WordPiece","prefix":"","cleanup":false})", {"a", "b"}), "ab");
  EXPECT_EQ(deltas(kWordPiece, {"hello", "##s", ",", "a"}), "hello|s|,| a|");
  // The clean-up does not see two tokens at once.
  EXPECT_EQ(decode(kWordPiece, {"do", "not", "' "}), "do not'");
}

TEST(TokenDecoding, CtcDropsRepeatedTokensAndPads) {
  const Tokens tokens = {"<pad>", "a", "a", "<pad>", "a", "|", "b.", "b.", " ."};
  EXPECT_EQ(decode(ctc("<pad>", "|", "true"), tokens), "aa b..");
  EXPECT_EQ(decode(ctc("<pad>", "|", "false"), tokens), "aa|b. .");
  EXPECT_EQ(decode(ctc("", "", "true"), {"ab", "", "c"}), " a b   c ");
  EXPECT_EQ(deltas(ctc("<pad>", "|", "true"), {"a", "a", "<pad>", "a"}), "a|||a|");
}

TEST(TokenDecoding, BpeDecoderTurnsSuffixesIntoSpacesButTheLast) {
  EXPECT_EQ(decode(kBpe, {"a</w>b</w>", "</w>c</w>"}), "a b c");
  EXPECT_EQ(decode(kBpe, {}), "");
  EXPECT_EQ(decode(R"({"type":"BPEDecoder","suffix":""})", {"ab", "", "cd"}), " a b  cd");
  EXPECT_EQ(deltas(kBpe, {"he", "llo</w>", "you</w>"}), "he|llo| you|");
  // Behind Fuse there is one token, which is the last.
  EXPECT_EQ(deltas(fused(kBpe), {"a</w>b", "</w>", "c"}), "ab||c|");
  // The reference takes anything with a suffix whose type it does not know for a BPEDecoder.
  EXPECT_EQ(decode(R"({"type":"else","suffix":"b"})", {"ab", "b"}), "a ");
  EXPECT_EQ(decode(R"({"suffix":"b"})", {"ab", "b"}), "a ");
  EXPECT_EQ(decode(R"({"type":"Fuse","suffix":"b"})", {"ab", "b"}), "abb");
  EXPECT_EQ(decode(R"({"type":"Fuse","suffix":1})", {"ab", "b"}), "abb");
}

TEST(TokenDecoding, ReplaceOfAString) {
  EXPECT_EQ(decode(replace("String", ".$", "$1"), {"a.$", "bé", "."}), "a$1bé.");
  EXPECT_EQ(decode(replace("String", "", "X"), {"", "bé"}), "XbXéX");
  EXPECT_EQ(decode(replace("String", "aa", "b"), {"aaa", "a"}), "baa");
  EXPECT_EQ(decode(fused(replace("String", "aa", "b")), {"aaa", "a"}), "bb");
}

TEST(TokenDecoding, ReplaceOfARegex) {
  EXPECT_EQ(decode(replace("Regex", "(l)(e)", "$1 $2"), {"le", "test"}), "$1 $2test");
  EXPECT_EQ(decode(replace("Regex", "a*", "X"), {"", "baac"}), "XbXcX");
  EXPECT_EQ(decode(replace("Regex", "^b", "X"), {"b\nb", "b"}), "X\nXX");
  EXPECT_EQ(decode(replace("Regex", "b$", "X"), {"b\nb\n", "b"}), "X\nX\nX");
  EXPECT_EQ(decode(replace("Regex", "a{1,2}+b", "X"), {"aaab"}), "X");
}

TEST(TokenDecoding, StripTakesWhatIsThere) {
  EXPECT_EQ(decode(strip("H", 1, 0), {"Hey", " friend!", "HHH"}), "ey friend!HH");
  EXPECT_EQ(decode(strip("y", 0, 1), {"Hey", " friend!"}), "He friend!");
  // The reference crashes on these.
  EXPECT_EQ(decode(strip("H", 2, 1), {"H", "", "HHa"}), "a");
  EXPECT_EQ(decode(strip("H", 0, 2), {"H", "aH", "aHHH"}), "aaH");
  EXPECT_EQ(decode(strip("H", 2, 2), {"HHH"}), "");
}

TEST(TokenDecoding, ByteFallbackDecodesRunsOfByteTokens) {
  EXPECT_EQ(decode(kByteFallback, {"<0x+5>", "<0xe5>", "<0x8F>", "<0xab>", "<0xG1>", "<0xé>"}),
            "\x05叫<0xG1><0xé>");
  EXPECT_EQ(decode(kByteFallback, {"<0x41>", "<0xe5>", "a"}), "\uFFFD\uFFFDa");
  EXPECT_EQ(decode(kByteFallback, {"<0xE5>", "<0x8f>"}), "\uFFFD\uFFFD");
}

TEST(TokenDecoding, ByteLevelDecodesTheConcatenation) {
  EXPECT_EQ(decode(kByteLevel, {"Ġä", "<é>", "<｜", "¸Ń", "\u00AD"}),
            " \uFFFD<\uFFFD><｜\uFFFD\uFFFD\u00AD");
  EXPECT_EQ(decode(kByteLevel, {"Ġä¸", "Ń"}), " 中");
  EXPECT_EQ(decode(fused(kByteLevel), {"Ġä", " "}), "Ġä ");
  EXPECT_EQ(decode(fused(kByteLevel), {"Ġä", "¸Ń"}), " 中");
  EXPECT_EQ(deltas(kByteLevel, {"ä¸", "Ńx", "ð", "y", "ð"}), "|中x||\uFFFDy||\uFFFD");
}

TEST(TokenDecoding, NestedSequences) {
  EXPECT_EQ(decode(R"({"type":"Sequence","decoders":[{"type":"Sequence","decoders":)"
                   R"([{"type":"Fuse"}]},{"type":"WordPiece","prefix":"##","cleanup":true}]})",
                   {"a", "b"}),
            "ab");
  EXPECT_EQ(decode(fused(ctc("<pad>", "", "true")), {}), " ");
}

TEST(TokenStreaming, LlamaStripsOneSpaceAndHoldsPartialCharacters) {
  EXPECT_EQ(deltas(kLlama, {"▁He", "llo", "▁you▁"}), "He|llo| you |");
  EXPECT_EQ(deltas(kLlama, {"▁", "▁", "a"}), "| |a|");
  EXPECT_EQ(deltas(kLlama, {"<0x20>", "<0x20>", "a"}), "| |a|");
  EXPECT_EQ(deltas(kLlama, {"", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "a"}), "||||\U0001F600|a|");
  EXPECT_EQ(deltas(kGemma, {"▁He", "llo", "<0xE4>", "a"}), " He|llo||\uFFFDa|");
  EXPECT_EQ(deltas(kGemma, {"a", "<0xE4>", "<0xB8>"}), "a|||\uFFFD\uFFFD");
}

// The reference makes all seven bytes U+FFFD.
TEST(TokenStreaming, ABrokenByteDoesNotSpoilTheCharactersBesideIt) {
  const Tokens tokens = {"<0xE4>", "<0xB8>", "<0xAD>", "<0xE4>", "<0xE4>", "<0xB8>", "<0xAD>"};
  EXPECT_EQ(deltas(kGemma, tokens), "||中||\uFFFD||中|");
  EXPECT_EQ(deltas(kByteFallback, tokens), "||中||\uFFFD||中|");
  EXPECT_EQ(make(kGemma).decode_by_character(tokens), "中\uFFFD中");
  EXPECT_EQ(decode(kGemma, tokens), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(TokenStreaming, HoldsBackWhatALaterTokenMayChange) {
  EXPECT_EQ(deltas(fused(replace("String", "aab", "X")), {"ca", "a", "a", "b", "a"}), "c||a|X||a");
  EXPECT_EQ(deltas(fused(strip(" ", 1, 2)), {" ", " a ", "  ", "b", " "}), "| a| |  b||");
  EXPECT_EQ(deltas(fused(replace("Regex", "a+", "X")), {"a", "ab"}), "||Xb");
  EXPECT_EQ(deltas(replace("Regex", "a+", "X"), {"a", "ab"}), "X|Xb|");
  EXPECT_EQ(deltas(fused(kByteLevel), {"Ġä", "¸Ń", " x", "Ġ"}), "||Ġä¸Ń x|Ġ|");
  EXPECT_EQ(deltas(fused(kByteFallback), {"<0x", "41", ">"}), "|||A");
  EXPECT_EQ(deltas(fused(kByteFallback), {"<0x", "4", ">", "1"}), "||||<0x4>1");
  EXPECT_EQ(deltas(fused(kByteFallback), {"<0", "y", "<0x41>"}), "|<0y|<0x41>|");
}

TEST(TokenStreaming, GoesOnBehindAPrompt) {
  EXPECT_EQ(deltas(kMetaspace, {"▁b"}, {"▁a"}), " b|");
  EXPECT_EQ(deltas(kLlama, {"▁b"}, {"▁a"}), " b|");
  EXPECT_EQ(deltas(kLlama, {"▁b"}, {"▁"}), " b|");
  EXPECT_EQ(deltas(kWordPiece, {"b", "##c"}, {"a"}), " b|c|");
  EXPECT_EQ(deltas("null", {"b"}, {"a"}), " b|");
  EXPECT_EQ(deltas(kBpe, {"b</w>"}, {"a</w>"}), " b|");
  EXPECT_EQ(deltas(ctc("<pad>", "|", "true"), {"a", "b"}, {"a"}), "|b|");
}

TEST(TokenStreaming, APromptThatEndsInsideACharacterIsContinued) {
  EXPECT_EQ(deltas(kGemma, {"<0xAD>", "a"}, {"x", "<0xE4>", "<0xB8>"}), "中|a|");
  EXPECT_EQ(deltas(kByteLevel, {"Ńa"}, {"xä¸"}), "中a|");
  // What the prompt showed already is not shown again.
  EXPECT_EQ(deltas(kGemma, {"a"}, {"x", "<0xE4>", "<0xB8>"}), "a|");
  EXPECT_EQ(deltas(kGemma, {}, {"x", "<0xE4>", "<0xB8>"}), "");
  EXPECT_EQ(deltas(kByteLevel, {"b"}, {"xä¸"}), "b|");
  EXPECT_EQ(deltas(fused(replace("String", "ab", "X")), {"b", "a"}, {"a"}), "X||a");
  EXPECT_EQ(deltas(fused(replace("String", "ab", "X")), {"c"}, {"a"}), "c|");
  EXPECT_EQ(deltas(fused(replace("String", "aabaac", "X")), {"b", "aac"}, {"aabaa"}), "|X|");
}

TEST(TokenStreaming, BytesThatNeverFormACharacterStayLinear) {
  for (const std::string& config : {std::string(kLlama), std::string(kByteFallback)}) {
    const TokenDecoder decoder = make(config);
    TokenDecoder::Stream stream(decoder);
    std::string out;
    for (int i = 0; i < 32'000; ++i) {
      const std::size_t before = out.size();
      stream.push("<0x80>", out);
      ASSERT_EQ(out.size(), before + 3);
    }
    stream.flush(out);
    EXPECT_EQ(out.size(), 96'000u);
  }
}

// A run of byte tokens is one token to CTC. The first one drops what stands between the runs, so
// that the second one sees the same token again and again, character by character.
TEST(TokenStreaming, LongTokensAreComparedInLinearTime) {
  const TokenDecoder decoder =
      make(R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},)" +
           ctc("<pad>", "|", "false") + "," + ctc("-", "|", "false") + "]}");
  TokenDecoder::Stream stream(decoder);
  std::string out;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200'000; ++i) {
      stream.push("<0x61>", out);
    }
    stream.push("<pad>", out);
  }
  stream.push("x", out);
  stream.flush(out);
  EXPECT_EQ(out, std::string(200'000, 'a') + "x");
}

// Random chains and tokens: at every cut the pieces are a decoding of their own.
TEST(TokenStreaming, JoinedPiecesAreTheDecoding) {
  const std::string configs[] = {kLlama,
                                 kGemma,
                                 kMetaspace,
                                 kWordPiece,
                                 kBpe,
                                 kByteFallback,
                                 kByteLevel,
                                 "null",
                                 ctc("a", " ", "true"),
                                 fused(strip(" ", 1, 2)),
                                 fused(replace("String", "aab", "X")),
                                 fused(kByteLevel),
                                 fused(kByteFallback),
                                 fused(kBpe),
                                 replace("Regex", "a+", " ."),
                                 R"({"type":"Sequence","decoders":[{"type":"ByteFallback"},)" +
                                     std::string(kBpe) + "," + ctc("<pad>", "|", "true") + "," +
                                     kWordPiece + "," + strip("a", 1, 1) + "]}"};
  const Tokens pieces = {"a",      "aab",    "a</w>",  " ",      "▁a",     "##a", "Ġ",  "ä",   "¸Ń",
                         "<0xE4>", "<0xB8>", "<0xAD>", "<0x20>", "<0x61>", "",    " .", "</w", ">"};
  std::mt19937 random(7);
  for (const std::string& config : configs) {
    const TokenDecoder decoder = make(config);
    for (int round = 0; round < 200; ++round) {
      Tokens tokens;
      for (std::size_t i = random() % 10; i > 0; --i) {
        tokens.push_back(pieces[random() % pieces.size()]);
      }
      const std::string whole = decoder.decode_by_character(tokens);
      for (std::size_t cut = 0; cut <= tokens.size(); ++cut) {
        const auto head = std::span(tokens).first(cut);
        TokenDecoder::Stream stream(decoder);
        std::string out;
        for (const std::string_view token : head) {
          stream.push(token, out);
        }
        ASSERT_TRUE(whole.starts_with(out)) << config << " took back " << out;
        stream.flush(out);
        ASSERT_EQ(out, decoder.decode_by_character(head)) << config;
      }
    }
  }
}

TEST(TokenDecoderConfig, RefusesWhatTheReferenceRefuses) {
  for (const std::string_view config :
       {R"({"type":"Metaspace"})",
        R"({"type":"Metaspace","replacement":"ab"})",
        R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false})",
        R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"x"})",
        R"({"type":"Metaspace","replacement":"▁","prepend_scheme":null})",
        R"({"type":"BPEDecoder"})",
        R"({"type":"WordPiece","prefix":"##"})",
        R"({"type":"CTC","pad_token":"a","word_delimiter_token":"b"})",
        R"({"type":"Strip","content":"a","start":-1,"stop":0})",
        R"({"type":"Strip","content":"a","start":1.0,"stop":0})",
        R"({"type":"Strip","content":"","start":1,"stop":0})",
        R"({"type":"Replace","pattern":"a","content":"b"})",
        R"({"type":"Replace","pattern":{"String":"a"}})",
        R"({"type":"Replace","pattern":{"String":"a","Regex":"b"},"content":"c"})",
        R"({"type":"Replace","pattern":{"Regex":"("},"content":"c"})",
        R"({"type":"Sequence"})",
        R"({"type":"Sequence","decoders":[null]})",
        R"({"decoders":[{"type":"Fuse"}]})",
        R"("x")",
        "{}"}) {
    EXPECT_NE(refusal(config).find("decoder"), std::string::npos) << config;
  }
  EXPECT_EQ(refusal(R"({"type":"Strip","content":"a","start":18446744073709551615,"stop":0})"), "");
  EXPECT_EQ(refusal(R"({"type":"Metaspace","replacement":"▁","add_prefix_space":false,)"
                    R"("prepend_scheme":"never"})"),
            "");
}

TEST(TokenDecoderConfig, NamesWhatItDoesNotSupport) {
  EXPECT_NE(refusal(R"({"type":"Digits"})").find("Digits"), std::string::npos);
  std::string nested = R"({"type":"Fuse"})";
  for (int i = 0; i < 20; ++i) {
    nested.insert(0, R"({"type":"Sequence","decoders":[)").append("]}");
  }
  EXPECT_NE(refusal(nested).find("Sequence"), std::string::npos);
  std::string growing = R"({"type":"Sequence","decoders":[)";
  for (int i = 0; i < 7; ++i) {
    growing += replace("String", "a", "aaaa") + (i == 6 ? "]}" : ",");
  }
  EXPECT_NE(refusal(growing).find("Replace"), std::string::npos);
}

}  // namespace
}  // namespace fairlead::tokenizer
