#pragma once

#include <string_view>

#include "base/error.hpp"
#include "tokenizer/tokenizer_config.hpp"
#include "tokenizer/tokenizer_source.hpp"

namespace fairlead::tokenizer {

/// What a SentencePiece model file gives: ids and text as the library `sentencepiece` 0.2.3 has
/// them. Of the config count `add_bos_token`, `add_eos_token`, `legacy` and the special tokens.
Result<TokenizerSource> read_sentencepiece(std::string_view file, const TokenizerConfig& config);

}  // namespace fairlead::tokenizer
