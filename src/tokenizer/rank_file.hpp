#pragma once

#include <string_view>

#include "base/error.hpp"
#include "tokenizer/rank_scheme.hpp"
#include "tokenizer/tokenizer_source.hpp"

namespace fairlead::tokenizer {

/// What a rank file of `tiktoken` gives: lines of a token's bytes in base64, a space and its rank,
/// which is its id. Ids and text are those of PyPI tiktoken 0.14; the scheme's added tokens are
/// recognised in text, as with `allowed_special="all"` there.
Result<TokenizerSource> read_rank_file(std::string_view text, RankScheme scheme);

}  // namespace fairlead::tokenizer
