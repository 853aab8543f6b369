#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"

namespace fairlead::tokenizer {

/// The contents of a `tokenizer.json`: the model built, the other components as documents.
struct TokenizerFile {
  std::vector<AddedToken> added_tokens;  ///< In file order; the written ids count for nothing.
  json::Value normalizer;                ///< Null when absent; likewise below.
  json::Value pre_tokenizer;             ///< How text is cut into words.
  json::Value post_processor;            ///< What is put around the ids.
  json::Value decoder;                   ///< How tokens become text.
  std::optional<BpeModel> model;         ///< Always there in a result.
};

/// Reads a `tokenizer.json`. Takes its text by value since parsing needs spare room behind it.
Result<TokenizerFile> read_tokenizer_json(std::string text);

/// The ids that the post-processor puts before and behind those of a single text.
struct AddedIds {
  std::vector<TokenId> before;  ///< In order.
  std::vector<TokenId> behind;  ///< In order.
};

/// Interprets the `post_processor` member.
Result<AddedIds> read_post_processor(const json::Value& config);

/// Interprets the `normalizer` member: true for NFC, false for none; anything else is an error.
Result<bool> read_normalizer(const json::Value& config);

/// Checks that the `decoder` member is the byte-level one.
Result<> check_decoder(const json::Value& config);

}  // namespace fairlead::tokenizer
