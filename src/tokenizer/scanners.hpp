#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/ascii_words.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

/// Hand-written equivalents of well-known pre-tokenizer patterns. Each cuts the whole text into
/// words, without gaps, exactly as the regex does.
enum class Scanner : std::uint8_t {
  None,               ///< No equivalent: run the regex.
  Gpt2,               ///< GPT-2, also what `ByteLevel` does with `use_regex`.
  Words1Digit,        ///< Qwen2 and Qwen3: numbers split into single digits.
  Words3Digits,       ///< cl100k and Llama 3: numbers in groups of up to three digits.
  Cl100k,             ///< cl100k as tiktoken has it: white space at the end is one word.
  MarkedWords1Digit,  ///< Qwen3.5: as Qwen3, and combining marks belong to words.
  CaseWords,          ///< o200k (GPT-4o, gpt-oss): words end where lower case turns to upper.
  CaseWords1Digit,    ///< Tekken: as o200k without contractions, single digits.
  HanCaseWords,       ///< Kimi: as o200k, and runs of Han characters are words.
  DeepSeekV3,         ///< What the three Splits of DeepSeek-V3 come to, one after the other.
};

/// All but `None`.
inline constexpr Scanner kAllScanners[] = {
    Scanner::Gpt2,
    Scanner::Words1Digit,
    Scanner::Words3Digits,
    Scanner::Cl100k,
    Scanner::MarkedWords1Digit,
    Scanner::CaseWords,
    Scanner::CaseWords1Digit,
    Scanner::HanCaseWords,
    Scanner::DeepSeekV3,
};

/// The GPT-2 pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The scanner that equals this pattern, or `None`.
Scanner recognize_pattern(std::string_view pattern);

/// The scanner that equals several Splits with these patterns, each isolating its matches in the
/// pieces of the one before; or `None`.
Scanner recognize_patterns(std::span<const std::string> patterns);

/// The patterns that a scanner stands for, in the order in which they apply.
std::span<const std::string_view> scanner_patterns(Scanner scanner);

/// The kinds that a scanner looks at; built at the first call for it, shared and immutable. Beside
/// `CodePointKind` it holds three kinds of its own for a script that the scanner sets apart.
const CodePointTable& scanner_kinds(Scanner scanner);

/// Letters of the script that `scanner_kinds` sets apart (DeepSeek-V3: and its marks). Categories
/// of white space, which is `Space` there, lend their numbers to these three.
inline constexpr std::uint32_t kApartLetters = kind_bit(CodePointKind::Zs);
/// Its numbers (DeepSeek-V3: punctuation and symbols).
inline constexpr std::uint32_t kApartNumbers = kind_bit(CodePointKind::Zl);
/// Its other characters.
inline constexpr std::uint32_t kApartOther = kind_bit(CodePointKind::Zp);

/// `kind_bit` of the kind of each ASCII character; a unit test compares it with the table.
inline constexpr std::array<std::uint32_t, 128> kAsciiKinds = [] {
  using enum CodePointKind;
  constexpr std::pair<std::string_view, CodePointKind> kSets[] = {
      {"ABCDEFGHIJKLMNOPQRSTUVWXYZ", Lu},
      {"abcdefghijklmnopqrstuvwxyz", Ll},
      {"0123456789", Nd},
      {"_", Pc},
      {"-", Pd},
      {"([{", Ps},
      {")]}", Pe},
      {"!\"#%&'*,./:;?@\\", Po},
      {"+<=>|~", Sm},
      {"$", Sc},
      {"^`", Sk},
      {" \t\v\f", Space},
      {"\r\n", Newline},
  };
  std::array<std::uint32_t, 128> kinds{};
  kinds.fill(kind_bit(Cc));
  for (const auto& [characters, kind] : kSets) {
    for (const char c : characters) {
      kinds[static_cast<unsigned char>(c)] = kind_bit(kind);
    }
  }
  return kinds;
}();

/// `\p{P}` and `\p{S}`.
inline constexpr std::uint32_t kPunctuationKinds = 0x3FF800;

/// Finds the end of the word that starts at a position. Text must be well-formed UTF-8.
class WordScanner {
 public:
  /// The text must outlive the object.
  WordScanner(Scanner scanner, std::string_view text)
      : text_(text), kinds_(scanner_kinds(scanner)) {}

  /// End of the word at `pos` (before the end of the text), by the rules of one scanner.
  template <Scanner kScanner>
  std::size_t next(std::size_t pos) const {
    if constexpr (kScanner == Scanner::Gpt2) {
      return next_gpt2(pos);
    } else if constexpr (kScanner == Scanner::MarkedWords1Digit) {
      return next_words < kLetterKinds | kMarkKinds, 1 > (pos);
    } else if constexpr (kScanner == Scanner::CaseWords) {
      return next_case_words<kO200k>(pos);
    } else if constexpr (kScanner == Scanner::CaseWords1Digit) {
      return next_case_words<kTekken>(pos);
    } else if constexpr (kScanner == Scanner::HanCaseWords) {
      return next_case_words<kKimi>(pos);
    } else if constexpr (kScanner == Scanner::DeepSeekV3) {
      return next_deepseek(pos);
    } else if constexpr (kScanner == Scanner::Cl100k) {
      const std::size_t end = run(pos, kSpaceKinds);
      return end != pos && end == text_.size() ? end : next_words<kLetterKinds, 3>(pos);
    } else {
      return next_words < kLetterKinds, kScanner == Scanner::Words3Digits ? 3 : 1 > (pos);
    }
  }

 private:
  struct Character {
    std::size_t end;     // one past it
    std::uint32_t kind;  // its kind's bit; 0 at the end of the text
  };

  // How the patterns with words by letter case differ.
  struct CaseRules {
    bool contractions;
    int max_digits;
    bool slash_after_punctuation;
    bool han_apart;
  };
  static constexpr std::uint32_t kApart = kApartLetters | kApartNumbers | kApartOther;
  static constexpr CaseRules kO200k{true, 3, true, false};
  static constexpr CaseRules kTekken{false, 1, true, false};
  static constexpr CaseRules kKimi{true, 3, false, true};

  Character at(std::size_t pos) const {
    if (pos >= text_.size()) {
      return {pos, 0};
    }
    const auto lead = static_cast<unsigned char>(text_[pos]);
    if (lead < 0x80) {
      return {pos + 1, kAsciiKinds[lead]};
    }
    std::size_t length = 0;
    const char32_t c = decode_valid(text_.data() + pos, length);
    return {pos + length, std::uint32_t{1} << kinds_[c]};
  }

  // End of the run of characters of these kinds.
  std::size_t run(std::size_t pos, std::uint32_t kinds) const {
    for (Character c = at(pos); (c.kind & kinds) != 0; c = at(pos)) {
      pos = c.end;
    }
    return pos;
  }

  // End of a number whose first digit ends at `pos`.
  std::size_t digits(std::size_t pos, std::uint32_t kinds, int max_digits) const {
    for (int i = 1; i < max_digits; ++i) {
      const Character c = at(pos);
      if ((c.kind & kinds) == 0) {
        break;
      }
      pos = c.end;
    }
    return pos;
  }

  // Length of a contraction behind an apostrophe at `pos`, with it; 0 when there is none.
  std::size_t contraction(std::size_t pos, bool ignore_case) const;

  // \s+(?!\S)|\s+ : the last of several spaces belongs to what follows, unless that is the end or
  // one of `kEnds`, where a piece of the text ends.
  template <std::uint32_t kEnds = 0>
  std::size_t spaces(std::size_t pos) const {
    const std::size_t end = run(pos, kSpaceKinds);
    if (end == text_.size() || (kEnds != 0 && (at(end).kind & kEnds) != 0)) {
      return end;
    }
    const std::size_t last = previous_character(text_, end);
    return last > pos ? last : end;
  }

  template <std::uint32_t kWordKinds, int kMaxDigits>
  std::size_t next_words(std::size_t pos) const {
    constexpr std::uint32_t kOtherKinds = ~(kWordKinds | kNumberKinds | kSpaceKinds);
    if (text_[pos] == '\'') {
      if (const std::size_t length = contraction(pos, true)) {
        return pos + length;
      }
    }
    const Character first = at(pos);
    if ((first.kind & kWordKinds) != 0) {
      return run(first.end, kWordKinds);
    }
    if ((first.kind & kNumberKinds) != 0) {
      return digits(first.end, kNumberKinds, kMaxDigits);
    }
    const Character second = at(first.end);
    if (first.kind != kind_bit(CodePointKind::Newline) && (second.kind & kWordKinds) != 0) {
      return run(second.end, kWordKinds);
    }
    if ((first.kind & kOtherKinds) != 0) {
      return run(run(first.end, kOtherKinds), kind_bit(CodePointKind::Newline));
    }
    if (text_[pos] == ' ' && (second.kind & kOtherKinds) != 0) {
      return run(run(second.end, kOtherKinds), kind_bit(CodePointKind::Newline));
    }
    return spaces_to_newline(pos);
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  template <std::uint32_t kEnds = 0>
  std::size_t spaces_to_newline(std::size_t pos) const {
    std::size_t newline_end = 0;
    std::size_t end = pos;
    for (Character c = at(end); (c.kind & kSpaceKinds) != 0; c = at(end)) {
      end = c.end;
      if (c.kind == kind_bit(CodePointKind::Newline)) {
        newline_end = end;
      }
    }
    return newline_end != 0 ? newline_end : spaces<kEnds>(pos);
  }

  // End of the letters at `pos` by the two alternatives UPPER*LOWER+ and UPPER+LOWER*, where
  // modifiers, letters without case and marks are both; `pos` when there are none. The first gives
  // back of UPPER* up to the last character that is also LOWER. `mark_end`: what the first takes
  // when it can only begin with a mark before `pos`, or 0.
  std::size_t case_word(std::size_t pos, std::size_t mark_end) const {
    constexpr std::uint32_t kBoth =
        (kLetterKinds & ~(kind_bit(CodePointKind::Lu) | kind_bit(CodePointKind::Ll) |
                          kind_bit(CodePointKind::Lt))) |
        kMarkKinds;
    constexpr std::uint32_t kUpper =
        kBoth | kind_bit(CodePointKind::Lu) | kind_bit(CodePointKind::Lt);
    constexpr std::uint32_t kLower = kBoth | kind_bit(CodePointKind::Ll);
    std::size_t last_both = mark_end;
    Character c = at(pos);
    while ((c.kind & kUpper) != 0) {
      pos = c.end;
      if ((c.kind & kBoth) != 0) {
        last_both = pos;
      }
      c = at(pos);
    }
    if ((c.kind & kLower) != 0) {
      return run(c.end, kLower);
    }
    return last_both != 0 ? last_both : pos;
  }

  template <const CaseRules& kRules>
  std::size_t next_case_words(std::size_t pos) const {
    constexpr std::uint32_t kHan = kRules.han_apart ? kApart : 0;
    constexpr std::uint32_t kLetters = kLetterKinds | (kHan & kApartLetters);
    constexpr std::uint32_t kNumbers = kNumberKinds | (kHan & kApartNumbers);
    constexpr std::uint32_t kOther = ~(kLetters | kNumbers | kSpaceKinds);
    const Character first = at(pos);
    if ((first.kind & kHan) != 0) {
      return run(first.end, kHan);
    }
    if ((first.kind & kNumbers) != 0) {
      return digits(first.end, kNumbers, kRules.max_digits);
    }
    if (first.kind != kind_bit(CodePointKind::Newline)) {
      const bool prefix = (first.kind & kLetters) == 0;
      const std::size_t begin = prefix ? first.end : pos;
      const std::size_t end = case_word(begin, (first.kind & kMarkKinds) != 0 ? first.end : 0);
      if (end != begin || (first.kind & kMarkKinds) != 0) {
        if (kRules.contractions && end < text_.size() && text_[end] == '\'') {
          return end + contraction(end, true);
        }
        return end;
      }
    }
    const std::size_t punctuation = text_[pos] == ' ' ? first.end : pos;
    std::size_t end = run(punctuation, kOther);
    if (end == punctuation) {
      return spaces_to_newline(pos);
    }
    while (end < text_.size() && (text_[end] == '\r' || text_[end] == '\n' ||
                                  (kRules.slash_after_punctuation && text_[end] == '/'))) {
      ++end;
    }
    return end;
  }

  // \p{N}{1,3}, then [一-龥\u3040-ゟ゠-ヿ]+, then words: each step sees a piece between matches of
  // the one before as if it were all of the text.
  std::size_t next_deepseek(std::size_t pos) const {
    using enum CodePointKind;
    constexpr std::uint32_t kRest = kind_bit(Cc) | kind_bit(Cf) | kind_bit(Co) | kind_bit(Cn);
    const Character first = at(pos);
    if ((first.kind & kNumberKinds) != 0) {
      return digits(first.end, kNumberKinds, 3);
    }
    if ((first.kind & kApart) != 0) {
      return deepseek_word<kApartLetters, kApartNumbers, kApartOther, 0>(pos, first);
    }
    return deepseek_word < kLetterKinds | kMarkKinds, kPunctuationKinds, kRest,
           kSpaceKinds > (pos, first);
  }

  // The kinds of a piece's characters: letters with marks, punctuation with symbols, white space
  // and the rest.
  template <std::uint32_t kLetters, std::uint32_t kPunctuation, std::uint32_t kRest,
            std::uint32_t kSpace>
  std::size_t deepseek_word(std::size_t pos, Character first) const {
    constexpr std::uint32_t kNewline = kSpace & kind_bit(CodePointKind::Newline);
    if ((first.kind & kLetters) != 0) {
      return run(first.end, kLetters);
    }
    const Character second = at(first.end);
    if ((first.kind & kPunctuation) != 0 && first.end == pos + 1 && is_ascii_letter(first.end)) {
      std::size_t end = second.end;
      while (is_ascii_letter(end)) {
        ++end;
      }
      return end;
    }
    if ((first.kind & (kRest | (kSpace & ~kNewline))) != 0 && (second.kind & kLetters) != 0) {
      return run(second.end, kLetters);
    }
    const std::size_t punctuation = text_[pos] == ' ' ? first.end : pos;
    if (const std::size_t end = run(punctuation, kPunctuation); end != punctuation) {
      return run(end, kNewline);
    }
    if ((first.kind & kRest) == 0) {
      return spaces_to_newline < kApart | kNumberKinds > (pos);
    }
    // Nothing matches here: what lies between two matches is one piece.
    std::size_t end = first.end;
    for (Character c = second; (c.kind & kRest) != 0;) {
      const Character next = at(c.end);
      if ((next.kind & kLetters) != 0) {
        break;
      }
      end = c.end;
      c = next;
    }
    return end;
  }

  bool is_ascii_letter(std::size_t pos) const {
    const auto c = static_cast<unsigned char>(pos < text_.size() ? text_[pos] | 0x20 : 0);
    return c >= 'a' && c <= 'z';
  }

  std::size_t next_gpt2(std::size_t pos) const {
    constexpr std::uint32_t kOtherKinds = ~(kLetterKinds | kNumberKinds | kSpaceKinds);
    if (text_[pos] == '\'') {
      if (const std::size_t length = contraction(pos, false)) {
        return pos + length;
      }
    }
    Character c = at(pos);
    if (text_[pos] == ' ') {
      if (const Character after = at(pos + 1); after.kind != 0) {
        c = after;
      }
    }
    for (const std::uint32_t kinds : {kLetterKinds, kNumberKinds, kOtherKinds}) {
      if ((c.kind & kinds) != 0) {
        return run(c.end, kinds);
      }
    }
    return spaces(pos);
  }

  std::string_view text_;
  const CodePointTable& kinds_;
};

/// What a scanner does with ASCII text.
template <Scanner kScanner>
inline constexpr AsciiRules kAsciiRules = [] {
  using enum AsciiRules::Contractions;
  AsciiRules rules;
  switch (kScanner) {
    case Scanner::Gpt2:
      rules = {.contractions = Lower, .digits = 0, .only_space_joins = true};
      break;
    case Scanner::Words1Digit:
    case Scanner::MarkedWords1Digit: rules = {.contractions = AnyCase}; break;
    case Scanner::Words3Digits:
    case Scanner::Cl100k: rules = {.contractions = AnyCase, .digits = 3}; break;
    case Scanner::CaseWords:
      rules = {.contractions = Attached, .digits = 3, .case_words = true, .slash = true};
      break;
    case Scanner::CaseWords1Digit: rules = {.case_words = true, .slash = true}; break;
    case Scanner::HanCaseWords:
      rules = {.contractions = Attached, .digits = 3, .case_words = true};
      break;
    case Scanner::DeepSeekV3:
      rules = {.digits = 3, .number_ends = true, .plain_controls = false};
      break;
    case Scanner::None: break;
  }
  return rules;
}();

/// Calls `word(begin, end)` for some words, of which the first begins at `from`, as long as they
/// begin before `until`. Returns where the last one ends: `from` when the next one is not for this
/// function, which sees ASCII words alone and only when the compiler may use vector registers.
template <Scanner kScanner, class Function>
std::size_t for_ascii_words([[maybe_unused]] std::string_view text, std::size_t from,
                            [[maybe_unused]] std::size_t until, [[maybe_unused]] Function&& word) {
#ifdef FAIRLEAD_ASCII_WORDS
  const auto is_ascii = [&](std::size_t at) {
    return at < text.size() && static_cast<unsigned char>(text[at]) < 0x80;
  };
  std::array<char, kWindow> end_of_text;  // NOLINT: filled below
  for (std::size_t pos = from;;) {
    if (pos >= until || !is_ascii(pos) || !is_ascii(pos + 1)) {
      return pos;
    }
    const char* window = text.data() + pos;
    if (const std::size_t left = text.size() - pos; left < kWindow) {
      std::memcpy(end_of_text.data(), window, left);
      std::memset(end_of_text.data() + left, 0xFF, kWindow - left);
      window = end_of_text.data();
    }
    const std::size_t base = pos;
    std::uint64_t starts = AsciiWords<kAsciiRules<kScanner>>::starts(window, byte_kinds(window));
    if (starts == 0) {
      return pos;
    }
    for (; starts != 0 && pos < until; starts &= starts - 1) {
      const std::size_t end = base + static_cast<std::size_t>(std::countr_zero(starts));
      word(pos, end);
      pos = end;
    }
  }
#else
  return from;
#endif
}

/// Calls `word(begin, end)` for every word of the text that begins in [`from`, `until`), where
/// `from` is the beginning of a word; returns where the last one ends. `scanner` is not `None`.
template <class Function>
std::size_t for_each_word(Scanner scanner, std::string_view text, std::size_t from,
                          std::size_t until, Function&& word) {
  const WordScanner words(scanner, text);
  const auto loop = [&]<Scanner kScanner>() {
    std::size_t pos = from;
    while (true) {
      pos = for_ascii_words<kScanner>(text, pos, until, word);
      if (pos >= until) {
        return pos;
      }
      const std::size_t end = words.next<kScanner>(pos);
      word(pos, end);
      pos = end;
    }
  };
  switch (scanner) {
    case Scanner::Gpt2: return loop.template operator()<Scanner::Gpt2>();
    case Scanner::Words1Digit: return loop.template operator()<Scanner::Words1Digit>();
    case Scanner::Words3Digits: return loop.template operator()<Scanner::Words3Digits>();
    case Scanner::Cl100k: return loop.template operator()<Scanner::Cl100k>();
    case Scanner::MarkedWords1Digit: return loop.template operator()<Scanner::MarkedWords1Digit>();
    case Scanner::CaseWords: return loop.template operator()<Scanner::CaseWords>();
    case Scanner::CaseWords1Digit: return loop.template operator()<Scanner::CaseWords1Digit>();
    case Scanner::HanCaseWords: return loop.template operator()<Scanner::HanCaseWords>();
    case Scanner::DeepSeekV3: return loop.template operator()<Scanner::DeepSeekV3>();
    case Scanner::None: std::unreachable();
  }
}

/// Calls `word(begin, end)` for every word of the text; `scanner` is not `None`.
template <class Function>
void for_each_word(Scanner scanner, std::string_view text, Function&& word) {
  for_each_word(scanner, text, 0, text.size(), word);
}

}  // namespace fairlead::tokenizer
