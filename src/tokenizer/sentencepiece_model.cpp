#include "tokenizer/sentencepiece_model.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "tokenizer/decoder_step.hpp"
#include "tokenizer/sentencepiece_normalizer.hpp"
#include "tokenizer/spellings.hpp"
#include "tokenizer/unigram_search.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr std::string_view kSpace = "\u2581";
// Bytes between two looks at whether the result is still wanted.
constexpr std::size_t kStopBytes = 1U << 16;

bool can_be_found(const SentencePiece& piece) {
  return piece.kind == PieceKind::Normal || piece.kind == PieceKind::UserDefined;
}

class UnigramPieces final : public SentencePieceModel {
 public:
  explicit UnigramPieces(const SentencePieceFile& file) : unknown_(file) {
    constexpr float kUnknownPenalty = 10;
    constexpr float kReset = 100000;
    std::vector<PieceTrie::Piece> keys;
    std::vector<float> scores;
    float lowest = std::numeric_limits<float>::max();
    for (const SentencePiece& piece : file.pieces) {
      const auto id = static_cast<TokenId>(scores.size());
      scores.push_back(piece.score);
      if (piece.kind == PieceKind::Normal) {
        lowest = std::min(lowest, piece.score);
      }
      if (piece.kind == PieceKind::UserDefined) {
        // What the library writes as 0.1 for each byte but one, so that it wins.
        const auto more = static_cast<double>(piece.text.size()) - 1;
        scores.back() = static_cast<float>(0.1 * more);
      }
      if (can_be_found(piece)) {
        keys.push_back({piece.text, id});
      }
    }
    search_ = UnigramSearch<float>(keys, std::move(scores), kUnknown, lowest - kUnknownPenalty);
    search_.set_reset(kReset);
  }

  Result<> encode(std::string_view text, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    UnknownText::Writer writer(unknown_, out);
    return search_.run(
        text,
        [&](std::size_t begin, std::size_t length, TokenId id) {
          if (id == kUnknown) {
            writer.unknown(text.substr(begin, length));
          } else {
            writer.known(id);
          }
        },
        [] { return Result<>(); }, stop);
  }

 private:
  static constexpr TokenId kUnknown = UnigramSearch<float>::kNone;

  UnknownText unknown_;
  UnigramSearch<float> search_;
};

// Models that look up parts of the text as they are: words, or characters and user-defined pieces.
class LookUpPieces final : public SentencePieceModel {
 public:
  static Result<std::unique_ptr<const SentencePieceModel>> create(const SentencePieceFile& file) {
    auto model = std::make_unique<LookUpPieces>(file);
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      if (!can_be_found(file.pieces[id])) {
        continue;
      }
      if (Result<> added = model->pieces_.add(file.pieces[id].text, static_cast<TokenId>(id));
          !added) {
        return std::unexpected(added.error());
      }
    }
    model->pieces_.finish();
    return model;
  }
  explicit LookUpPieces(const SentencePieceFile& file)
      : words_(file.kind == SentencePieceKind::Word),
        unknown_(file),
        user_defined_(user_defined_matcher(file.pieces)) {}

  Result<> encode(std::string_view text, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    UnknownText::Writer writer(unknown_, out);
    std::optional<LiteralMatcher::Match> literal =
        words_ ? std::nullopt : user_defined_.find(text, 0);
    std::size_t look = kStopBytes;
    for (std::size_t at = 0; at < text.size();) {
      std::size_t end = at + character_length(static_cast<unsigned char>(text[at]));
      if (words_) {
        end = std::min(text.find(kSpace, at + 1), text.size());
      } else if (literal && literal->span.begin == at) {
        end = literal->span.end;
        literal = user_defined_.find(text, end);
      }
      const std::string_view part = text.substr(at, end - at);
      if (const std::optional<TokenId> id = pieces_.find(part)) {
        writer.known(*id);
      } else {
        writer.unknown(part);
      }
      at = end;
      if (at >= look) {
        look = at + kStopBytes;
        if (stop.stop_requested()) {
          return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
        }
      }
    }
    return {};
  }

 private:
  bool words_;
  UnknownText unknown_;
  LiteralMatcher user_defined_;
  Spellings pieces_;
};

}  // namespace

UnknownText::UnknownText(const SentencePieceFile& file) : as_bytes_(file.byte_fallback) {
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePiece& piece = file.pieces[i];
    const auto id = static_cast<TokenId>(i);
    if (piece.kind == PieceKind::Unknown) {
      id_ = id;
    } else if (piece.kind == PieceKind::Byte) {
      bytes_[static_cast<unsigned char>(byte_token(piece.text).value_or('\0'))] = id;
    }
  }
}

Result<std::unique_ptr<const SentencePieceModel>> make_sentencepiece_model(
    const SentencePieceFile& file) {
  switch (file.kind) {
    case SentencePieceKind::Unigram:
      if (std::ranges::none_of(file.pieces, can_be_found)) {
        return fail(ErrorCode::InvalidRequest, "SentencePiece: a unigram model without pieces");
      }
      return std::make_unique<UnigramPieces>(file);
    case SentencePieceKind::Bpe: return make_sentencepiece_bpe(file);
    case SentencePieceKind::Word:
    case SentencePieceKind::Char: return LookUpPieces::create(file);
  }
  std::unreachable();
}

}  // namespace fairlead::tokenizer
