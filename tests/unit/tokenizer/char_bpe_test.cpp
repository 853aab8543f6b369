#include "tokenizer/char_bpe.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "tokenizer/models_testing.hpp"

// The expected ids are those of `tokenizers` 0.23.3
// (`Tokenizer.from_str(...).model.tokenize(...)`).
namespace fairlead::tokenizer {
namespace {

using testing::bpe;
using testing::ids;
using testing::read;

TEST(CharBpe, PutsTheSuffixOnTheLastCharacter) {
  const auto model = read(
      bpe({"a", "b", "b</w>", "ab</w>", "a</w>"}, {"a b</w>"}, R"("end_of_word_suffix":"</w>")"));
  EXPECT_EQ(ids(**model, "ab"), "3");
  EXPECT_EQ(ids(**model, "abab"), "0 1 3");
  EXPECT_EQ(ids(**model, "b"), "2");
  EXPECT_EQ(ids(**model, "a"), "4");
  EXPECT_EQ(ids(**model, ""), "");
}

TEST(CharBpe, PutsThePrefixOnAllButTheFirstCharacter) {
  const auto model = read(bpe({"a", "##b", "ab", "##bb", "b"}, {"a ##b", "##b ##b"},
                              R"("continuing_subword_prefix":"##")"));
  EXPECT_EQ(ids(**model, "ab"), "2");
  EXPECT_EQ(ids(**model, "abb"), "2 1");
  EXPECT_EQ(ids(**model, "bb"), "4 1");
  EXPECT_EQ(ids(**model, "abbb"), "2 3");
}

TEST(CharBpe, PutsBothOnTheLastCharacter) {
  const auto model = read(bpe({"a", "##b", "##b.", "ab."}, {"a ##b."},
                              R"("continuing_subword_prefix":"##","end_of_word_suffix":".")"));
  EXPECT_EQ(ids(**model, "ab"), "3");
  EXPECT_EQ(ids(**model, "abb"), "0 1 2");
  EXPECT_EQ(ids(**model, "a"), "");
}

TEST(CharBpe, BytesOvertakeAPendingUnknown) {
  const std::vector<std::string> tokens = {"<unk>", "a", "<0x62>", "<0xC3>", "<0x63>"};
  const auto single = read(bpe(tokens, {}, R"("unk_token":"<unk>","byte_fallback":true)"));
  EXPECT_EQ(ids(**single, "ébac"), "2 0 1 4");
  EXPECT_EQ(ids(**single, "bé"), "2 0");
  EXPECT_EQ(ids(**single, "ééa"), "0 0 1");
  const auto fused =
      read(bpe(tokens, {}, R"("unk_token":"<unk>","byte_fallback":true,"fuse_unk":true)"));
  EXPECT_EQ(ids(**fused, "éébéa"), "2 0 1");
}

TEST(CharBpe, CharactersVanishWithoutAnUnknownToken) {
  EXPECT_EQ(ids(bpe({"a"}), "xaxa"), "0 0");
  EXPECT_EQ(ids(bpe({"a"}), "x"), "");
}

TEST(CharBpe, AnUnknownTokenThatIsMissingIsAnErrorOnceItIsNeeded) {
  const auto model = read(bpe({"a"}, {}, R"("unk_token":"<unk>")"));
  EXPECT_EQ(ids(**model, "aa"), "0 0");
  EXPECT_EQ(ids(**model, "ax"), "unk_token '<unk>' is not in the vocabulary");
}

TEST(CharBpe, IgnoresMergesForWordsThatAreTokens) {
  const std::vector<std::string> tokens = {"a", "b", "c", "ab", "bc", "abc", ""};
  const auto model = read(bpe(tokens, {"b c", "a b"}, R"("ignore_merges":true)"));
  EXPECT_EQ(ids(**model, "abc"), "5");
  EXPECT_EQ(ids(**model, "abcabc"), "0 4 0 4");
  EXPECT_EQ(ids(**model, ""), "");
  EXPECT_EQ(ids(bpe(tokens, {"b c", "a b"}), "abc"), "0 4");
}

TEST(CharBpe, SpellingsMayShareAnId) {
  const auto model = read(R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":3,"bc":4},)"
                          R"("merges":[["a","b"],["b","c"],["a","bc"],["ab","c"]]})");
  EXPECT_EQ(ids(**model, "abc"), "3");
  EXPECT_EQ(ids(**model, "ab"), "3");
  EXPECT_EQ((*model)->size(), 6U);
  EXPECT_EQ((*model)->id_limit(), 5U);
  EXPECT_EQ((*model)->spelling(3), "abc");
  EXPECT_EQ((*model)->find("ab"), 3U);
}

TEST(CharBpe, ASpellingTwiceTakesItsLastId) {
  const auto model = read(R"({"type":"BPE","vocab":{"a":7,"b":1,"a":2},"merges":[]})");
  EXPECT_EQ(ids(**model, "ab"), "2 1");
  EXPECT_EQ((*model)->size(), 2U);
  EXPECT_EQ((*model)->spelling(7), std::nullopt);
  EXPECT_EQ((*model)->spelling(1000), std::nullopt);
}

TEST(CharBpe, FindsVeryLongTokens) {
  const std::string longest(2000, 'b');
  const auto model = read(bpe({"a", longest}, {}, R"("ignore_merges":true)"));
  EXPECT_EQ(ids(**model, longest), "1");
  EXPECT_EQ((*model)->find(longest + "b"), std::nullopt);
  EXPECT_EQ((*model)->spelling(1), longest);
}

// Cutting where no merge joins must not change anything: the same merges with the text in one
// piece, because one more spelling of an id takes away the proof that cutting needs.
TEST(CharBpe, CuttingEqualsTheWholeText) {
  std::mt19937 random(3);
  const std::vector<std::string> alphabet = {"▁", "a", "b", ">", "é"};
  for (int round = 0; round < 150; ++round) {
    std::vector<std::string> tokens = alphabet;
    std::vector<std::string> merges;
    std::uint32_t joined = random();
    joined &= random();  // a quarter of all pairs, by hash
    for (int i = 0; i < 60; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      const auto last = static_cast<unsigned char>(left.back());
      const auto first = static_cast<unsigned char>(right.front());
      if ((joined >> (last * 3U + first) % 32 & 1) == 0) {
        continue;
      }
      if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end() &&
          left.size() + right.size() < 20) {
        tokens.push_back(left + right);
        merges.push_back(fmt::format("{} {}", left, right));
      }
    }
    const std::string text = bpe(tokens, merges, R"("unk_token":"b")");
    std::string shared = text;
    shared.insert(shared.find("\"vocab\":{") + 9, R"("unused":0,)");
    const auto cut = read(text);
    const auto whole = read(shared);
    for (int i = 0; i < 100; ++i) {
      std::string word;
      for (std::size_t n = random() % (i < 90 ? 30 : 600); n > 0; --n) {
        word += random() % 16 == 0 ? "x" : alphabet[random() % alphabet.size()];
      }
      ASSERT_EQ(ids(**cut, word), ids(**whole, word)) << word << "\n" << text;
    }
  }
}

TEST(CharBpe, TwoModelsDoNotShareWhatTheyRemember) {
  const auto merged = read(bpe({"a", "b", "ab"}, {"a b"}));
  const auto apart = read(bpe({"a", "b"}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ids(**merged, "ab"), "2");
    EXPECT_EQ(ids(**apart, "ab"), "0 1");
  }
}

TEST(CharBpe, StopsWhenNobodyWaits) {
  const auto model = read(bpe({"a", "▁", "▁a", "aa"}, {"▁ a", "a a"}));
  std::stop_source source;
  source.request_stop();
  std::string spaced;
  for (int i = 0; i < 100'000; ++i) {
    spaced += "▁a";
  }
  for (const std::string& text : {std::string(1U << 20, 'a'), spaced}) {
    std::vector<TokenId> out;
    const Result<> done = (*model)->encode(text, out, source.get_token());
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, ErrorCode::ClientGone);
  }
}

TEST(CharBpe, OneLongWordTakesNoQuadraticTime) {
  std::vector<std::string> tokens = {"a"};
  std::vector<std::string> merges;
  for (int i = 0; i < 5; ++i) {
    merges.push_back(tokens.back() + " " + tokens.back());
    tokens.push_back(tokens.back() + tokens.back());
  }
  const auto model = read(bpe(tokens, merges));
  const auto start = std::chrono::steady_clock::now();
  std::vector<TokenId> out;
  ASSERT_TRUE((*model)->encode(std::string(1'000'000, 'a'), out, {}));
  EXPECT_EQ(out, std::vector<TokenId>(1'000'000 / 32, 5));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(CharBpe, ThreadsShareAModel) {
  const auto model = read(bpe({"a", "b", "▁", "▁a", "ab"}, {"a b", "▁ a"}));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&model] {
      for (int k = 0; k < 500; ++k) {
        ASSERT_EQ(ids(**model, "▁ab▁a▁b"), "2 4 3 2 1");
      }
    });
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
