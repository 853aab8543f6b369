#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/char_bpe.hpp"
#include "tokenizer/merges.hpp"
#include "tokenizer/sentencepiece_model.hpp"
#include "tokenizer/sentencepiece_normalizer.hpp"
#include "tokenizer/spellings.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {
namespace {

constexpr TokenId kNone = UnknownText::kNone;
// No text spells it, so that no character is taken for the unknown piece.
constexpr std::string_view kUnknownName("\0<unk>", 6);

bool one_character(std::string_view text) {
  return text.size() == character_length(static_cast<unsigned char>(text.front()));
}

char32_t first_character(std::string_view text) {
  std::size_t length = 0;
  return decode_valid(text.data(), length);
}

std::string_view last_character(std::string_view text) {
  return text.substr(previous_character(text, text.size()));
}

// What merging works on. The library knows no merges: any two neighbours become one whose text
// together is a piece, those of the highest score first. So each way to cut a piece in two is a
// merge here, if both parts can come about: pieces, and characters, whether or not they are pieces.
//
// Ids of pieces are theirs. Characters that may only be parts, since they are no piece or one that
// is never given out, have ids above them.
struct Symbols {
  Spellings spellings;
  CharacterIds characters;
  std::vector<SpelledMerge> merges;  // by rank; the texts lie in the file
  bool resegments = false;           // merges lead to pieces that are never given out

  static Result<Symbols> create(const SentencePieceFile& file);

 private:
  Result<> add_spellings(const SentencePieceFile& file);
  Result<> add_part(std::string_view character, TokenId& next);
  Result<> add_merges(const SentencePieceFile& file);
};

// Whether merges may lead to a piece. User-defined ones are found before, wherever their text is.
bool can_be_merged(const SentencePiece& piece) {
  return (piece.kind == PieceKind::Normal || piece.kind == PieceKind::Unused) &&
         piece.text.front() != '\0' && !one_character(piece.text);
}

Result<Symbols> Symbols::create(const SentencePieceFile& file) {
  Symbols symbols;
  Result<> done = symbols.add_spellings(file);
  if (done) {
    done = symbols.add_merges(file);
  }
  if (!done) {
    return std::unexpected(done.error());
  }
  return symbols;
}

Result<> Symbols::add_part(std::string_view character, TokenId& next) {
  const char32_t code_point = first_character(character);
  if (characters.find(code_point) != CharacterIds::kNone) {
    return {};
  }
  characters.set(code_point, next);
  return spellings.add(character, next++);
}

Result<> Symbols::add_spellings(const SentencePieceFile& file) {
  Result<> added;
  for (std::size_t i = 0; i < file.pieces.size() && added; ++i) {
    const SentencePiece& piece = file.pieces[i];
    const auto id = static_cast<TokenId>(i);
    if (piece.kind == PieceKind::Unknown) {
      added = spellings.add(kUnknownName, id);
    } else if (piece.kind == PieceKind::Byte || can_be_merged(piece)) {
      added = spellings.add(piece.text, id);
    } else if (piece.kind == PieceKind::Normal) {
      characters.set(first_character(piece.text), id);
      added = spellings.add(piece.text, id);
    }
  }
  auto next = static_cast<TokenId>(file.pieces.size());
  for (const SentencePiece& piece : file.pieces) {
    if (!can_be_merged(piece)) {
      continue;
    }
    for (const std::string_view part : {piece.text, last_character(piece.text)}) {
      if (added) {
        const std::size_t length = character_length(static_cast<unsigned char>(part.front()));
        added = add_part(part.substr(0, length), next);
      }
    }
  }
  spellings.finish();
  return added;
}

Result<> Symbols::add_merges(const SentencePieceFile& file) {
  // Far more than real models have; bounds time and memory.
  constexpr std::size_t kMaxCuts = std::size_t{1} << 24;
  std::vector<const SentencePiece*> order;
  for (const SentencePiece& piece : file.pieces) {
    if (can_be_merged(piece)) {
      order.push_back(&piece);
    }
  }
  // As the library compares: -0 is below 0.
  std::ranges::sort(order, [](const SentencePiece* a, const SentencePiece* b) {
    return std::strong_order(a->score, b->score) > 0;
  });
  const auto is_part = [&](std::string_view text) {
    const std::optional<TokenId> id = spellings.find(text);
    if (!id) {
      return false;
    }
    if (*id >= file.pieces.size()) {
      return true;
    }
    const PieceKind kind = file.pieces[*id].kind;
    return kind == PieceKind::Normal || kind == PieceKind::Unused;
  };
  std::size_t cuts = 0;
  std::optional<float> score;  // of the last merge
  for (const SentencePiece* piece : order) {
    const std::string_view text = piece->text;
    for (std::size_t at = character_length(static_cast<unsigned char>(text[0])); at < text.size();
         at += character_length(static_cast<unsigned char>(text[at]))) {
      if (++cuts > kMaxCuts) {
        return fail(ErrorCode::InvalidRequest,
                    fmt::format("SentencePiece: more than {} ways to cut pieces", kMaxCuts));
      }
      if (is_part(text.substr(0, at)) && is_part(text.substr(at))) {
        merges.push_back({text.substr(0, at), text.substr(at),
                          score && std::strong_order(*score, piece->score) == 0});
        score = piece->score;
        resegments = resegments || piece->kind == PieceKind::Unused;
      }
    }
  }
  return {};
}

// Calls `text(part)` for what lies between user-defined pieces and `piece(id)` for those.
class UserDefined {
 public:
  explicit UserDefined(const SentencePieceFile& file)
      : matcher_(user_defined_matcher(file.pieces)) {
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      if (file.pieces[id].kind == PieceKind::UserDefined) {
        ids_.push_back(static_cast<TokenId>(id));
      }
    }
  }

  template <class Text, class Piece>
  Result<> split(std::string_view text, Text&& between, Piece&& piece) const {
    std::size_t at = 0;
    while (at < text.size()) {
      const std::optional<LiteralMatcher::Match> match = matcher_.find(text, at);
      const std::size_t end = match ? match->span.begin : text.size();
      if (end > at) {
        if (Result<> done = between(text.substr(at, end - at)); !done) {
          return done;
        }
      }
      if (match) {
        piece(ids_[match->index]);
      }
      at = match ? match->span.end : end;
    }
    return {};
  }

 private:
  LiteralMatcher matcher_;
  std::vector<TokenId> ids_;
};

// The common case: every piece that merges lead to is given out.
class BpePieces final : public SentencePieceModel {
 public:
  static Result<std::unique_ptr<const SentencePieceModel>> create(const SentencePieceFile& file,
                                                                  Symbols symbols) {
    auto model = std::make_unique<BpePieces>(file);
    model->parts_ = symbols.spellings.id_limit() > file.pieces.size();
    CharBpeOptions options;
    options.byte_fallback = file.byte_fallback;
    if (model->unknown_.id() != kNone) {
      options.unk_token = kUnknownName;
    }
    Result<std::unique_ptr<const Model>> merging =
        CharBpeModel::create(std::move(symbols.spellings), symbols.merges, std::move(options));
    if (!merging) {
      return std::unexpected(merging.error());
    }
    model->model_ = std::move(*merging);
    return model;
  }
  explicit BpePieces(const SentencePieceFile& file)
      : pieces_(file.pieces.size()), unknown_(file), user_defined_(file) {}

  Result<> encode(std::string_view text, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    const std::size_t before = out.size();
    const Result<> done = user_defined_.split(
        text, [&](std::string_view part) { return model_->encode(part, out, stop); },
        [&](TokenId id) { out.push_back(id); });
    if (done && (parts_ || !unknown_.as_bytes())) {
      settle_unknown(before, out);
    }
    return done;
  }

 private:
  // Parts that found no other part are unknown text; runs of that are one.
  void settle_unknown(std::size_t from, std::vector<TokenId>& out) const {
    const std::vector<TokenId> ids(out.begin() + static_cast<std::ptrdiff_t>(from), out.end());
    out.resize(from);
    UnknownText::Writer writer(unknown_, out);
    for (const TokenId id : ids) {
      if (id >= pieces_) {
        writer.unknown(model_->spelling(id).value_or(std::string_view()));
      } else if (id == unknown_.id()) {
        writer.unknown({});
      } else {
        writer.known(id);
      }
    }
  }

  std::size_t pieces_;
  bool parts_ = false;
  UnknownText unknown_;
  UserDefined user_defined_;
  std::unique_ptr<const Model> model_;
};

// Merges lead to pieces that are never given out: such a piece falls apart again, into the two
// neighbours that were last found to make it, anywhere in the text. So a text is merged as a whole.
class ResegmentingPieces final : public SentencePieceModel {
 public:
  ResegmentingPieces(const SentencePieceFile& file, Symbols symbols)
      : pieces_(file.pieces.size()),
        unknown_(file),
        user_defined_(file),
        spellings_(std::move(symbols.spellings)),
        characters_(std::move(symbols.characters)),
        unused_(std::max(spellings_.id_limit(), file.pieces.size())) {
    for (std::size_t id = 0; id < file.pieces.size(); ++id) {
      unused_[id] = file.pieces[id].kind == PieceKind::Unused;
    }
    const auto id = [&](std::string_view text) { return spellings_.find(text).value_or(kNone); };
    std::string merged;
    merges_.reserve(symbols.merges.size());
    for (const SpelledMerge& merge : symbols.merges) {
      merged.assign(merge.left);
      merged += merge.right;
      merges_.add(id(merge.left), id(merge.right), id(merged), merge.same_rank);
    }
    merges_.finish();
  }

  Result<> encode(std::string_view text, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    std::vector<TokenId> symbols;
    symbols.reserve(text.size());
    const Result<> split = user_defined_.split(
        text,
        [&](std::string_view part) {
          std::size_t length = 0;
          for (std::size_t at = 0; at < part.size(); at += length) {
            const char32_t character = decode_valid(part.data() + at, length);
            const TokenId id = characters_.find(character);
            symbols.push_back(id != CharacterIds::kNone ? id : kCharacters + character);
          }
          return Result<>();
        },
        [&](TokenId id) { symbols.push_back(id); });
    if (!split) {
      return split;
    }
    MergeTable::Witness witness(unused_);
    std::vector<TokenId> merged;
    merges_.merge(symbols, merged, witness, stop);
    if (stop.stop_requested()) {
      return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
    }
    UnknownText::Writer writer(unknown_, out);
    for (const TokenId id : merged) {
      write(id, witness, 0, writer);
    }
    return {};
  }

 private:
  // Added to characters that are in no merge.
  static constexpr TokenId kCharacters = kMaxTokenId + 1;

  void write(TokenId id, const MergeTable::Witness& witness, int depth,
             UnknownText::Writer& writer) const {
    // The library's bound; what is deeper is given out after all.
    constexpr int kMaxDepth = 100;
    if (id >= kCharacters) {
      std::string text;
      utf8::append(text, id - kCharacters);
      return writer.unknown(text);
    }
    if (id >= pieces_) {
      return writer.unknown(spellings_.spelling(id).value_or(std::string_view()));
    }
    if (!unused_[id] || depth > kMaxDepth) {
      return writer.known(id);
    }
    if (const auto parts = witness.last(id)) {
      write(parts->first, witness, depth + 1, writer);
      write(parts->second, witness, depth + 1, writer);
    }
  }

  std::size_t pieces_;
  UnknownText unknown_;
  UserDefined user_defined_;
  Spellings spellings_;
  CharacterIds characters_;
  std::vector<bool> unused_;
  MergeTable merges_;
};

}  // namespace

Result<std::unique_ptr<const SentencePieceModel>> make_sentencepiece_bpe(
    const SentencePieceFile& file) {
  Result<Symbols> symbols = Symbols::create(file);
  if (!symbols) {
    return std::unexpected(symbols.error());
  }
  if (symbols->resegments) {
    return std::make_unique<ResegmentingPieces>(file, std::move(*symbols));
  }
  return BpePieces::create(file, std::move(*symbols));
}

}  // namespace fairlead::tokenizer
