#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__SSE2__) && !defined(FAIRLEAD_NO_SIMD)
#include <emmintrin.h>
#define FAIRLEAD_ASCII_WORDS 1  // NOLINT(cppcoreguidelines-macro-usage)
#endif

namespace fairlead::tokenizer {

/// Bytes that are looked at together.
inline constexpr std::size_t kWindow = 64;

/// Which of 64 bytes of text are of a kind, the first one in the lowest bit. White space is ` `,
/// `\t`, `\n`, `\v`, `\f`, `\r`.
struct ByteKinds {
  std::uint64_t letter;      ///< ASCII letters.
  std::uint64_t lower;       ///< Bytes with bit 5, which tells lower from upper case.
  std::uint64_t digit;       ///< `0` to `9`.
  std::uint64_t white;       ///< White space.
  std::uint64_t newline;     ///< `\n` and `\r`.
  std::uint64_t space;       ///< ` `.
  std::uint64_t apostrophe;  ///< `'`.
  std::uint64_t slash;       ///< `/`.
  std::uint64_t control;     ///< ASCII control characters but white space.
  std::uint64_t high;        ///< Bytes of other characters than ASCII.
};

#ifdef FAIRLEAD_ASCII_WORDS
/// The kinds of the 64 bytes at `text`.
inline ByteKinds byte_kinds(const char* text) {
  ByteKinds kinds{};
  const auto* const from = reinterpret_cast<const __m128i*>(text);
  // c <= last && c > last - count, for c in ASCII; false for other bytes.
  const auto in_range = [](__m128i c, char last, int count) {
    const __m128i moved = _mm_add_epi8(c, _mm_set1_epi8(static_cast<char>(0x7F - last)));
    return _mm_cmpgt_epi8(moved, _mm_set1_epi8(static_cast<char>(0x7F - count)));
  };
  for (int i = 0; i < 4; ++i) {
    const __m128i c = _mm_loadu_si128(from + i);
    const auto is = [c](char wanted) { return _mm_cmpeq_epi8(c, _mm_set1_epi8(wanted)); };
    const auto put = [i](std::uint64_t& bits, __m128i bytes) {
      bits |= std::uint64_t{static_cast<std::uint16_t>(_mm_movemask_epi8(bytes))} << (16 * i);
    };
    const __m128i space = is(' ');
    put(kinds.letter, in_range(_mm_or_si128(c, _mm_set1_epi8(0x20)), 'z', 26));
    put(kinds.lower, _mm_slli_epi16(c, 2));
    put(kinds.digit, in_range(c, '9', 10));
    put(kinds.white, _mm_or_si128(space, in_range(c, '\r', 5)));
    put(kinds.newline, _mm_or_si128(is('\n'), is('\r')));
    put(kinds.space, space);
    put(kinds.apostrophe, is('\''));
    put(kinds.slash, is('/'));
    put(kinds.control, _mm_or_si128(_mm_cmplt_epi8(c, _mm_set1_epi8(0x20)), is(0x7F)));
    put(kinds.high, c);
  }
  kinds.control &= ~(kinds.white | kinds.high);
  return kinds;
}
#endif

/// How the patterns that have a scanner differ for ASCII text.
struct AsciiRules {
  /// Where `'s` and its kin are words.
  enum class Contractions : std::uint8_t {
    None,     ///< They are nothing special.
    Lower,    ///< Apart, before all else, in lower case.
    AnyCase,  ///< The same in any case.
    Attached  ///< With the letters before them, in any case.
  };
  Contractions contractions = Contractions::None;  ///< As above.
  unsigned digits = 1;                             ///< Most digits of a word; 0 for no bound.
  bool case_words = false;                         ///< Words end where lower case turns to upper.
  bool slash = false;             ///< Punctuation takes slashes with the newlines behind it.
  bool only_space_joins = false;  ///< GPT-2: ` ` and nothing else begins a word of letters, digits
                                  ///< or others, and newlines are like other white space.
  bool number_ends = false;       ///< White space before a digit is not divided.
  bool plain_controls = true;     ///< Control characters are like punctuation.
};

/// Finds where words begin in 64 bytes of text, all at once in the bits of integers. Bit 0 is the
/// beginning of a word.
template <const AsciiRules& kRules>
class AsciiWords {
 public:
  /// The beginnings of words behind the first byte that are certain whatever follows the 64 bytes;
  /// none when there is no second word, or one that is not ASCII comes before it.
  static std::uint64_t starts(const char* text, const ByteKinds& kinds) {
    using enum AsciiRules::Contractions;
    const std::uint64_t stop = kinds.high | (kRules.plain_controls ? 0 : kinds.control);
    const int size = std::countr_zero(stop);  // bytes that count
    if (size < 2) {
      return 0;
    }
    const std::uint64_t counts = ~std::uint64_t{0} >> (64 - size);
    const std::uint64_t letter = kinds.letter & counts;
    const std::uint64_t digit = kinds.digit & counts;
    const std::uint64_t white = kinds.white & counts;
    const std::uint64_t other = ~(letter | digit | white) & counts;
    std::uint64_t free_white = white;
    std::uint64_t white_starts = 0;
    std::uint64_t other_starts = 0;
    std::uint64_t letter_starts = letter & ~(letter << 1);
    std::uint64_t digit_starts = digit;
    if constexpr (kRules.only_space_joins) {
      const std::uint64_t joined = kinds.space << 1;
      white_starts = (white & ~(white << 1)) | (white & ~(white >> 1));
      other_starts = other & ~(other << 1) & ~joined;
      letter_starts &= ~joined;
      digit_starts &= ~(digit << 1) & ~joined;
    } else {
      const std::uint64_t newline = kinds.newline & counts;
      const std::uint64_t blank = white & ~newline;
      // Newlines behind punctuation, in some patterns also slashes among them, belong to it.
      const std::uint64_t taken = taken_newlines(newline, other, kRules.slash ? kinds.slash : 0);
      other_starts = other & ~taken;
      other_starts &= ~(other_starts << 1) & ~(kinds.space << 1);
      free_white &= ~taken;
      // White space begins a word; it is cut behind its last newline and before the last one of
      // the blanks, which joins what follows.
      white_starts = (free_white & ~(free_white << 1)) |
                     (blank & ~((kRules.number_ends ? white | digit : white) >> 1)) |
                     last_blanks(blank, newline);
      letter_starts &= ~(blank << 1) & ~(other_starts << 1);
      if constexpr (kRules.case_words) {
        letter_starts |= letter & ~kinds.lower & (letter & kinds.lower) << 1;
      }
      digit_starts = kRules.digits == 1 ? digit : groups_of_three(digit);
    }
    std::uint64_t all = (white_starts | other_starts | letter_starts | digit_starts) & counts;
    // How white space at the end is cut depends on what follows; where it begins does not.
    const int end_white = std::countl_one(white << (64 - size));
    if (end_white != 0) {
      const int first = size - end_white;
      const std::uint64_t last = ~std::uint64_t{0} << first;
      all &= ~last | (free_white & ~(free_white << 1));
    }
    if constexpr (kRules.contractions == Attached) {
      all = attach_contractions(text, all, kinds.apostrophe & counts, letter, size);
    } else if constexpr (kRules.contractions != None) {
      all =
          cut_contractions(text, all, kinds.apostrophe & other_starts & letter >> 1, letter, size);
    }
    return all & ~std::uint64_t{1};
  }

 private:
  static std::uint64_t taken_newlines(std::uint64_t newline, std::uint64_t other,
                                      std::uint64_t slash) {
    const std::uint64_t first = newline & other << 1;
    const std::uint64_t runs = newline | (slash & other);
    // Adding the first bit of a run clears it up to its end; a second one in it is set again.
    return (((runs + first) ^ runs) | first) & runs;
  }

  // Beginnings of runs of blanks that follow a newline and that no newline follows.
  static std::uint64_t last_blanks(std::uint64_t blank, std::uint64_t newline) {
    std::uint64_t begins = blank & newline << 1;
    std::uint64_t wrong = (begins + blank) & ~blank & newline;
    while (wrong != 0) {
      const std::uint64_t before = begins & ((wrong & -wrong) - 1);
      begins &= ~std::bit_floor(before);
      wrong &= wrong - 1;
    }
    return begins;
  }

  static std::uint64_t groups_of_three(std::uint64_t digit) {
    std::uint64_t starts = digit & ~(digit << 1);
    const std::uint64_t fourth = digit & digit << 1 & digit << 2 & digit << 3;
    for (std::uint64_t next = starts << 3 & fourth; next != 0; next = next << 3 & fourth) {
      starts |= next;
    }
    return starts;
  }

  // Length of the contraction whose apostrophe is at `at`, 0 when there is none; what lies behind
  // `size` is unknown and makes it -1 when it matters.
  static int contraction(const char* text, int at, int size) {
    constexpr bool kAnyCase = kRules.contractions != AsciiRules::Contractions::Lower;
    const auto letter = [&](int i) { return kAnyCase ? text[at + i] | 0x20 : text[at + i]; };
    const int first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
      return 2;
    }
    if (first != 'r' && first != 'v' && first != 'l') {
      return 0;
    }
    if (at + 2 >= size) {
      return -1;
    }
    return letter(2) == (first == 'l' ? 'l' : 'e') ? 3 : 0;
  }

  static std::uint64_t bit(int at) { return std::uint64_t{1} << at; }

  // Apostrophes that begin a word and have a letter behind them: `found`.
  static std::uint64_t cut_contractions(const char* text, std::uint64_t starts, std::uint64_t found,
                                        std::uint64_t letter, int size) {
    for (; found != 0; found &= found - 1) {
      const int at = std::countr_zero(found);
      const int length = contraction(text, at, size);
      if (length < 0) {
        return starts & (bit(at) | (bit(at) - 1));
      }
      if (length != 0) {
        starts &= ~bit(at + 1);
        starts |= at + length < size ? letter & bit(at + length) : 0;
      }
    }
    return starts;
  }

  static std::uint64_t attach_contractions(const char* text, std::uint64_t starts,
                                           std::uint64_t apostrophe, std::uint64_t letter,
                                           int size) {
    int done = 0;  // end of the last contraction; it takes no further one
    for (std::uint64_t found = apostrophe & letter << 1; found != 0; found &= found - 1) {
      const int at = std::countr_zero(found);
      if (at == done) {
        continue;
      }
      if (at + 1 >= size) {
        return starts & (bit(at) - 1);
      }
      const int length = (letter & bit(at + 1)) != 0 ? contraction(text, at, size) : 0;
      if (length < 0) {
        return starts & (bit(at) - 1);
      }
      if (length != 0) {
        done = at + length;
        starts &= ~(bit(at) * (length == 2 ? 3 : 7));
        starts |= done < size ? letter & bit(done) : 0;
      }
    }
    return starts;
  }
};

}  // namespace fairlead::tokenizer
