#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// Largest id accepted; tables are indexed by id.
inline constexpr TokenId kMaxTokenId = (1u << 22) - 1;

/// Stands for "no token" where a plain id is stored.
inline constexpr TokenId kNoToken = ~TokenId{0};

/// Mixes bytes into 64 bits; for tables inside the process only.
std::uint64_t hash_bytes(const char* data, std::size_t size);

/// A number for a token's bytes: up to 8 bytes of one length are equal when their numbers are, of
/// longer ones it is the hash.
std::uint64_t token_key(std::string_view bytes);

/// Where to look first for a token in a hash table of `mask` + 1 slots.
std::size_t token_slot(std::uint64_t key, std::size_t length, std::size_t mask);

/// The tokens of a byte-level model: id → bytes and bytes → id. Tokens whose spelling is no
/// byte-level text keep their spelling as bytes and are found by spelling only, since encoding can
/// never produce them. Built once, then immutable.
class Vocabulary {
 public:
  /// Adds a token by its spelling in the model file; a repeated spelling takes its last id.
  Result<> add(std::string_view spelling, TokenId id);
  /// Adds a token by its bytes, of which there is at least one; repeated ones take their last id.
  Result<> add_bytes(std::string_view bytes, TokenId id);
  /// Makes lookups possible; fails when two tokens share an id.
  Result<> finish();

  /// The id of the token that consists of these bytes.
  std::optional<TokenId> find_bytes(std::string_view bytes) const;
  /// Fetches what `find_bytes` will look at first.
  void prefetch(std::string_view bytes) const {
    if (bytes.size() <= max_bytes_) {
      __builtin_prefetch(&slots_[token_slot(token_key(bytes), bytes.size(), slots_.size() - 1)]);
    }
  }
  /// The same for several, `kNoToken` for those that are no tokens. Looking up a few dozen at once
  /// takes less time than one after the other, since the memory they lie in is fetched together.
  void find_bytes(std::span<const std::string_view> several, std::span<TokenId> ids) const;
  /// The id of the token spelled like this in the model file.
  std::optional<TokenId> find_spelling(std::string_view spelling) const;
  /// The token's bytes; empty when the id is unknown.
  std::string_view bytes(TokenId id) const {
    return id < tokens_.size() ? view(tokens_[id]) : std::string_view();
  }
  /// The token as the model file spells it; empty when the id is unknown.
  std::string spelling(TokenId id) const;
  /// Whether the id has a token.
  bool contains(TokenId id) const { return id < tokens_.size() && tokens_[id].known; }
  /// Number of tokens.
  std::size_t size() const { return count_; }
  /// Highest id + 1.
  std::size_t id_limit() const { return tokens_.size(); }
  /// Length of the longest token that `find_bytes` can find.
  std::size_t max_bytes() const { return max_bytes_; }

 private:
  struct Token {
    std::uint32_t offset = 0;
    std::uint32_t length : 31 = 0;
    std::uint32_t known : 1 = 0;
  };
  struct Pending {
    std::uint32_t offset;
    std::uint32_t length;
    TokenId id;
    bool byte_level;
  };
  // Tokens up to 8 bytes are equal when key and length are; longer ones compare their bytes too.
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t offset = 0;
    std::uint32_t id : 24 = 0;
    std::uint32_t length : 8 = 0;  // 0: free
  };
  // What find_bytes and find_spelling found; offset of its bytes.
  struct Found {
    TokenId id;
    std::uint32_t offset;
  };
  using SlowMap = std::unordered_map<std::string, Found>;

  std::string_view view(const Token& token) const {
    return std::string_view(text_).substr(token.offset, token.length);
  }
  Result<> check_room(std::size_t bytes, TokenId id) const;
  std::size_t probe(std::string_view bytes, std::uint64_t key) const;
  Result<> define(TokenId id, std::uint32_t offset, std::size_t length);

  std::string text_;
  std::vector<Pending> pending_;
  std::vector<Token> tokens_;
  std::vector<Slot> slots_;
  SlowMap long_tokens_;      // byte-level, by bytes
  SlowMap other_spellings_;  // not byte-level, by spelling
  std::size_t count_ = 0;
  std::size_t max_bytes_ = 0;
};

}  // namespace fairlead::tokenizer
