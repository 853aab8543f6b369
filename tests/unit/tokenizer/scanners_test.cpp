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
    // cl100k of tiktoken
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // gpt4o, gptoss
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Tekken
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    // Kimi
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// The three Splits of DeepSeek-V3.
const std::string kDeepSeekV3[] = {
    R"(\p{N}{1,3})",
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
    "\r\n"
    R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
    "\r\n"
    R"(]*|\s*[)"
    "\r\n"
    R"(]+|\s+(?!\S)|\s+)",
};

using Words = std::vector<Span>;

// A scanner beside the regexes it stands for, each applied to the pieces of the one before.
struct Both {
  Both(Scanner scanner, std::span<const std::string> patterns) : scanner(scanner) {
    for (const std::string& pattern : patterns) {
      regexes.push_back(*Split::from_regex(pattern, SplitBehavior::Isolated, false, true));
    }
  }

  Words by_scanner(std::string_view text) const {
    Words words;
    for_each_word(scanner, text,
                  [&](std::size_t begin, std::size_t end) { words.push_back({begin, end}); });
    return words;
  }

  Words by_regex(std::string_view text) const {
    Words pieces = {{0, text.size()}};
    for (const Split& split : regexes) {
      Words next;
      for (const Span& piece : pieces) {
        EXPECT_TRUE(
            split.apply(text.substr(piece.begin, piece.end - piece.begin), piece.begin, next));
      }
      pieces = std::move(next);
    }
    return pieces;
  }

  Scanner scanner;
  std::vector<Split> regexes;
};

std::vector<Both> all() {
  std::vector<Both> result;
  for (const std::string_view pattern : kPatterns) {
    result.emplace_back(recognize_pattern(pattern), std::vector<std::string>{std::string(pattern)});
  }
  result.emplace_back(recognize_patterns(kDeepSeekV3), kDeepSeekV3);
  return result;
}

TEST(Scanners, AreRecognised) {
  std::set<Scanner> seen;
  for (const Both& split : all()) {
    seen.insert(split.scanner);
  }
  EXPECT_EQ(seen, std::set(std::begin(kAllScanners), std::end(kAllScanners)));
  for (const Scanner scanner : kAllScanners) {
    for (const std::string_view pattern : scanner_patterns(scanner)) {
      EXPECT_TRUE(scanner == Scanner::DeepSeekV3 || recognize_pattern(pattern) == scanner);
    }
  }
  EXPECT_EQ(recognize_pattern(R"(\p{L}+)"), Scanner::None);
  EXPECT_EQ(recognize_patterns(std::span(kDeepSeekV3).first(2)), Scanner::None);
}

TEST(Scanners, EqualTheirRegexOnRandomText) {
  std::mt19937 random(1);
  const std::vector<Both> splits = all();
  for (int round = 0; round < 4000; ++round) {
    const std::string text = testing::random_text(random, 1 + random() % 40);
    for (const Both& split : splits) {
      ASSERT_EQ(split.by_scanner(text), split.by_regex(text)) << text;
    }
  }
}

// Characters of every kind that some pattern tells apart, and what contractions consist of.
constexpr char32_t kTelling[] = {
    U' ',  U'\n',  U'\t',  0x85,   0x3000, U'\'',  U's',   0x17F,  U'L',   U'e',    0x1C5,
    0x2B0, 0x5D0,  0x4E2D, 0x3005, 0x2E80, 0x3007, 0x30AB, 0x30FB, 0x3099, 0x3040,  0x301,
    U'7',  0x2160, U'/',   U'-',   0x20AC, 0x7,    0x200D, 0x378,  0xE000, 0x1F600, 0x16FF0};

TEST(Scanners, EqualTheirRegexOnShortCombinations) {
  constexpr std::size_t kCount = std::size(kTelling);
  for (const Both& split : all()) {
    for (std::size_t i = 0; i < kCount * kCount * kCount; ++i) {
      std::string text;
      for (const std::size_t at : {i % kCount, i / kCount % kCount, i / kCount / kCount}) {
        utf8::append(text, kTelling[at]);
      }
      ASSERT_EQ(split.by_scanner(text), split.by_regex(text)) << text;
    }
  }
}

TEST(Scanners, EqualTheirRegexOnLongerCombinations) {
  std::mt19937 random(2);
  const std::vector<Both> splits = all();
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (std::size_t left = 1 + random() % 30; left > 0; --left) {
      utf8::append(text, kTelling[random() % std::size(kTelling)]);
    }
    for (const Both& split : splits) {
      ASSERT_EQ(split.by_scanner(text), split.by_regex(text)) << text;
    }
  }
}

// Mostly ASCII, in which many words are found at once: long enough that they lie in several steps.
TEST(Scanners, EqualTheirRegexOnAsciiText) {
  constexpr std::string_view kParts[] = {
      "a", "e",  "l",  "s",  "S",   "t",    "LL",   "re",   "VE", "Word", "words", "'", "'",
      "'", "\"", "(",  "/",  "//",  "!",    "\x01", "\x7f", "1",  "22",   "4444",  " ", " ",
      " ", "  ", "\n", "\r", "\n ", "\n\n", "\t",   "\v",   "\f", " \n",  "    ",  "é"};
  std::mt19937 random(3);
  const std::vector<Both> splits = all();
  for (int round = 0; round < 2500; ++round) {
    // Few different parts make their combinations likely.
    std::string_view some[8];
    for (std::string_view& part : some) {
      part = kParts[random() % std::size(kParts)];
    }
    std::string text;
    for (std::size_t left = 1 + random() % 150; left > 0; --left) {
      text += random() % 4 == 0 ? kParts[random() % std::size(kParts)] : some[random() % 8];
    }
    for (const Both& split : splits) {
      ASSERT_EQ(split.by_scanner(text), split.by_regex(text)) << text;
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
      ASSERT_EQ(split.by_scanner(text), split.by_regex(text)) << static_cast<std::uint32_t>(block);
    }
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
