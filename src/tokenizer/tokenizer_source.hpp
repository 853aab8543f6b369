#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/length_rules.hpp"
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
  /// `bos_token` and the like with their texts, where `tokenizer_config.json` does not name them.
  std::vector<std::pair<std::string, std::string>> named = {};
  /// All tokens of `tokenizer_config.json` are added, with the ids written there. Otherwise its
  /// special ones are, by the reference's rules for numbers.
  bool written_ids = false;
  /// The reference of this kind of file does not look for added tokens in a text. So it is for a
  /// file that is loaded by itself; that of a folder goes with templates, which spell them out.
  bool plain_text = false;
  /// The `tokenizer_config.json` beside the file counts also when the file is loaded by itself.
  bool with_config = false;
  LengthRules length_rules = {};  ///< None unless set.
};

/// What a `tokenizer.json` gives. Takes the model out of `file`.
Result<TokenizerSource> make_source(const TokenizerFile& file);

/// Adds the tokens of a `tokenizer_config.json` to those of a source with written ids, in the place
/// of those with the same id or content. Fails when an id is that of a token of the model.
Result<> add_written_tokens(TokenizerSource& source, std::vector<AddedToken> tokens);

}  // namespace fairlead::tokenizer
