#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.hpp"
#include "tokenizer/unigram_search.hpp"

namespace fairlead::tokenizer {

/// An entry of a `Unigram` model; its place in the list is its id.
struct ScoredPiece {
  std::string_view text;  ///< Only read while building.
  double score;           ///< Logarithm of its probability; finite.
};

/// Options of a `Unigram` model.
struct UnigramOptions {
  /// Stands for characters that no piece covers, runs of them together; without it they are errors.
  std::optional<TokenId> unk_id;
  bool byte_fallback = false;  ///< Such runs become `<0xNN>` pieces where all exist.
};

/// A unigram language model: of all ways to cut a text into pieces the one with the highest sum of
/// scores, added in the order of the text as 64-bit floats, of equal ones as the reference chooses.
class UnigramModel final : public Model {
 public:
  /// Fails when `unk_id` is no entry.
  static Result<std::unique_ptr<const Model>> create(std::span<const ScoredPiece> pieces,
                                                     const UnigramOptions& options);

  /// Takes time and memory as `UnigramSearch` does.
  Result<> encode(std::string_view piece, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override;
  std::optional<TokenId> find(std::string_view spelling) const override;
  std::optional<std::string_view> spelling(TokenId id) const override;
  std::size_t size() const override { return pieces_.size(); }
  std::size_t id_limit() const override { return pieces_.size(); }
  std::size_t longest_token() const override;

 private:
  struct Piece {
    std::uint32_t offset;
    std::uint32_t length;
  };
  class Run;

  static constexpr TokenId kNone = UnigramSearch<double>::kNone;

  UnigramModel() = default;

  std::string text_;
  std::vector<Piece> pieces_;
  UnigramSearch<double> search_;
  std::optional<TokenId> unk_id_;
  bool byte_fallback_ = false;
  std::array<TokenId, 256> fallback_{};
};

}  // namespace fairlead::tokenizer
