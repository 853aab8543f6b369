#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.hpp"

namespace fairlead::engine {

/// A token id as engines and tokenizers number them.
using TokenId = std::uint32_t;

/// How tokens are drawn. All values are resolved: unless `unset`, nothing is left to the engine's
/// defaults.
struct SamplingParams {
  float temperature = 1.0F;                           ///< 0 = greedy.
  float top_p = 1.0F;                                 ///< (0, 1].
  std::uint32_t top_k = 0;                            ///< 0 = off.
  float min_p = 0.0F;                                 ///< [0, 1]; 0 = off.
  float presence_penalty = 0.0F;                      ///< [-2, 2].
  float frequency_penalty = 0.0F;                     ///< [-2, 2].
  float repetition_penalty = 1.0F;                    ///< > 0; 1 = off.
  std::optional<std::int64_t> seed;                   ///< Absent = unseeded.
  std::vector<std::pair<TokenId, float>> logit_bias;  ///< Added to the logits.
  std::vector<TokenId> allowed_token_ids;             ///< Empty = all.
  std::vector<std::vector<TokenId>> bad_words;        ///< Sequences never generated.
  /// Nothing of this structure is sent: for canaries of models that refuse sampling values.
  bool unset = false;
};

/// A constraint on the output; at most one.
struct StructuredOutput {
  /// What `text` is.
  enum class Kind : std::uint8_t {
    JsonSchema,     ///< `text` is a JSON schema.
    JsonObject,     ///< Any JSON object.
    Regex,          ///< `text` is a regular expression.
    Choice,         ///< One of `choices`.
    Grammar,        ///< `text` is a grammar.
    StructuralTag,  ///< `text` is a structural tag.
  };
  Kind kind = Kind::JsonObject;      ///< Which constraint.
  std::string text;                  ///< Schema, regex, grammar or tag.
  std::vector<std::string> choices;  ///< For Choice.
};

/// When generation ends. Stop strings are found by this program, never by the engine.
struct StopConditions {
  std::uint32_t max_tokens = 16;        ///< Always explicit, at least 1.
  std::uint32_t min_tokens = 0;         ///< No stop before this many tokens.
  std::vector<TokenId> stop_token_ids;  ///< The user's and the model's extra ends, sorted.
  bool ignore_eos = false;              ///< The engine goes on behind EOS.
  std::optional<std::int64_t> thinking_token_budget;  ///< -1 = unlimited.
};

/// A number of candidates that means the whole vocabulary.
inline constexpr std::uint32_t kAllCandidates = 0xFFFF'FFFF;

/// What the engine should report beside the ids. Counts may be kAllCandidates.
struct OutputOptions {
  std::optional<std::uint32_t> logprobs;   ///< Candidates per token; 0 = the sampled one only.
  std::vector<TokenId> logprob_token_ids;  ///< Report exactly these candidates instead.
  std::optional<std::uint32_t> prompt_logprobs;  ///< Candidates per prompt token.

  /// True when every chunk carries log-probabilities.
  bool wants_logprobs() const { return logprobs.has_value() || !logprob_token_ids.empty(); }
};

/// What an engine does of a generation, or, of an engine itself, what it says it is there for.
enum class Leg : std::uint8_t {
  Whole,    ///< Prompt and output.
  Prefill,  ///< The prompt, whose KV cache is handed on. Its one output token means nothing.
  Decode,   ///< The output, from a KV cache that was handed on.
};

/// Where the two legs of a generation on SGLang meet: at the prefill engine's bootstrap server.
/// Both legs carry the same.
struct Bootstrap {
  std::string host;        ///< Of the prefill engine, without brackets.
  std::uint16_t port = 0;  ///< Of its bootstrap server, never 0.
  std::int64_t room = 0;   ///< 0 to 2^63-1, unique among the live requests of the prefill engine.
  bool operator==(const Bootstrap&) const = default;
};

/// One generation, independent of API and engine. One sequence; `n` > 1 is several requests.
struct GenerateRequest {
  std::string request_id;                           ///< Unique among live requests.
  std::vector<TokenId> prompt;                      ///< Not empty.
  SamplingParams sampling;                          ///< How to draw.
  StopConditions stop;                              ///< When to end.
  OutputOptions output;                             ///< What to report.
  std::optional<StructuredOutput> structured;       ///< Constraint on the output.
  std::string lora_name;                            ///< Empty = base model.
  std::string cache_salt;                           ///< Empty = none.
  bool bypass_prefix_cache = false;                 ///< Neither read nor reuse cached blocks.
  std::int32_t priority = 0;                        ///< Lower runs earlier.
  std::string session_id;                           ///< Empty = none.
  std::optional<std::uint32_t> data_parallel_rank;  ///< Which rank of the engine.
  Leg leg = Leg::Whole;                             ///< What is wanted of the engine.
  std::optional<Bootstrap> bootstrap;               ///< Of both legs on SGLang; else nothing.
  json::Value kv_transfer_params;                   ///< Object or null; forwarded whole.
  json::Value ec_transfer_params;                   ///< Object or null; forwarded whole.
  /// Object or null: further sampling arguments of the engine (`SamplingParams.extra_args`), the
  /// defaults already merged in. Never has the keys of the two fields above.
  json::Value extra_args;
  /// The client set some of `extra_args`: an engine whose wire has no place for them must not get
  /// the request. Otherwise they are defaults, left out where there is no place.
  bool extra_args_required = false;
};

}  // namespace fairlead::engine
