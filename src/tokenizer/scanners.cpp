#include "tokenizer/scanners.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace fairlead::tokenizer {

namespace {

struct Known {
  std::string_view pattern;
  Scanner scanner;
};

constexpr Known kKnown[] = {
    {kGpt2Pattern, Scanner::Gpt2},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::Words1Digit},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::Words3Digits},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::Cl100k},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::MarkedWords1Digit},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::CaseWords},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::CaseWords1Digit},
    {R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::HanCaseWords},
};

constexpr std::string_view kDeepSeekPatterns[] = {
    R"(\p{N}{1,3})",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

// The kinds, with those characters of a script set apart for which `apart(c)`.
template <class Function>
CodePointTable set_apart(std::uint32_t letters, std::uint32_t numbers, Function&& apart) {
  const CodePointTable& kinds = code_point_kinds();
  const auto index = [](std::uint32_t bit) { return static_cast<unsigned>(std::countr_zero(bit)); };
  std::vector<std::uint32_t> runs;
  unsigned last = ~0U;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    unsigned kind = kinds[c];
    if (apart(c)) {
      const std::uint32_t bit = std::uint32_t{1} << kind;
      kind = index((bit & letters) != 0   ? kApartLetters
                   : (bit & numbers) != 0 ? kApartNumbers
                                          : kApartOther);
    }
    if (kind != last) {
      runs.push_back(static_cast<std::uint32_t>(c) << 5 | kind);
      last = kind;
    }
  }
  return {runs.data(), runs.size(), 5};
}

}  // namespace

Scanner recognize_pattern(std::string_view pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) {
      return known.scanner;
    }
  }
  return Scanner::None;
}

Scanner recognize_patterns(std::span<const std::string> patterns) {
  return std::ranges::equal(patterns, kDeepSeekPatterns) ? Scanner::DeepSeekV3 : Scanner::None;
}

std::span<const std::string_view> scanner_patterns(Scanner scanner) {
  if (scanner == Scanner::DeepSeekV3) {
    return kDeepSeekPatterns;
  }
  const auto* known = std::ranges::find(kKnown, scanner, &Known::scanner);
  return known == std::end(kKnown) ? std::span<const std::string_view>()
                                   : std::span(&known->pattern, 1);
}

const CodePointTable& scanner_kinds(Scanner scanner) {
  if (scanner == Scanner::HanCaseWords) {
    static const CodePointTable han = [] {
      const CodePointSet set = property("Han").value_or(CodePointSet());
      return set_apart(kLetterKinds, kNumberKinds, [&](char32_t c) { return set.contains(c); });
    }();
    return han;
  }
  if (scanner == Scanner::DeepSeekV3) {
    static const CodePointTable east_asian = set_apart(
        kLetterKinds | kMarkKinds, kPunctuationKinds,
        [](char32_t c) { return (c >= U'一' && c <= U'龥') || (c >= U'\u3040' && c <= U'ヿ'); });
    return east_asian;
  }
  return code_point_kinds();
}

std::size_t WordScanner::contraction(std::size_t pos, bool ignore_case) const {
  const auto letter = [&](std::size_t i) -> char {
    if (pos + i >= text_.size()) {
      return '\0';
    }
    const char c = text_[pos + i];
    return ignore_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? 3 : 0;
    case 'l': return letter(2) == 'l' ? 3 : 0;
    default: break;
  }
  // U+017F, the long s, folds to s.
  return ignore_case && text_.substr(pos + 1).starts_with("\u017F") ? 3 : 0;
}

}  // namespace fairlead::tokenizer
