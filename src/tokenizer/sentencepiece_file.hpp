#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::tokenizer {

/// What a piece of a SentencePiece model is. The values are those of the file format.
enum class PieceKind : std::uint8_t {
  Normal = 1,       ///< Found by the model.
  Unknown = 2,      ///< Stands for text that is in no piece.
  Control = 3,      ///< Never found in a text and invisible when decoded.
  UserDefined = 4,  ///< Found before anything else and left as it is.
  Unused = 5,       ///< Never given out.
  Byte = 6,         ///< One byte of a character that is in no piece.
};

/// An entry of the vocabulary; its place in the list is its id.
struct SentencePiece {
  std::string_view text;               ///< Lies in the file's bytes.
  float score = 0;                     ///< Higher is better.
  PieceKind kind = PieceKind::Normal;  ///< What it is for.
};

/// How text becomes what the model sees, or decoded text what is answered (`NormalizerSpec`).
struct NormalizerRules {
  std::string_view charsmap;             ///< Of `Charsmap`; lies in the file's bytes.
  bool add_dummy_prefix = true;          ///< A space goes in front.
  bool remove_extra_whitespaces = true;  ///< No space at the ends, single ones inside.
  bool escape_whitespaces = true;        ///< Spaces become `▁`.
  /// The space that `add_dummy_prefix` adds goes behind the text. Of the trainer's options.
  bool whitespace_as_suffix = false;
};

/// What a model does with normalized text. The values are those of the file format.
enum class SentencePieceKind : std::uint8_t { Unigram = 1, Bpe = 2, Word = 3, Char = 4 };

/// A SentencePiece model file (`ModelProto` of sentencepiece_model.proto): what is needed of it.
struct SentencePieceFile {
  SentencePieceKind kind = SentencePieceKind::Unigram;  ///< Of the model.
  bool byte_fallback = false;      ///< Unknown characters become byte pieces, of which all exist.
  std::string bos_piece = "<s>";   ///< What begins a text, if it is a control piece.
  std::string eos_piece = "</s>";  ///< What ends one, likewise.
  std::string unk_surface = " \u2047 ";         ///< What the unknown piece decodes to.
  NormalizerRules normalizer;                   ///< For encoding.
  std::optional<NormalizerRules> denormalizer;  ///< For decoded text; only with a charsmap.
  std::vector<SentencePiece> pieces;            ///< By id.
};

/// Reads a file's bytes, which must outlive the result. Unknown fields are skipped, as the library
/// does. Fails on what is no protobuf and on vocabularies that the library refuses; beyond that on
/// pieces that are not UTF-8, pieces that occur twice and infinite scores.
Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes);

}  // namespace fairlead::tokenizer
