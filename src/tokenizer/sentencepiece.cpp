#include "tokenizer/sentencepiece.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/sentencepiece_decoder.hpp"
#include "tokenizer/sentencepiece_file.hpp"
#include "tokenizer/sentencepiece_model.hpp"
#include "tokenizer/sentencepiece_normalizer.hpp"
#include "tokenizer/spellings.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/token_decoder.hpp"

namespace fairlead::tokenizer {
namespace {

// Texts by id, one behind the other.
class Texts {
 public:
  void add(std::string_view text) {
    all_ += text;
    ends_.push_back(all_.size());
  }
  std::string_view operator[](TokenId id) const {
    return std::size_t{id} + 1 < ends_.size()
               ? std::string_view(all_).substr(ends_[id], ends_[id + 1] - ends_[id])
               : std::string_view();
  }
  std::size_t size() const { return ends_.size() - 1; }

 private:
  std::string all_;
  std::vector<std::size_t> ends_ = {0};
};

class SentencePiecePath final : public TextPath {
 public:
  static Result<std::unique_ptr<const TextPath>> create(const SentencePieceFile& file,
                                                        bool always_prefix) {
    Result<SentencePieceNormalizer> normalizer =
        SentencePieceNormalizer::create(file.normalizer, user_defined_matcher(file.pieces));
    if (!normalizer) {
      return std::unexpected(normalizer.error());
    }
    Result<PieceDecoding> decoding = PieceDecoding::create(file);
    if (!decoding) {
      return std::unexpected(decoding.error());
    }
    Result<std::unique_ptr<const SentencePieceModel>> model = make_sentencepiece_model(file);
    if (!model) {
      return std::unexpected(model.error());
    }
    std::unique_ptr<SentencePiecePath> path(
        new SentencePiecePath(std::move(*normalizer), std::move(*model), std::move(*decoding)));
    path->always_prefix_ = always_prefix;
    if (Result<> added = path->add_pieces(file); !added) {
      return std::unexpected(added.error());
    }
    return path;
  }

  Result<> encode(std::string_view text, std::size_t start_bytes, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override {
    std::string normalized;
    if (Result<> done =
            normalizer_.apply(text, always_prefix_ || start_bytes != 0, normalized, stop);
        !done) {
      return done;
    }
    return model_->encode(normalized, out, stop);
  }
  std::optional<TokenId> find(std::string_view spelling) const override {
    return spellings_.find(spelling);
  }
  bool contains(TokenId id) const override { return id < tokens_.size(); }
  std::size_t size() const override { return tokens_.size(); }
  std::size_t id_limit() const override { return tokens_.size(); }
  std::size_t longest_token() const override { return longest_token_; }
  const TokenDecoder* decoder() const override { return &decoder_; }
  std::string_view decoder_token(TokenId id) const override { return tokens_[id]; }
  std::string spelling(TokenId id) const override {
    return std::string(spellings_.spelling(id).value_or(std::string_view()));
  }
  std::string_view bytes(TokenId id) const override { return bytes_[id]; }
  std::string added_bytes(std::string_view content) const override {
    return decoder_.token_bytes(content);
  }

 private:
  SentencePiecePath(SentencePieceNormalizer normalizer,
                    std::unique_ptr<const SentencePieceModel> model, PieceDecoding decoding)
      : normalizer_(std::move(normalizer)),
        model_(std::move(model)),
        decoder_(TokenDecoder::create(std::move(decoding))) {}

  Result<> add_pieces(const SentencePieceFile& file) {
    for (const SentencePiece& piece : file.pieces) {
      if (Result<> added = spellings_.add(piece.text, static_cast<TokenId>(tokens_.size()));
          !added) {
        return added;
      }
      const std::string token = decoder_token(piece, file);
      bytes_.add(decoder_.token_bytes(token));
      tokens_.add(token);
      longest_token_ = std::max(longest_token_, piece.text.size());
    }
    spellings_.finish();
    if (!file.byte_fallback || !normalizer_.keeps_text()) {
      longest_token_ = 0;  // text may vanish, or any amount of it may be one unknown piece
    }
    return {};
  }
  static std::string decoder_token(const SentencePiece& piece, const SentencePieceFile& file) {
    if (piece.kind == PieceKind::Unknown) {
      return PieceDecoding::verbatim(file.unk_surface);
    }
    // What only looks like a byte, or like text that stays as it is.
    const bool looks = piece.kind != PieceKind::Byte &&
                       (byte_token(piece.text) || PieceDecoding::verbatim_text(piece.text));
    return looks || piece.kind == PieceKind::Control ? PieceDecoding::verbatim(piece.text)
                                                     : std::string(piece.text);
  }

  SentencePieceNormalizer normalizer_;
  std::unique_ptr<const SentencePieceModel> model_;
  TokenDecoder decoder_;
  bool always_prefix_ = true;  // also for a text behind an added token
  Spellings spellings_;
  Texts tokens_;
  Texts bytes_;
  std::size_t longest_token_ = 0;
};

void add_special(std::string_view text, std::optional<TokenId> id, TokenizerSource& source) {
  const bool there = std::ranges::any_of(
      source.added_tokens, [&](const AddedToken& token) { return token.content == text; });
  if (!there) {
    source.added_tokens.push_back({.content = std::string(text), .special = true, .id = id});
  }
}

}  // namespace

Result<TokenizerSource> read_sentencepiece(std::string_view bytes, const TokenizerConfig& config) {
  const Result<SentencePieceFile> file = read_sentencepiece_file(bytes);
  if (!file) {
    return std::unexpected(file.error());
  }
  Result<std::unique_ptr<const TextPath>> path =
      SentencePiecePath::create(*file, config.legacy.value_or(true));
  if (!path) {
    return std::unexpected(path.error());
  }
  TokenizerSource source;
  source.path = std::move(*path);
  source.written_ids = true;
  source.plain_text = true;
  for (std::size_t id = 0; id < file->pieces.size(); ++id) {
    const SentencePiece& piece = file->pieces[id];
    if (piece.kind == PieceKind::Control) {
      source.added_tokens.push_back(
          {.content = std::string(piece.text), .special = true, .id = static_cast<TokenId>(id)});
    }
  }
  for (const auto& [name, text] : config.special_tokens.named) {
    add_special(text, source.path->find(text), source);
  }
  for (const std::string& text : config.special_tokens.additional) {
    add_special(text, source.path->find(text), source);
  }
  const auto around = [&](std::string_view name, const std::string& piece, bool wanted,
                          std::vector<TokenId>& ids) {
    const std::string* const written = config.special_tokens.find(name);
    const std::optional<TokenId> id = source.path->find(written != nullptr ? *written : piece);
    const bool control = id && file->pieces[*id].kind == PieceKind::Control;
    if (control && written == nullptr) {
      source.named.emplace_back(name, piece);
    }
    if (wanted && (control || (id && written != nullptr))) {
      ids.push_back(*id);
    }
  };
  around("bos_token", file->bos_piece, config.add_bos_token.value_or(true), source.around.before);
  around("eos_token", file->eos_piece, config.add_eos_token.value_or(false), source.around.behind);
  return source;
}

}  // namespace fairlead::tokenizer
