#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/merge_cuts.hpp"
#include "tokenizer/merges.hpp"
#include "tokenizer/model.hpp"
#include "tokenizer/spellings.hpp"

namespace fairlead::tokenizer {

/// Options of a `BPE` model whose words start as characters.
struct CharBpeOptions {
  /// Put before every character but the first one of a word.
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;  ///< Put behind the last character of a word.
  /// Stands for characters without a token; they vanish when there is none. It may be missing in
  /// the vocabulary: then such characters are an error.
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       ///< Adjacent unknown characters become one token.
  bool byte_fallback = false;  ///< Characters without a token become `<0xNN>` where all exist.
  bool ignore_merges = false;  ///< A word that is a token is that token, whatever the merges say.
};

/// A byte-pair-encoding model over characters, for any vocabulary.
///
/// Words may be whole texts. They are cut wherever the merges prove that no token can reach across
/// (`MergeCuts`), and what such a part becomes is remembered for each thread, in a table of bounded
/// size.
class CharBpeModel final : public Model {
 public:
  /// Takes a finished vocabulary and the merges in rank order. Fails when a part of a merge or its
  /// result is no token.
  static Result<std::unique_ptr<const Model>> create(Spellings vocabulary,
                                                     std::span<const SpelledMerge> merges,
                                                     CharBpeOptions options);

  Result<> encode(std::string_view piece, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override;
  std::optional<TokenId> find(std::string_view spelling) const override;
  std::optional<std::string_view> spelling(TokenId id) const override;
  std::size_t size() const override { return vocabulary_.size(); }
  std::size_t id_limit() const override { return vocabulary_.id_limit(); }
  std::size_t longest_token() const override;

 private:
  static constexpr TokenId kNoToken = CharacterIds::kNone;

  class Symbols;

  CharBpeModel(Spellings vocabulary, CharBpeOptions options);

  Result<> add_merges(std::span<const SpelledMerge> merges);
  void prepare_characters();
  void find_cuts(std::span<const SpelledMerge> merges);
  Result<> encode_parts(std::string_view word, std::size_t begin, std::span<const std::size_t> ends,
                        std::vector<TokenId>& out, const std::stop_token& stop) const;
  Result<> encode_word(std::string_view word, std::vector<TokenId>& out,
                       const std::stop_token& stop) const;
  template <class Sink>
  Result<> append_symbols(std::string_view word, Sink& sink) const;
  template <class Sink>
  bool append_fallback(std::string_view bytes, Sink& sink) const;

  Spellings vocabulary_;
  CharBpeOptions options_;
  MergeTable merges_;
  CharacterIds first_;                   // characters as they are
  CharacterIds continuing_;              // with the prefix; unused without one
  std::array<TokenId, 256> fallback_{};  // `<0xNN>`
  TokenId unk_id_ = kNoToken;
  std::uint32_t serial_ = 0;  // of this model among all of the process
  MergeCuts cuts_;
};

}  // namespace fairlead::tokenizer
