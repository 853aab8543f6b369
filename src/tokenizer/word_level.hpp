#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.hpp"
#include "tokenizer/spellings.hpp"

namespace fairlead::tokenizer {

/// A model in which every word is one token.
class WordLevelModel final : public Model {
 public:
  /// Takes a finished vocabulary. `unk_token` stands for all other words; when it is missing in the
  /// vocabulary they are an error.
  static Result<std::unique_ptr<const Model>> create(Spellings vocabulary, std::string unk_token);

  Result<> encode(std::string_view piece, std::vector<TokenId>& out,
                  const std::stop_token& stop) const override;
  std::optional<TokenId> find(std::string_view spelling) const override;
  std::optional<std::string_view> spelling(TokenId id) const override;
  std::size_t size() const override { return vocabulary_.size(); }
  std::size_t id_limit() const override { return vocabulary_.id_limit(); }

 private:
  WordLevelModel(Spellings vocabulary, std::string unk_token);

  Spellings vocabulary_;
  std::string unk_token_;
  std::optional<TokenId> unk_id_;
};

}  // namespace fairlead::tokenizer
