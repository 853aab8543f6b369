#include "tokenizer/tokenizer_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace fairlead::tokenizer {

Result<TokenizerSource> make_source(const TokenizerFile& file) {
  TokenizerSource source;
  Result<Normalizer> normalizer = Normalizer::create(file.normalizer);
  if (!normalizer) {
    return std::unexpected(normalizer.error());
  }
  Result<AddedIds> around = read_post_processor(file.post_processor);
  if (!around) {
    return std::unexpected(around.error());
  }
  Result<std::unique_ptr<const TextPath>> path = make_text_path(file);
  if (!path) {
    return std::unexpected(path.error());
  }
  Result<LengthRules> length_rules = read_length_rules(file.truncation, file.padding);
  if (!length_rules) {
    return std::unexpected(length_rules.error());
  }
  source.normalizer = std::move(*normalizer);
  source.around = std::move(*around);
  source.path = std::move(*path);
  source.length_rules = *length_rules;
  source.added_tokens = file.added_tokens;
  return source;
}

Result<> add_written_tokens(TokenizerSource& source, std::vector<AddedToken> tokens) {
  std::unordered_set<std::string_view> contents;
  std::unordered_set<TokenId> ids;
  for (const AddedToken& token : tokens) {
    contents.insert(token.content);
    ids.insert(*token.id);
  }
  std::erase_if(source.added_tokens, [&](const AddedToken& token) {
    return contents.contains(token.content) || (token.id && ids.contains(*token.id));
  });
  std::ranges::move(tokens, std::back_inserter(source.added_tokens));
  for (const AddedToken& token : source.added_tokens) {
    if (token.id && source.path->contains(*token.id) &&
        source.path->bytes(*token.id) != token.content &&
        source.path->spelling(*token.id) != token.content) {
      return fail(
          ErrorCode::InvalidRequest,
          fmt::format("added token '{}': {} is the id of another token", token.content, *token.id));
    }
  }
  return {};
}

}  // namespace fairlead::tokenizer
