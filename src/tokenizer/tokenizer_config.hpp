#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// What the tokenizer needs of a `tokenizer_config.json`.
struct TokenizerConfig {
  SpecialTokens special_tokens;          ///< For chat templates.
  std::vector<AddedToken> added_tokens;  ///< `added_tokens_decoder`, by the written ids.
  std::optional<bool> add_bos_token;     ///< Members of these names, likewise below.
  std::optional<bool> add_eos_token;     ///< Whether the token goes behind the ids.
  /// `legacy`, or what `tokenizer_class` makes of it: whether SentencePiece's space in front goes
  /// before every text between added tokens, not only before the first.
  std::optional<bool> legacy;
};

/// Reads the file's text; empty text gives an empty result.
Result<TokenizerConfig> read_tokenizer_config(std::string_view text);

}  // namespace fairlead::tokenizer
