#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/json_text.hpp"
#include "tokenizer/model_json.hpp"

namespace fairlead::tokenizer {

/// The contents of a `tokenizer.json`.
struct TokenizerFile {
  std::string text;                      ///< The file, with room behind it; `model` lies in it.
  ModelSource model;                     ///< The model, its large members unparsed.
  std::vector<AddedToken> added_tokens;  ///< In file order; the written ids count for nothing.
  json::Value normalizer;                ///< Null when absent; likewise below.
  json::Value pre_tokenizer;             ///< How text is cut into words.
  json::Value post_processor;            ///< What is put around the ids.
  json::Value decoder;                   ///< How tokens become text.
  json::Value truncation;                ///< How long texts are cut.
  json::Value padding;                   ///< How short texts are filled.
};

/// Reads a `tokenizer.json`. Takes its text by value since parsing needs spare room behind it.
/// On the heap, since the model's parts lie in its text.
Result<std::unique_ptr<const TokenizerFile>> read_tokenizer_json(std::string text);

/// The ids that the post-processor puts before and behind those of a single text.
struct AddedIds {
  std::vector<TokenId> before;  ///< In order.
  std::vector<TokenId> behind;  ///< In order.
};

/// Interprets the `post_processor` member.
Result<AddedIds> read_post_processor(const json::Value& config);

}  // namespace fairlead::tokenizer
