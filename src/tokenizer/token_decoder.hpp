#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/decoder_pipeline.hpp"
#include "tokenizer/decoder_step.hpp"
#include "tokenizer/partial_character.hpp"
#include "tokenizer/sentencepiece_decoder.hpp"

namespace fairlead::tokenizer {

/// The decoder of a tokenizer, general path: spelled tokens to text. Immutable. Tokens are
/// well-formed UTF-8.
class TokenDecoder {
 public:
  class Stream;

  /// Interprets the `decoder` member of a tokenizer.json; null joins tokens with one space. What
  /// the reference refuses is an `InvalidRequest`; an unknown decoder, a regex that is not
  /// supported exactly or a chain that can lengthen a text beyond measure is an `UnsupportedField`.
  static Result<TokenDecoder> create(const json::Value& config);
  /// The decoder of a SentencePiece model, for tokens as `PieceDecoding` writes them.
  static TokenDecoder create(PieceDecoding rules);
  ~TokenDecoder() = default;
  TokenDecoder(const TokenDecoder&) = delete;
  TokenDecoder& operator=(const TokenDecoder&) = delete;
  /// A moved decoder has no streams yet.
  TokenDecoder(TokenDecoder&&) = default;
  TokenDecoder& operator=(TokenDecoder&&) = default;

  /// The text of the tokens, exactly as the reference's decode gives it. Where the reference
  /// crashes (`Strip` that takes more than a token has), what is there is taken. A regex that gives
  /// up leaves the rest of its token as it is.
  std::string decode(std::span<const std::string_view> tokens) const;

  /// The same but for `ByteRuns::ByCharacter`: what a `Stream` of the tokens gives all in all.
  std::string decode_by_character(std::span<const std::string_view> tokens) const;

  /// How many tokens of a prompt's end a stream must be given: more than a character has bytes, and
  /// room for the literals of real chains; all of them (`SIZE_MAX`) where it holds back all text.
  std::size_t prompt_tail() const { return prompt_tail_; }

  /// The bytes that a token adds in the middle of a text; not always whole characters.
  std::string token_bytes(std::string_view token) const;

 private:
  // The chains that nearly all tokenizers have, which a stream decodes without a pipeline.
  enum class Shape : std::uint8_t {
    Any,     // a pipeline
    Spaces,  // a character becomes a space: [Replace], [ByteFallback], [Fuse], [Strip left]
    Joined,  // WordPiece, or no decoder at all
    Pieces,  // SentencePiece
  };

  explicit TokenDecoder(std::vector<DecoderStep> steps);
  std::string decode(std::span<const std::string_view> tokens, ByteRuns byte_runs) const;
  void find_shape();
  void find_prompt_tail();

  std::vector<DecoderStep> steps_;
  std::size_t prompt_tail_ = 16;
  Shape shape_ = Shape::Any;
  const Literal* space_ = nullptr;       // Spaces: what becomes a space, if anything
  bool drop_in_first_ = false;           // Spaces: or nothing, in the first token
  bool byte_fallback_ = false;           // Spaces
  std::size_t strip_left_ = 0;           // Spaces: spaces that the text's start loses
  const std::string* prefix_ = nullptr;  // Joined: the mark of a token that goes on a word
  bool cleanup_ = false;                 // Joined
  PieceDecoding pieces_;                 // Pieces
};

/// Turns one growing sequence of tokens into text, token by token, at a constant cost per byte of
/// token. What was sent is never taken back, and the pieces together equal the decoding of all
/// tokens, with one exception: where a run of byte tokens (`ByteFallback`) holds both characters
/// and bytes of none, the reference makes every byte of the run U+FFFD, once it has seen its end.
/// Here each character is sent when it completes, and only a byte that belongs to none is U+FFFD:
/// a model that stumbles over one byte does not lose the emoji beside it.
///
/// Only what a later token can still change is held back:
/// - `ByteFallback`, `ByteLevel`: a character that is begun, at most 3 bytes;
/// - `Replace` of a literal: a beginning of the literal, within a token or behind `Fuse`;
/// - `Strip` on the right: that many trailing characters, within a token or behind `Fuse`;
/// - `BPEDecoder`: the last token from its first suffix on, until the next token comes;
/// - `CTC`: a token that repeats the one before it is never sent; the last token is kept.
/// - SentencePiece: a character that is begun, and what its denormalizer may still change;
/// `WordPiece`, its clean-up and `Metaspace` look at one token at a time and hold nothing.
/// Two chains can hold back without bound, up to the end of the text: a `Replace` of a regex behind
/// `Fuse`, whose match may grow with any token, and `ByteLevel` behind `Fuse`, while all of the
/// text is spelled in byte-level characters. Such a tokenizer answers late rather than not at all.
///
/// One object per sequence, one thread at a time.
class TokenDecoder::Stream {
 public:
  /// `prompt_tail` is what precedes the first pushed token: as many of the prompt's last tokens as
  /// `TokenDecoder::prompt_tail` says, or all of them when it is short. The pushed tokens then give
  /// what they add to the prompt's text; where they change its end (a character that the prompt
  /// ends inside of), the changed part appears as a whole. The decoder must outlive the stream and
  /// stay where it is.
  explicit Stream(const TokenDecoder& decoder, std::span<const std::string_view> prompt_tail = {});

  /// Appends the text that becomes certain with `token`, which may be none.
  void push(std::string_view token, std::string& out);

  /// Ends the sequence: appends what was held back, with U+FFFD for a character that was begun and
  /// never completed. Nothing may be pushed afterwards.
  void flush(std::string& out);

 private:
  void decode(std::string_view token, std::string& out);
  void decode_spaces(std::string_view token, std::string& out);
  void decode_joined(std::string_view token, std::string& out);
  void end(std::string& out);
  void strip_left(std::size_t start, std::string& out);
  void hide_shown(std::size_t start, std::string& out);

  const TokenDecoder* decoder_;
  std::unique_ptr<DecoderPipeline> pipeline_;  // for Shape::Any
  std::optional<PieceText> pieces_;            // for Shape::Pieces
  PartialCharacter partial_;
  std::size_t strip_left_;
  bool first_ = true;
  std::string shown_;  // what the prompt's text ends with and the tokens may still change
};

}  // namespace fairlead::tokenizer
