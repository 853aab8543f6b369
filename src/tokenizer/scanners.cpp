#include "tokenizer/scanners.hpp"

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
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::MarkedWords1Digit},
};

}  // namespace

Scanner recognize_pattern(std::string_view pattern) {
  for (const Known& known : kKnown) {
    if (known.pattern == pattern) {
      return known.scanner;
    }
  }
  return Scanner::None;
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
