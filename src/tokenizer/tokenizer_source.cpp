#include "tokenizer/tokenizer_source.hpp"

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
  source.normalizer = std::move(*normalizer);
  source.around = std::move(*around);
  source.path = std::move(*path);
  source.added_tokens = file.added_tokens;
  return source;
}

}  // namespace fairlead::tokenizer
