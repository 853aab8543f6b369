#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

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
  MarkedWords1Digit,  ///< Qwen3.5: as Qwen3, and combining marks belong to words.
};

/// The GPT-2 pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The scanner that equals this pattern, or `None`.
Scanner recognize_pattern(std::string_view pattern);

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

/// Finds the end of the word that starts at a position. Text must be well-formed UTF-8.
class WordScanner {
 public:
  /// The text must outlive the scanner.
  explicit WordScanner(std::string_view text) : text_(text), kinds_(code_point_kinds()) {}

  /// End of the word at `pos` (before the end of the text), by the rules of one scanner.
  template <Scanner kScanner>
  std::size_t next(std::size_t pos) const {
    if constexpr (kScanner == Scanner::Gpt2) {
      return next_gpt2(pos);
    } else if constexpr (kScanner == Scanner::MarkedWords1Digit) {
      return next_words < kLetterKinds | kMarkKinds, 1 > (pos);
    } else {
      return next_words < kLetterKinds, kScanner == Scanner::Words3Digits ? 3 : 1 > (pos);
    }
  }

 private:
  struct Character {
    std::size_t end;     // one past it
    std::uint32_t kind;  // its kind's bit; 0 at the end of the text
  };

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

  // Length of a contraction behind an apostrophe at `pos`, with it; 0 when there is none.
  std::size_t contraction(std::size_t pos, bool ignore_case) const;

  // \s+(?!\S)|\s+ : the last of several spaces belongs to what follows.
  std::size_t spaces(std::size_t pos) const {
    const std::size_t end = run(pos, kSpaceKinds);
    if (end == text_.size()) {
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
      std::size_t end = first.end;
      for (int i = 1; i < kMaxDigits; ++i) {
        const Character c = at(end);
        if ((c.kind & kNumberKinds) == 0) {
          break;
        }
        end = c.end;
      }
      return end;
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
  std::size_t spaces_to_newline(std::size_t pos) const {
    std::size_t newline_end = 0;
    std::size_t end = pos;
    for (Character c = at(end); (c.kind & kSpaceKinds) != 0; c = at(end)) {
      end = c.end;
      if (c.kind == kind_bit(CodePointKind::Newline)) {
        newline_end = end;
      }
    }
    return newline_end != 0 ? newline_end : spaces(pos);
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

/// Calls `word(begin, end)` for every word of the text that begins in [`from`, `until`), where
/// `from` is the beginning of a word; returns where the last one ends. `scanner` is not `None`.
template <class Function>
std::size_t for_each_word(Scanner scanner, std::string_view text, std::size_t from,
                          std::size_t until, Function&& word) {
  const WordScanner words(text);
  const auto loop = [&]<Scanner kScanner>() {
    std::size_t pos = from;
    while (pos < until) {
      const std::size_t end = words.next<kScanner>(pos);
      word(pos, end);
      pos = end;
    }
    return pos;
  };
  switch (scanner) {
    case Scanner::Gpt2: return loop.template operator()<Scanner::Gpt2>();
    case Scanner::Words1Digit: return loop.template operator()<Scanner::Words1Digit>();
    case Scanner::Words3Digits: return loop.template operator()<Scanner::Words3Digits>();
    case Scanner::MarkedWords1Digit: return loop.template operator()<Scanner::MarkedWords1Digit>();
    case Scanner::None: std::unreachable();
  }
}

/// Calls `word(begin, end)` for every word of the text; `scanner` is not `None`.
template <class Function>
void for_each_word(Scanner scanner, std::string_view text, Function&& word) {
  for_each_word(scanner, text, 0, text.size(), word);
}

}  // namespace fairlead::tokenizer
