#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "tokenizer/merges.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// Stands for "no token" where a plain id is stored.
inline constexpr TokenId kNoToken = ~TokenId{0};

/// Finds what the merges make of a word without applying them, in time linear in its length.
///
/// A sequence of tokens is what the merges make of its bytes exactly when that holds for every two
/// neighbours: merges inside two neighbours happen in the same order whatever surrounds them, so
/// one that would cross their border does so with or without the rest. Whether two tokens stay
/// apart follows from how each arises: their merges are undone from the last one backwards, looking
/// at each moment whether a merge across the border would have come first. So a word is covered
/// from its beginning with the longest tokens that stay apart from their predecessors. Where no
/// token fits, the last one is taken back; a position reached once is never reached by another way,
/// because what the merges make of the part before it is one sequence.
class BpePaths {
 public:
  /// One merge.
  struct Pair {
    TokenId left;    ///< First of two neighbours.
    TokenId right;   ///< Second.
    TokenId merged;  ///< What they become.
  };

  /// `byte_ids`: the token of each byte. `pairs`: all merges in rank order. False when this method
  /// cannot be used: when a token arises from one with a higher rank than its own.
  bool build(const Vocabulary& vocabulary, std::span<const TokenId, 256> byte_ids,
             std::span<const Pair> pairs, const MergeTable& merges);

  /// Whether the merges make this one token of its bytes.
  bool arises(TokenId id) const { return id < origins_.size() && origins_[id].length != 0; }

  /// Appends the tokens of a word. False, with nothing appended, when there are none, which no
  /// model allows whose bytes all have tokens. Once `stop` is requested what it appends means
  /// nothing.
  bool encode(std::string_view word, const MergeTable& merges, std::vector<TokenId>& out,
              const std::stop_token& stop) const;

 private:
  // How a token arises: by its last merge. Bytes have rank 0, the merge with rank n has n + 1.
  struct Origin {
    TokenId left = kNoToken;
    TokenId right = kNoToken;
    std::uint32_t rank = 0;
    std::uint32_t length = 0;    // 0: never arises
    TokenId shorter = kNoToken;  // the longest token that begins it
  };
  // An edge of the trie over the bytes of all tokens that arise.
  struct Edge {
    std::uint32_t key = kFreeEdge;  // parent << 8 | byte
    std::uint32_t child = 0;
    TokenId token = kNoToken;  // that ends at the child
  };
  static constexpr std::uint32_t kFreeEdge = ~std::uint32_t{0};
  static constexpr std::uint32_t kMaxNodes = (1U << 24) - 1;

  bool find_origins(std::span<const Pair> pairs, const MergeTable& merges);
  bool build_trie(const Vocabulary& vocabulary);
  std::size_t edge_slot(std::uint32_t key) const;
  bool apart(TokenId left, TokenId right, const MergeTable& merges) const;
  bool apart_before(TokenId left, TokenId right, const MergeTable& merges) const;
  TokenId longest(std::string_view text) const;

  std::vector<Origin> origins_;
  std::vector<Edge> edges_;
};

}  // namespace fairlead::tokenizer
