#pragma once

#include <array>
#include <memory>
#include <stop_token>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/sentencepiece_file.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// What a SentencePiece model makes of normalized text. Immutable, shared by all threads.
class SentencePieceModel {
 public:
  virtual ~SentencePieceModel() = default;

  /// Appends the ids of a whole text, well-formed UTF-8. `ClientGone` soon after `stop` is
  /// requested; then what was appended means nothing.
  virtual Result<> encode(std::string_view text, std::vector<TokenId>& out,
                          const std::stop_token& stop) const = 0;
};

/// The model of a file, which it does not need any more afterwards.
Result<std::unique_ptr<const SentencePieceModel>> make_sentencepiece_model(
    const SentencePieceFile& file);

/// The same for files of the kind `Bpe`.
Result<std::unique_ptr<const SentencePieceModel>> make_sentencepiece_bpe(
    const SentencePieceFile& file);

/// What stands for text that is in no piece: its bytes, or one unknown piece for any length of it.
class UnknownText {
 public:
  /// No token.
  static constexpr TokenId kNone = ~TokenId{0};

  /// As the file has it.
  explicit UnknownText(const SentencePieceFile& file);

  /// The unknown piece, or `kNone`.
  TokenId id() const { return id_; }
  /// Whether text becomes its bytes.
  bool as_bytes() const { return as_bytes_; }

  /// Writes ids. One object per text.
  class Writer {
   public:
    /// Appends to `out`. Both must outlive the writer.
    Writer(const UnknownText& unknown, std::vector<TokenId>& out)
        : unknown_(&unknown), out_(&out) {}

    /// A piece.
    void known(TokenId id) {
      out_->push_back(id);
      behind_unknown_ = false;
    }
    /// Text that is in no piece.
    void unknown(std::string_view text) {
      if (unknown_->as_bytes_) {
        for (const char c : text) {
          out_->push_back(unknown_->bytes_[static_cast<unsigned char>(c)]);
        }
      } else if (!behind_unknown_) {
        out_->push_back(unknown_->id_);
      }
      behind_unknown_ = true;
    }

   private:
    const UnknownText* unknown_;
    std::vector<TokenId>* out_;
    bool behind_unknown_ = false;
  };

 private:
  TokenId id_ = kNone;
  bool as_bytes_ = false;
  std::array<TokenId, 256> bytes_{};
};

}  // namespace fairlead::tokenizer
