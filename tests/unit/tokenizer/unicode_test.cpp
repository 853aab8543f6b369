#include "tokenizer/unicode.hpp"

#include <gtest/gtest.h>

#include "tokenizer/scanners.hpp"

namespace fairlead::tokenizer {
namespace {

TEST(Unicode, PropertiesOfWellKnownCharacters) {
  EXPECT_TRUE(property("L")->contains(U'é'));
  EXPECT_TRUE(property("Lu")->contains(U'Ж'));
  EXPECT_FALSE(property("Lu")->contains(U'ж'));
  EXPECT_TRUE(property("Han")->contains(U'中'));
  EXPECT_FALSE(property("Han")->contains(U'あ'));
  EXPECT_TRUE(property("N")->contains(U'½'));
  EXPECT_TRUE(property("LC")->contains(U'ǅ'));
  EXPECT_TRUE(property("Cn")->contains(0x378));
  EXPECT_TRUE(property("Sc")->contains(U'€'));
}

TEST(Unicode, LettersOfUnicode16AreLetters) {
  EXPECT_TRUE(property("L")->contains(0x1C89));    // Cyrillic capital letter Tje
  EXPECT_TRUE(property("Lu")->contains(0x10D50));  // Garay capital letter A
}

TEST(Unicode, NamesIgnoreCaseAndSeparators) {
  EXPECT_TRUE(property("uppercase_letter")->contains('A'));
  EXPECT_TRUE(property("Uppercase Letter")->contains('A'));
  EXPECT_TRUE(property("hAN")->contains(U'中'));
  EXPECT_FALSE(property("no_such_property"));
  EXPECT_FALSE(property(""));
}

TEST(Unicode, SetsMergeAndDropSurrogates) {
  const CodePointSet set({{0xD000, 0xE100}, {5, 9}, {1, 4}, {10, 10}});
  ASSERT_EQ(set.ranges().size(), 2u);
  EXPECT_EQ(set.ranges()[0].last, 10u);
  const CodePointSet scalars = set.without_surrogates();
  EXPECT_TRUE(scalars.contains(0xD7FF));
  EXPECT_FALSE(scalars.contains(0xD800));
  EXPECT_FALSE(scalars.contains(0xDFFF));
  EXPECT_TRUE(scalars.contains(0xE000));
}

TEST(Unicode, KindsAgreeWithProperties) {
  const CodePointSet letters = *property("L");
  const CodePointSet marks = *property("M");
  const CodePointSet numbers = *property("N");
  const CodePointSet spaces = space_class();
  const CodePointTable& kinds = code_point_kinds();
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    const std::uint32_t bit = std::uint32_t{1} << kinds[c];
    ASSERT_EQ((bit & kSpaceKinds) != 0, spaces.contains(c)) << static_cast<std::uint32_t>(c);
    ASSERT_EQ((bit & kLetterKinds) != 0, letters.contains(c)) << static_cast<std::uint32_t>(c);
    ASSERT_EQ((bit & kMarkKinds) != 0, marks.contains(c)) << static_cast<std::uint32_t>(c);
    ASSERT_EQ((bit & kNumberKinds) != 0, numbers.contains(c)) << static_cast<std::uint32_t>(c);
    ASSERT_EQ(bit == kind_bit(CodePointKind::Newline), c == '\r' || c == '\n');
  }
}

TEST(Unicode, AsciiKindsAreThoseOfTheTable) {
  for (char32_t c = 0; c < 128; ++c) {
    EXPECT_EQ(kAsciiKinds[c], std::uint32_t{1} << code_point_kinds()[c]) << int(c);
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
