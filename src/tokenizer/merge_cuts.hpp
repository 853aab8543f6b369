#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// Ids of characters: a table for all of Unicode of which only used pages exist.
class CharacterIds {
 public:
  /// No id.
  static constexpr TokenId kNone = ~TokenId{0};

  /// Sets the id of a character.
  void set(char32_t character, TokenId id);
  /// The id of a character, or `kNone`.
  TokenId find(char32_t character) const {
    const std::uint16_t page = pages_of_[character >> 8];
    return page == 0 ? kNone : pages_[page - 1U][character & 0xFF];
  }

 private:
  std::array<std::uint16_t, 0x1100> pages_of_{};
  std::vector<std::array<TokenId, 256>> pages_;
};

/// Where a word of a model over characters can be cut because no merge ever reaches across.
///
/// A merge across the place between two characters joins a token that ends with the first one and a
/// token that begins with the second one, so where the merges have no such pair the parts on both
/// sides become what they would become alone. That holds for characters that are tokens: behind and
/// before others stand tokens that are spelled differently. What merges join is kept by hash, so a
/// place may be taken for joined that is not, never the other way round.
class MergeCuts {
 public:
  /// One merge joins these.
  struct Pair {
    char32_t before;  ///< Last character of its left token.
    char32_t after;   ///< First character of its right token.
  };

  /// From all merges and the ids of the characters that are tokens, which must outlive the object.
  void build(std::span<const Pair> joined, const CharacterIds& known);
  /// True until `build`.
  bool empty() const { return joined_.empty(); }

  /// Cuts well-formed text from `from` (before its end) on: puts where the parts end into `ends`
  /// until that is full or the text at its end; returns how many there are. Parts follow each
  /// other.
  std::size_t cut(std::string_view text, std::size_t from, std::span<std::size_t> ends) const;

 private:
  bool apart(char32_t before, char32_t after) const;
  std::size_t bit_of(char32_t before, char32_t after) const;

  const CharacterIds* known_ = nullptr;
  std::vector<std::uint64_t> joined_;  // bits by hash of the pair
  unsigned shift_ = 0;
  // Whether ASCII characters stay apart, by the first one and then by the second one.
  std::vector<std::uint8_t> ascii_;
};

}  // namespace fairlead::tokenizer
