#include "tokenizer/scanners.hpp"

#include <gtest/gtest.h>

#include <set>

#include "tokenizer/pre_tokenizer.hpp"
#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr std::string_view kPatterns[] = {
    kGpt2Pattern,
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// A pattern's scanner beside its regex.
struct Both {
  explicit Both(std::string_view pattern)
      : scanner(*Split::from_regex(pattern, SplitBehavior::Isolated, false)),
        regex(*Split::from_regex(pattern, SplitBehavior::Isolated, false, true)) {}

  static std::vector<Span> apply(const Split& split, std::string_view text) {
    std::vector<Span> spans;
    EXPECT_TRUE(split.apply(text, 0, spans));
    return spans;
  }

  Split scanner;
  Split regex;
};

std::vector<Both> all() { return {std::begin(kPatterns), std::end(kPatterns)}; }

TEST(Scanners, AreRecognised) {
  std::set<Scanner> seen;
  for (const std::string_view pattern : kPatterns) {
    seen.insert(recognize_pattern(pattern));
  }
  EXPECT_EQ(seen.size(), std::size(kPatterns));
  EXPECT_FALSE(seen.contains(Scanner::None));
  EXPECT_EQ(recognize_pattern(R"(\p{L}+)"), Scanner::None);
}

TEST(Scanners, EqualTheirRegexOnRandomText) {
  std::mt19937 random(1);
  const std::vector<Both> splits = all();
  for (int round = 0; round < 4000; ++round) {
    const std::string text = testing::random_text(random, 1 + random() % 40);
    for (const Both& split : splits) {
      ASSERT_EQ(Both::apply(split.scanner, text), Both::apply(split.regex, text)) << text;
    }
  }
}

TEST(Scanners, EqualTheirRegexOnEveryCharacter) {
  for (const Both& split : all()) {
    for (char32_t block = 0; block < 0x110000; block += 0x800) {
      std::string text;
      for (char32_t c = block; c < block + 0x800; ++c) {
        if (c < 0xD800 || c > 0xDFFF) {
          utf8::append(text, c);
          text += c % 3 == 0 ? "a" : c % 3 == 1 ? " " : "";
        }
      }
      ASSERT_EQ(Both::apply(split.scanner, text), Both::apply(split.regex, text))
          << static_cast<std::uint32_t>(block);
    }
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
