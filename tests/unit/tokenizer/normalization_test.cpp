#include "tokenizer/normalization.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace fairlead::tokenizer {
namespace {

std::string nfc(std::string_view text) {
  std::string out;
  return normalize_nfc(text, out) ? out : std::string(text);
}

TEST(Nfc, LeavesNormalizedTextAlone) {
  std::string out = "untouched";
  EXPECT_FALSE(normalize_nfc("plain ASCII, é, Ж, 中文, 한국어, 😀", out));
  EXPECT_FALSE(normalize_nfc("", out));
  EXPECT_EQ(out, "untouched");
}

TEST(Nfc, ComposesAcrossTheStarterBefore) {
  EXPECT_EQ(nfc("xe\u0301y"), "x\u00E9y");
  EXPECT_EQ(nfc("A\u030A"), "\u00C5");
  EXPECT_EQ(nfc("\u212B\u2126"), "\u00C5\u03A9");
}

TEST(Nfc, OrdersMarksStably) {
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(nfc("q\u0301\u0300"), "q\u0301\u0300");
  EXPECT_EQ(nfc("o\u0304\u0308"), "\u014D\u0308");
  EXPECT_EQ(nfc("\u0301\u0316 x"), "\u0316\u0301 x");
}

TEST(Nfc, ComposesHangul) {
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC01\u11A8"), "\uAC01\u11A8");
}

TEST(Nfc, KeepsCompositionExclusionsDecomposed) {
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");
  EXPECT_EQ(nfc("\U0001D15E"), "\U0001D157\U0001D165");
}

TEST(Nfc, DoesNotMoveMarksNewerThanTheReferenceKnows) {
  // U+1AC5 and U+1AC3 are of Unicode 14; the reference's tables are of Unicode 9.
  EXPECT_EQ(nfc("a\u1AC5\u1AC3\u0316"), "a\u1AC5\u1AC3\u0316");
}

TEST(Nfc, TakesLongRunsOfMarksInStride) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) {
    text += i % 2 == 0 ? "\u0301" : "\u0316";
  }
  const auto start = std::chrono::steady_clock::now();
  const std::string result = nfc(text);
  EXPECT_EQ(result.size(), text.size() - 1);  // a and the first acute became á
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace fairlead::tokenizer
