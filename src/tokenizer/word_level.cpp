#include "tokenizer/word_level.hpp"

#include <fmt/format.h>

#include <utility>

namespace fairlead::tokenizer {

WordLevelModel::WordLevelModel(Spellings vocabulary, std::string unk_token)
    : vocabulary_(std::move(vocabulary)),
      unk_token_(std::move(unk_token)),
      unk_id_(vocabulary_.find(unk_token_)) {}

Result<std::unique_ptr<const Model>> WordLevelModel::create(Spellings vocabulary,
                                                            std::string unk_token) {
  return std::unique_ptr<const Model>(
      new WordLevelModel(std::move(vocabulary), std::move(unk_token)));
}

Result<> WordLevelModel::encode(std::string_view piece, std::vector<TokenId>& out,
                                const std::stop_token& /*stop*/) const {
  std::optional<TokenId> id = vocabulary_.find(piece);
  if (!id) {
    id = unk_id_;
  }
  if (!id) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("unk_token '{}' is not in the vocabulary", unk_token_));
  }
  out.push_back(*id);
  return {};
}

std::optional<TokenId> WordLevelModel::find(std::string_view spelling) const {
  return vocabulary_.find(spelling);
}

std::optional<std::string_view> WordLevelModel::spelling(TokenId id) const {
  return vocabulary_.spelling(id);
}

}  // namespace fairlead::tokenizer
