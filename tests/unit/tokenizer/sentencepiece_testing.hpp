#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/sentencepiece_file.hpp"

namespace fairlead::tokenizer::testing {

/// A protobuf varint.
inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) {
    out += static_cast<char>(value | 0x80);
  }
  return out + static_cast<char>(value);
}

/// Fields of a protobuf message.
inline std::string number_field(std::uint64_t field, std::uint64_t value) {
  return varint(field << 3) + varint(value);
}
inline std::string bytes_field(std::uint64_t field, std::string_view bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
inline std::string float_field(std::uint64_t field, float value) {
  std::string out = varint(field << 3 | 5);
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(value), i = 0; i < 4; ++i, bits >>= 8) {
    out += static_cast<char>(bits & 0xFF);
  }
  return out;
}

/// A SentencePiece model file, piece by piece.
struct SmallPieces {
  SentencePieceKind kind = SentencePieceKind::Bpe;
  std::string trainer;     ///< Further fields of `trainer_spec`.
  std::string normalizer;  ///< Fields of `normalizer_spec`.
  std::string denormalizer;
  std::string pieces;
  int count = 0;

  /// Starts with `<unk>`, `<s>` and `</s>`, as the trainer does.
  explicit SmallPieces(SentencePieceKind of) : kind(of) {
    add("<unk>", 0, PieceKind::Unknown);
    add("<s>", 0, PieceKind::Control);
    add("</s>", 0, PieceKind::Control);
  }
  /// A file without pieces.
  SmallPieces() = default;

  SmallPieces& add(std::string_view text, float score, PieceKind of = PieceKind::Normal) {
    std::string piece = bytes_field(1, text) + float_field(2, score);
    if (of != PieceKind::Normal) {
      piece += number_field(3, static_cast<std::uint64_t>(of));
    }
    pieces += bytes_field(1, piece);
    ++count;
    return *this;
  }
  /// The 256 byte pieces, and the option that goes with them.
  SmallPieces& add_bytes() {
    static constexpr std::string_view kDigits = "0123456789ABCDEF";
    for (unsigned byte = 0; byte < 256; ++byte) {
      add(std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">", 0, PieceKind::Byte);
    }
    trainer += number_field(35, 1);
    return *this;
  }
  /// Leaves text as it is, but for spaces: no space in front, none taken away.
  SmallPieces& keep_spaces() {
    normalizer += number_field(3, 0) + number_field(4, 0);
    return *this;
  }
  /// The file.
  std::string bytes() const {
    return pieces + bytes_field(2, number_field(3, static_cast<std::uint64_t>(kind)) + trainer) +
           bytes_field(3, normalizer) + (denormalizer.empty() ? "" : bytes_field(5, denormalizer));
  }
};

}  // namespace fairlead::tokenizer::testing
