#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::chat {

class ChatTemplate;

/// Sampling values of a model's `generation_config.json`, as `vllm serve` applies them to requests
/// that do not say otherwise; and `extra_args`, which vLLM has in its default sampling parameters.
struct SamplingDefaults {
  std::optional<double> temperature;            ///< `temperature`.
  std::optional<double> top_p;                  ///< `top_p`.
  std::optional<std::int64_t> top_k;            ///< `top_k`; -1 and 0 mean off.
  std::optional<double> min_p;                  ///< `min_p`.
  std::optional<double> repetition_penalty;     ///< `repetition_penalty`.
  std::optional<std::uint32_t> max_new_tokens;  ///< `max_new_tokens`: caps the default length.
  json::Value extra_args = {};  ///< `extra_args`, the engine's own arguments; object or null.
  /// Candidates per output token and per prompt token; of `--default-sampling-params` only.
  std::optional<std::uint32_t> logprobs = {};
  std::optional<std::uint32_t> prompt_logprobs = {};  ///< kAllCandidates of the engines = all.
};

/// Everything about a model that is not weights.
struct ModelAssets {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;  ///< Never null.
  std::shared_ptr<const ChatTemplate> chat_template;      ///< Null when the model ships none.
  std::vector<std::uint32_t> eos_token_ids;               ///< Sorted union of all sources.
  SamplingDefaults defaults;         ///< Empty with `--generation-config none`.
  std::uint32_t context_length = 0;  ///< Of `config.json`; 0 = unknown.
  std::uint32_t vocab_size = 0;      ///< Ids are below it; 0 = unknown.
  std::string folder;                ///< Where the files are.

  /// Token ids are below it: engines die of others.
  std::size_t id_limit() const { return vocab_size > 0 ? vocab_size : tokenizer->vocab_size(); }
};

/// Where the files come from.
struct ModelAssetsOptions {
  std::string path;                        ///< A folder.
  std::string generation_config = "auto";  ///< `auto` (the model's folder), `none`, or a folder.
};

/// Refuses what is no folder.
Result<> check_model_folder(const std::filesystem::path& path);

/// Loads a model's files. Errors name the file and the reason. Slow (tens of milliseconds and
/// more): not for reactors.
Result<ModelAssets> load_model_assets(const ModelAssetsOptions& options);

}  // namespace fairlead::chat
