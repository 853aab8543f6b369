#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// Finds the longest token that begins a text. A step of the trie is a character of up to three
/// bytes; bytes of none, and those of a token that ends inside one, are steps of their own.
/// Immutable, shared by all threads.
class TokenTrie {
 public:
  /// A token that begins a text.
  struct Match {
    TokenId token;         ///< The token.
    std::uint32_t length;  ///< Its bytes, at most `kLong`; 0: there is no token.
  };

  /// The length of tokens of so many bytes or more.
  static constexpr std::uint32_t kLong = 511;

  /// Makes the trie of tokens that have bytes, no two of them the same. False when there are too
  /// many; the trie must not be used then.
  bool build(const Vocabulary& vocabulary, std::span<const TokenId> tokens);

  /// The longest token that begins `text`, which is not empty.
  Match longest(std::string_view text) const;
  /// The longest token that begins this one and is shorter, or `kNoToken`.
  TokenId shorter(TokenId token) const { return shorter_[token]; }

 private:
  // What is next in a text: a code point below 0x10000, or kBytes and a byte.
  struct Unit {
    std::uint32_t code;
    std::uint32_t bytes;
  };
  // What a sequence of units leads to. Those behind one node lie in a hash table of their own, the
  // tables in the order of the texts, so that the end of a walk stays in one place.
  struct Node {
    std::uint32_t unit : 17 = kNoUnit;  // the last one; kNoUnit: a free place of a table
    std::uint32_t length : 9 = 0;       // of the token; 0: there is none
    std::uint32_t table_bits : 5 = 0;   // the table has 2^table_bits places
    std::uint32_t broken : 1 = 0;       // whether a token ends inside a character behind this node
    TokenId token = 0;                  // the longest that begins what leads here
    std::uint32_t table = 0;            // where the table begins
    std::uint32_t next = 0;             // a bit for each unit behind this node, by its last 5 bits
  };
  static_assert(sizeof(Node) == 16);
  class Builder;

  static constexpr std::uint32_t kBytes = 0x10000;
  static constexpr std::uint32_t kUnits = kBytes + 256;
  static constexpr std::uint32_t kNoUnit = (1U << 17) - 1;

  static Unit unit_at(const char* text, std::size_t size);
  const Node* child(const Node& node, std::uint32_t unit) const;
  const Node* inside(const Node* node, const char* text, std::size_t size) const;

  std::vector<Node> nodes_;  // first those behind the root, by unit
  std::vector<TokenId> shorter_;
};

}  // namespace fairlead::tokenizer
