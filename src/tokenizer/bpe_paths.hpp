#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "tokenizer/merges.hpp"
#include "tokenizer/token_trie.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

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
///
/// All of this holds for tokens that arise by merges of growing ranks, whatever other merges there
/// are. No sequence of such tokens stays apart where the merges make another token.
class BpePaths {
 public:
  /// One merge.
  struct Pair {
    TokenId left;    ///< First of two neighbours.
    TokenId right;   ///< Second.
    TokenId merged;  ///< What they become.
  };

  /// `byte_ids`: the token of each byte. `pairs`: all merges in rank order. False when there are
  /// too many tokens for this method.
  bool build(const Vocabulary& vocabulary, std::span<const TokenId, 256> byte_ids,
             std::span<const Pair> pairs, const MergeTable& merges);

  /// Whether the merges make this one token of its bytes, each merge after those of its parts.
  bool arises(TokenId id) const { return id < origins_.size() && origins_[id].length != 0; }

  /// Appends the tokens of a word. False, with nothing appended, when the merges make a token of it
  /// that does not arise, which takes one merge of a lower rank than one of its parts needs. Once
  /// `stop` is requested what it appends means nothing.
  bool encode(std::string_view word, const MergeTable& merges, std::vector<TokenId>& out,
              const std::stop_token& stop) const;

 private:
  // How a token arises: by its last merge. Bytes have rank 0, the merge with rank n has n + 1.
  struct Origin {
    TokenId left = kNoToken;
    TokenId right = kNoToken;
    std::uint32_t rank = 0;
    std::uint32_t length = 0;  // 0: never arises
  };
  // What can be joined across one end of a token by a merge that comes in time: with the token, or
  // with a part of it at this end before that is gone. Sets of tokens have a bit for each hash of
  // one, so they may show too much but never too little.
  struct Side {
    std::uint64_t parts = 0;     // the token and its parts with which anything can be joined
    std::uint64_t partners = 0;  // all that can be joined with these
  };
  struct Sides {
    Side left;
    Side right;
  };

  static bool may_join(const Side& left, const Side& right);
  bool apart(TokenId left, TokenId right, const MergeTable& merges) const;
  bool apart_before(TokenId left, TokenId right, const MergeTable& merges) const;
  TokenTrie::Match longest(std::string_view text) const;

  std::vector<Origin> origins_;
  std::vector<Sides> sides_;
  TokenTrie trie_;  // of the tokens that arise
};

}  // namespace fairlead::tokenizer
