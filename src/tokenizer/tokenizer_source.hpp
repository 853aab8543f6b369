#pragma once

#include <memory>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/normalizer.hpp"
#include "tokenizer/text_path.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

/// What a tokenizer file of any kind gives, before `tokenizer_config.json` adds its special tokens.
struct TokenizerSource {
  Normalizer normalizer;                 ///< Does nothing unless set.
  std::unique_ptr<const TextPath> path;  ///< Never null.
  std::vector<AddedToken> added_tokens;  ///< In the order in which they are numbered.
  AddedIds around;                       ///< What `add_special_tokens` puts around the ids.
};

/// What a `tokenizer.json` gives. Takes the model out of `file`.
Result<TokenizerSource> make_source(const TokenizerFile& file);

}  // namespace fairlead::tokenizer
