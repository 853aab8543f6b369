#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/char_bpe.hpp"
#include "tokenizer/json_text.hpp"
#include "tokenizer/model.hpp"

namespace fairlead::tokenizer {

/// The kinds of models a `tokenizer.json` can hold.
enum class ModelKind : std::uint8_t { Bpe, WordPiece, WordLevel, Unigram };

/// The `model` member of a `tokenizer.json`: small members as documents, the large ones unparsed.
struct ModelSource {
  JsonText vocab;        ///< An object of ids, or for Unigram an array of pieces with scores.
  JsonText merges;       ///< An array; BPE only.
  json::Object options;  ///< All other members.
};

/// Splits the `model` member into its parts.
Result<ModelSource> open_model(const JsonText& model);

/// The kind that `type` names. Files without one are as old as the kinds that they can be: BPE has
/// merges, WordPiece all of its options, WordLevel an unknown token, and what is left is Unigram.
Result<ModelKind> model_kind(const ModelSource& source);

/// Calls `visit` for every entry of a vocabulary that is an object, in the order of the text.
Result<> each_token(const JsonText& vocab,
                    const std::function<Result<>(std::string_view, TokenId)>& visit);

/// The merges, in rank order, as strings `"a b"` or as pairs. The views live as long as the call.
Result<> read_merges(const JsonText& merges,
                     const std::function<Result<>(std::span<const SpelledMerge>)>& use);

/// The options of a `BPE` model. Fails with `UnsupportedField` for a dropout that has an effect.
Result<CharBpeOptions> read_bpe_options(const json::Object& options);

/// Builds the model of the general path. Messages name the member at fault.
Result<std::unique_ptr<const Model>> read_model(const ModelSource& source);

}  // namespace fairlead::tokenizer
