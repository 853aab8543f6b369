#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tokenizer/unicode_data.hpp"

namespace fairlead::tokenizer {

/// A set of code points as sorted, disjoint, non-adjacent inclusive ranges.
class CodePointSet {
 public:
  CodePointSet() = default;
  /// From ranges in any order.
  explicit CodePointSet(std::vector<data::Range> ranges);

  /// True when the code point is in the set.
  bool contains(char32_t code_point) const;
  /// The ranges.
  const std::vector<data::Range>& ranges() const { return ranges_; }
  /// The same set without surrogates, which UTF-8 text cannot hold.
  CodePointSet without_surrogates() const;

 private:
  std::vector<data::Range> ranges_;
};

/// The set that the reference's regex calls `\p{name}`: general categories and their groups,
/// scripts, POSIX classes, and the few binary properties that have a table. Case, spaces, `-` and
/// `_` in the name do not matter. Nothing when the name is unknown here. `in_brackets` as for
/// `word_class`.
std::optional<CodePointSet> property(std::string_view name, bool in_brackets = false);

/// The set that the reference's regex calls `[:name:]` in brackets; its `punct` has the symbols,
/// which that of `property` lacks. Nothing when the name is unknown.
std::optional<CodePointSet> posix_class(std::string_view name);

/// `\s` of the reference's regex.
CodePointSet space_class();
/// `\w` of the reference's regex. Within brackets it lacks the superscript digits and fractions of
/// Latin-1, which are in it elsewhere.
CodePointSet word_class(bool in_brackets = false);
/// `\d` of the reference's regex.
CodePointSet digit_class();

/// Whether the code point is a word character beside a `single_word` added token.
bool is_added_token_word(char32_t code_point);

/// Whether the code point is white space for `lstrip` and `rstrip` of added tokens.
bool is_white_space(char32_t code_point);

/// A byte per code point in two stages; equal blocks are stored once.
class CodePointTable {
 public:
  /// From packed runs (value in the low `value_bits` bits).
  CodePointTable(const std::uint32_t* runs, std::size_t count, int value_bits);
  /// Sets one code point; for building only.
  void set(char32_t code_point, std::uint8_t value);

  /// The value of a code point up to U+10FFFF.
  std::uint8_t operator[](char32_t code_point) const {
    return blocks_[std::size_t{index_[code_point >> 8]} << 8 | (code_point & 0xFF)];
  }

 private:
  std::array<std::uint16_t, 0x1100> index_{};
  std::vector<std::uint8_t> blocks_;
};

/// 1 for the code points in sorted, disjoint ranges, 0 for the others.
CodePointTable membership(const data::Range* ranges, std::size_t count);

/// Kinds of code points as the word scanners see them: 0 to 29 are general categories (index into
/// their two-letter names), then `\s`, split by whether it ends a line.
enum class CodePointKind : std::uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,  // NOLINT
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn,
  Space,    ///< `\s` other than the two below.
  Newline,  ///< `\r` or `\n`.
};

/// One bit per kind, for testing membership of several at once.
constexpr std::uint32_t kind_bit(CodePointKind kind) {
  return std::uint32_t{1} << static_cast<unsigned>(kind);
}

/// `\p{L}`.
inline constexpr std::uint32_t kLetterKinds = 0x1F;
/// `\p{M}`.
inline constexpr std::uint32_t kMarkKinds = 0xE0;
/// `\p{N}`.
inline constexpr std::uint32_t kNumberKinds = 0x700;
/// `\s`.
inline constexpr std::uint32_t kSpaceKinds = std::uint32_t{3} << 30;

/// The table of `CodePointKind`s; built at the first call, shared and immutable.
const CodePointTable& code_point_kinds();

}  // namespace fairlead::tokenizer
