#pragma once

#include <string>

#include "base/error.hpp"
#include "tokenizer/tokenizer_source.hpp"

namespace fairlead::tokenizer {

/// What a `tekken.json` of Mistral gives, as PyPI mistral-common 1.13 reads it: a rank file with
/// its pattern, of which as many entries count as fit into `default_vocab_size`, behind
/// `default_num_special_tokens` special tokens. `add_special_tokens` puts `<s>` first.
Result<TokenizerSource> read_tekken(std::string text);

}  // namespace fairlead::tokenizer
