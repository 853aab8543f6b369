#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/partial_character.hpp"
#include "tokenizer/sentencepiece_file.hpp"
#include "tokenizer/sentencepiece_normalizer.hpp"

namespace fairlead::tokenizer {

/// How the pieces of a SentencePiece model become text. Immutable.
///
/// Pieces are written as tokens: `<0xNN>` with `byte_fallback` is a byte, `verbatim` is text as it
/// is, and in any other token `▁` is a space.
struct PieceDecoding {
  /// Rules for a file.
  static Result<PieceDecoding> create(const SentencePieceFile& file);

  bool byte_fallback = false;  ///< Whether there are byte pieces.
  bool drop_first = false;     ///< The first token loses a `▁` in front.
  bool drop_leading = false;   ///< Every token does, as long as there is no text.
  std::shared_ptr<const SentencePieceNormalizer> denormalizer;  ///< For all of the text; or null.

  /// The token for text that stays as it is: that of unknown and control pieces.
  static std::string verbatim(std::string_view text);
  /// The text of a verbatim token.
  static std::optional<std::string_view> verbatim_text(std::string_view token);
  /// The bytes that a token adds in the middle of a text, before any denormalizer.
  std::string bytes(std::string_view token) const;
};

/// Turns one growing sequence of such tokens into text, exactly as the library decodes all of them.
/// What is sent is never taken back: a character that is begun is held back, and what a
/// denormalizer may still change. One object per sequence.
class PieceText {
 public:
  /// The rules must outlive this.
  explicit PieceText(const PieceDecoding& rules);

  /// Appends the text that becomes certain with `token`.
  void push(std::string_view token, std::string& out);
  /// Ends the sequence: appends the rest, with U+FFFD for each byte of a character that was begun.
  void finish(std::string& out);

 private:
  void put(std::string_view token, std::string& out);
  void end_bytes(std::string& out);

  const PieceDecoding* rules_;
  PartialCharacter partial_;
  bool drop_;  // the next token loses a `▁` in front
  std::optional<SentencePieceNormalizer::Stream> denormalizer_;
  std::string plain_;  // before the denormalizer
};

}  // namespace fairlead::tokenizer
