#include "base/utf8.hpp"

#include <gtest/gtest.h>

namespace fairlead::utf8 {
namespace {

TEST(Utf8, MaximalIllFormedPartsAsInTheStandard) {
  // Examples of Unicode 16, tables 3-8 to 3-11.
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8, IncompleteIsNotInvalid) {
  EXPECT_TRUE(is_incomplete("\xF0\x9F\x98"));
  EXPECT_TRUE(is_incomplete("\xE2"));
  EXPECT_FALSE(is_incomplete("\xF0\x9F\x98\x80"));
  EXPECT_FALSE(is_incomplete("\x80"));
  EXPECT_FALSE(is_incomplete("a"));
  EXPECT_FALSE(is_incomplete(""));
}

TEST(Utf8, AppendAndDecodeAgreeOnEveryPlane) {
  for (char32_t c = 0; c <= 0x10FFFF; c += 17) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    std::string text;
    append(text, c);
    EXPECT_TRUE(valid(text));
    EXPECT_EQ(sequence_length(text), static_cast<int>(text.size()));
    std::size_t pos = 0;
    EXPECT_EQ(decode(text, pos), c);
    EXPECT_EQ(pos, text.size());
    EXPECT_EQ(count(text), 1u);
  }
}

}  // namespace
}  // namespace fairlead::utf8
