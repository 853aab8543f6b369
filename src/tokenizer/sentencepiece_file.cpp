#include "tokenizer/sentencepiece_file.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <unordered_set>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/decoder_step.hpp"
#include "tokenizer/protobuf_reader.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {
namespace {

using Field = ProtobufReader::Field;
using Wire = ProtobufReader::Wire;

// The library's limit.
constexpr std::size_t kMaxPieceBytes = 7999;
constexpr std::string_view kNullPiece("\0", 1);

std::unexpected<Error> bad(std::string message) {
  return fail(ErrorCode::InvalidRequest, "SentencePiece: " + std::move(message));
}

// Calls `take` for each field. Of a field that occurs twice the last one counts, as everywhere in
// protobuf, and fields that are written in another way than defined are unknown ones.
template <class Take>
Result<> read_message(std::string_view message, std::string_view name, Take&& take) {
  ProtobufReader reader(message);
  while (const std::optional<Field> field = reader.next()) {
    if (Result<> taken = take(*field); !taken) {
      return taken;
    }
  }
  return reader.failed() ? bad(fmt::format("{} is not a protobuf message", name)) : Result<>();
}

bool is(const Field& field, std::uint64_t number, Wire wire) {
  return field.number == number && field.wire == wire;
}

void set_flag(const Field& field, std::uint64_t number, bool& flag) {
  if (is(field, number, Wire::Varint)) {
    flag = field.value != 0;
  }
}

// An enum's value that is not defined is an unknown field.
template <class Enum>
void set_enum(const Field& field, std::uint64_t number, std::uint64_t last, Enum& target) {
  if (is(field, number, Wire::Varint) && field.value >= 1 && field.value <= last) {
    target = static_cast<Enum>(field.value);
  }
}

Result<> set_text(const Field& field, std::uint64_t number, std::string& text) {
  if (is(field, number, Wire::Bytes)) {
    if (!utf8::valid(field.bytes)) {
      return bad(fmt::format("field {} of the trainer's options is not UTF-8", number));
    }
    text = field.bytes;
  }
  return {};
}

Result<> read_piece(std::string_view message, SentencePiece& piece) {
  return read_message(message, "a piece", [&](const Field& field) -> Result<> {
    if (is(field, 1, Wire::Bytes)) {
      piece.text = field.bytes;
    } else if (is(field, 2, Wire::Fixed32)) {
      piece.score = field.number32();
    }
    set_enum(field, 3, 6, piece.kind);
    return {};
  });
}

Result<> read_trainer_spec(std::string_view message, SentencePieceFile& file) {
  return read_message(message, "trainer_spec", [&](const Field& field) -> Result<> {
    set_enum(field, 3, 4, file.kind);
    set_flag(field, 24, file.normalizer.whitespace_as_suffix);
    set_flag(field, 35, file.byte_fallback);
    if (Result<> set = set_text(field, 44, file.unk_surface); !set) {
      return set;
    }
    if (Result<> set = set_text(field, 46, file.bos_piece); !set) {
      return set;
    }
    return set_text(field, 47, file.eos_piece);
  });
}

Result<> read_normalizer_spec(std::string_view message, NormalizerRules& rules) {
  return read_message(message, "normalizer_spec", [&](const Field& field) -> Result<> {
    if (is(field, 2, Wire::Bytes)) {
      rules.charsmap = field.bytes;
    }
    set_flag(field, 3, rules.add_dummy_prefix);
    set_flag(field, 4, rules.remove_extra_whitespaces);
    set_flag(field, 5, rules.escape_whitespaces);
    return {};
  });
}

class PieceCheck {
 public:
  explicit PieceCheck(bool byte_fallback) : byte_fallback_(byte_fallback) {}

  Result<> add(const SentencePiece& piece) {
    const std::string_view text = piece.text;
    const auto wrong = [&](std::string_view what) {
      return bad(fmt::format("piece {} {}", count_, what));
    };
    if (text.empty()) {
      return wrong("is empty");
    }
    if (text.size() > kMaxPieceBytes) {
      return wrong(fmt::format("is longer than {} bytes", kMaxPieceBytes));
    }
    if (!std::isfinite(piece.score)) {
      return wrong("has no finite score");
    }
    if (!utf8::valid(text)) {
      return wrong("is not UTF-8");
    }
    if (text.find('\0') != std::string_view::npos &&
        (text != kNullPiece || piece.kind != PieceKind::Unused)) {
      return wrong("has a null character");
    }
    if (!seen_.insert(text).second) {
      return wrong("occurs twice");
    }
    if (piece.kind == PieceKind::Unknown && std::exchange(unknown_, true)) {
      return wrong("is a second unknown piece");
    }
    if (piece.kind == PieceKind::Byte) {
      const std::optional<char> byte = byte_token(text);
      if (!byte_fallback_ || !byte ||
          text != fmt::format("<0x{:02X}>", static_cast<unsigned char>(*byte))) {
        return wrong("is no byte piece, or there is no byte_fallback");
      }
      ++bytes_;
    }
    ++count_;
    return {};
  }

  Result<> finish() const {
    if (byte_fallback_ && bytes_ != 256) {
      return bad(fmt::format("{} byte pieces instead of 256", bytes_));
    }
    return byte_fallback_ || unknown_ ? Result<>() : bad("no unknown piece");
  }

 private:
  bool byte_fallback_;
  std::unordered_set<std::string_view> seen_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  bool unknown_ = false;
};

Result<> check(SentencePieceFile& file) {
  PieceCheck pieces(file.byte_fallback);
  for (SentencePiece& piece : file.pieces) {
    // Converters have put it beside `<0x00>`; the library forgives them.
    if (file.byte_fallback && piece.text == kNullPiece) {
      piece.kind = PieceKind::Unused;
    }
    if (Result<> added = pieces.add(piece); !added) {
      return added;
    }
  }
  return pieces.finish();
}

}  // namespace

Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes) {
  SentencePieceFile file;
  Result<> done = read_message(bytes, "the file", [&](const Field& field) -> Result<> {
    if (is(field, 1, Wire::Bytes)) {
      if (file.pieces.size() >= kMaxTokenId) {
        return bad(fmt::format("more than {} pieces", kMaxTokenId));
      }
      return read_piece(field.bytes, file.pieces.emplace_back());
    }
    if (is(field, 2, Wire::Bytes)) {
      return read_trainer_spec(field.bytes, file);
    }
    if (is(field, 3, Wire::Bytes)) {
      return read_normalizer_spec(field.bytes, file.normalizer);
    }
    if (is(field, 5, Wire::Bytes)) {
      return read_normalizer_spec(
          field.bytes, file.denormalizer ? *file.denormalizer : file.denormalizer.emplace());
    }
    return {};
  });
  if (done) {
    done = check(file);
  }
  if (!done) {
    return std::unexpected(done.error());
  }
  if (file.denormalizer && file.denormalizer->charsmap.empty()) {
    file.denormalizer.reset();
  }
  // An empty name is the default one, as in the library.
  if (file.bos_piece.empty()) {
    file.bos_piece = "<s>";
  }
  if (file.eos_piece.empty()) {
    file.eos_piece = "</s>";
  }
  return file;
}

}  // namespace fairlead::tokenizer
