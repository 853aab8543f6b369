#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.hpp"
#include "tokenizer/piece_trie.hpp"
#include "tokenizer/spellings.hpp"

namespace fairlead::tokenizer {

/// Options of a `WordPiece` model.
struct WordPieceOptions {
  /// Stands for a word that cannot be cut. It may be missing in the vocabulary: then such words are
  /// an error.
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";  ///< Before all tokens of a word but the first.
  std::size_t max_input_chars_per_word = 100;    ///< Longer words are unknown.
};

/// A model that takes the longest token at the front of what is left of a word.
class WordPieceModel final : public Model {
 public:
  /// Takes a finished vocabulary.
  static Result<std::unique_ptr<const Model>> create(Spellings vocabulary,
                                                     const WordPieceOptions& options);

  Result<> encode(std::string_view piece, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override;
  std::optional<TokenId> find(std::string_view spelling) const override;
  std::optional<std::string_view> spelling(TokenId id) const override;
  std::size_t size() const override { return vocabulary_.size(); }
  std::size_t id_limit() const override { return vocabulary_.id_limit(); }

 private:
  WordPieceModel(Spellings vocabulary, const WordPieceOptions& options);

  bool cut(std::string_view word, std::vector<TokenId>& out) const;

  Spellings vocabulary_;
  WordPieceOptions options_;
  std::optional<TokenId> unk_id_;
  PieceTrie trie_;
  PieceTrie::Node continuing_;  // where walks for all but a word's first token start
};

}  // namespace fairlead::tokenizer
