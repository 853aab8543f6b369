#include "tokenizer/unigram.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "tokenizer/models_testing.hpp"

// The expected ids are those of `tokenizers` 0.23.3
// (`Tokenizer.from_str(...).model.tokenize(...)`).
namespace fairlead::tokenizer {
namespace {

using testing::ids;
using testing::read;

std::string unigram(std::string_view vocab, std::string_view unk_id = "0",
                    std::string_view byte_fallback = "false") {
  return R"({"type":"Unigram","unk_id":)" + std::string(unk_id) + R"(,"byte_fallback":)" +
         std::string(byte_fallback) + R"(,"vocab":[)" + std::string(vocab) + "]}";
}

TEST(Unigram, TakesThePathWithTheHighestSum) {
  const auto model = read(unigram(R"(["<unk>",0.0],["a",0.0],["b",0.0],["c",0.0],["d",0.0],)"
                                  R"(["cd",1.0],["ab",2.0],["abc",5.0],["abcd",10.0])"));
  EXPECT_EQ(ids(**model, "abcd"), "8");
  EXPECT_EQ(ids(**model, "abcdacdxx"), "8 1 5 0");
  EXPECT_EQ(ids(**model, "xxabcdxx"), "0 8 0");
  EXPECT_EQ(ids(**model, "xaxx"), "0 1 0");
  EXPECT_EQ(ids(**model, ""), "");
  EXPECT_EQ(ids(**model, "<unk>x"), "0");
  EXPECT_EQ(ids(**model, "<unk>"), "0");
  EXPECT_EQ((*model)->find("cd"), 5U);
  EXPECT_EQ((*model)->find("abc!"), std::nullopt);
  EXPECT_EQ((*model)->spelling(8), "abcd");
  EXPECT_EQ((*model)->spelling(9), std::nullopt);
}

TEST(Unigram, OfEqualSumsTheFirstFoundCounts) {
  const auto model =
      read(unigram(R"(["<unk>",-9],["a",-1],["b",-1],["ab",-2],["ba",-2],["aba",-3])"));
  EXPECT_EQ(ids(**model, "ab"), "3");
  EXPECT_EQ(ids(**model, "aba"), "5");
  EXPECT_EQ(ids(**model, "abab"), "3 3");
  EXPECT_EQ(ids(**model, "baba"), "2 5");
}

TEST(Unigram, WithoutUnkIdOnlyWhatIsNeededIsAnError) {
  const auto model = read(unigram(R"(["a",-1],["xy",-30.0],["x",-50])", "null"));
  EXPECT_EQ(ids(**model, "a"), "0");
  EXPECT_EQ(ids(**model, "axy"), "0 1");
  const std::string error = "a character is in no token and the tokenizer has no unk_id";
  EXPECT_EQ(ids(**model, "b"), error);
  EXPECT_EQ(ids(**model, "ay"), error);
  EXPECT_EQ(ids(unigram(R"(["a",-1],["ab",-30.0])", "null"), "aab"), "0 1");
  EXPECT_EQ(ids(unigram("", "null"), "a"), error);
}

TEST(Unigram, FallsBackOnBytesForAWholeRun) {
  const auto model =
      read(unigram(R"(["<unk>",0],["a",-1],["<0xC3>",0],["<0xA9>",0],["<0x62>",0])", "0", "true"));
  EXPECT_EQ(ids(**model, "aéb"), "1 2 3 4");
  EXPECT_EQ(ids(**model, "éx"), "0");
  EXPECT_EQ(ids(**model, "b<unk>"), "0");
}

TEST(Unigram, ARunOfUnknownCharactersMayBeAPiece) {
  const auto model = read(unigram(R"(["<unk>",0],["xx",100.0],["a",100])"));
  EXPECT_EQ(ids(**model, "xx"), "1");
  EXPECT_EQ(ids(**model, "xxx"), "0 1");
  EXPECT_EQ(ids(**model, "axxa"), "2 1 2");
}

TEST(Unigram, APieceTwiceTakesItsLastScore) {
  const auto model = read(unigram(R"(["<unk>",0],["a",-1],["a",-5],["aa",-7])"));
  EXPECT_EQ(ids(**model, "aa"), "3");
  EXPECT_EQ(ids(**model, "a"), "2");
  EXPECT_EQ((*model)->size(), 4U);
  EXPECT_EQ((*model)->spelling(1), "a");
}

// The straightforward algorithm over the whole text, without cutting it.
std::vector<TokenId> by_definition(const std::vector<ScoredPiece>& pieces, std::string_view text) {
  std::vector<double> best(text.size() + 1, -1e300);
  std::vector<std::size_t> from(text.size() + 1, 0);
  std::vector<TokenId> by(text.size() + 1, 0);
  best[0] = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (std::size_t length = 1; at + length <= text.size(); ++length) {
      for (TokenId id = 0; id < pieces.size(); ++id) {
        const double score = pieces[id].score + best[at];
        if (text.substr(at, length) == pieces[id].text && score > best[at + length]) {
          best[at + length] = score;
          from[at + length] = at;
          by[at + length] = id;
        }
      }
    }
  }
  std::vector<TokenId> out;
  for (std::size_t end = text.size(); end > 0; end = from[end]) {
    out.insert(out.begin(), by[end]);
  }
  return out;
}

TEST(Unigram, EqualsTheDefinitionOnRandomModels) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::string> texts = {"a", "b", "c"};
    while (texts.size() < 20) {
      std::string text;
      for (std::size_t n = 2 + random() % 4; n > 0; --n) {
        text += static_cast<char>('a' + random() % 3);
      }
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
        texts.push_back(text);
      }
    }
    std::vector<ScoredPiece> pieces;
    for (const std::string& text : texts) {
      pieces.push_back({text, -static_cast<double>(random() % 100) / 10});
    }
    const auto model = UnigramModel::create(pieces, {});
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (std::size_t n = 1 + random() % 40; n > 0; --n) {
        text += static_cast<char>('a' + random() % 3);
      }
      std::vector<TokenId> out;
      ASSERT_TRUE((*model)->encode(text, out, {}));
      ASSERT_EQ(out, by_definition(pieces, text)) << text;
    }
  }
}

TEST(Unigram, LongTextsTakeLinearTime) {
  const auto model = read(unigram(R"(["<unk>",0],["a",-1],["aa",-1.5],["aaaa",-2.5])"));
  const auto start = std::chrono::steady_clock::now();
  std::vector<TokenId> out;
  ASSERT_TRUE((*model)->encode(std::string(4'000'000, 'a'), out, {}));
  EXPECT_EQ(out.size(), 1'000'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Unigram, StopsWhenNobodyWaits) {
  const auto model = read(unigram(R"(["<unk>",0],["a",-1],["aa",-1.5])"));
  std::stop_source source;
  source.request_stop();
  std::vector<TokenId> out;
  const Result<> done = (*model)->encode(std::string(1U << 20, 'a'), out, source.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::ClientGone);
  EXPECT_EQ(ids(**model, "aaa"), "1 2");  // nothing of it is left
}

}  // namespace
}  // namespace fairlead::tokenizer
