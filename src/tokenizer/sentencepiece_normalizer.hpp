#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/charsmap.hpp"
#include "tokenizer/sentencepiece_file.hpp"

namespace fairlead::tokenizer {

/// The user-defined pieces of a SentencePiece model: found before anything else, the longest at
/// each place. Of those that begin alike the library looks at 64, the shortest. A match's index is
/// the place among all user-defined pieces.
LiteralMatcher user_defined_matcher(std::span<const SentencePiece> pieces);

/// SentencePiece's normalizer: a map of characters, and what becomes of spaces. Immutable.
class SentencePieceNormalizer {
 public:
  class Stream;

  /// From the rules of a file. `user_defined` are texts that the map of characters leaves alone.
  static Result<SentencePieceNormalizer> create(const NormalizerRules& rules,
                                                LiteralMatcher user_defined);

  /// Appends the normalized form of `text`, well-formed UTF-8. Without `dummy_prefix` the file's
  /// `add_dummy_prefix` is passed over. Fails with `InvalidRequest` when the result is out of
  /// proportion, with `ClientGone` soon after `stop` is requested.
  Result<> apply(std::string_view text, bool dummy_prefix, std::string& out,
                 const std::stop_token& stop) const;

  /// Whether each byte of a text is there in its normalized form, or more for it.
  bool keeps_text() const { return !charsmap_ && !rules_.remove_extra_whitespaces; }

 private:
  /// What the start of a text becomes.
  struct Prefix {
    std::string_view text;   ///< What it becomes.
    std::size_t length = 0;  ///< Bytes of the text it stands for.
    bool certain = true;     ///< Whether it stays so, whatever follows.
  };

  Prefix next(std::string_view text) const;
  std::string_view space() const { return rules_.escape_whitespaces ? "\u2581" : " "; }

  NormalizerRules rules_;  // but for the charsmap
  std::optional<Charsmap> charsmap_;
  LiteralMatcher user_defined_;
};

/// Normalizes a text that arrives in pieces; what comes out all in all is what `apply` gives for
/// all of it. For rules without user-defined texts.
class SentencePieceNormalizer::Stream {
 public:
  /// The normalizer must outlive the stream.
  explicit Stream(const SentencePieceNormalizer& rules, bool dummy_prefix = true);

  /// Appends what becomes certain with `text`, whole characters.
  void push(std::string_view text, std::string& out);
  /// Appends the rest.
  void finish(std::string& out);

 private:
  friend class SentencePieceNormalizer;

  // Adds what one prefix of the text became.
  void put(std::string_view text, std::string& out);
  void put_space(std::string& out);
  void put_visible(std::string_view text, std::string& out);
  void end(std::string& out);

  const SentencePieceNormalizer* rules_;
  bool dummy_prefix_;
  bool begun_ = false;      // something that is no space came
  bool behind_space_;       // spaces that come now are extra ones
  std::size_t spaces_ = 0;  // held back: they are extra ones when nothing follows
  std::string held_;        // text that what follows may change
};

}  // namespace fairlead::tokenizer
