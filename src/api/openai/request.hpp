#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "api/json_reader.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/request.hpp"
#include "net/http.hpp"
#include "observe/metrics.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_waiter.hpp"

namespace fairlead::api::openai {

/// One prompt of a completions request: text, or token ids used as they are.
using Prompt = std::variant<std::string, std::vector<engine::TokenId>>;

/// Fields of an answer's `nvext` that `nvext.extra_fields` selects.
struct NvextFields {
  bool completion_token_ids = false;  ///< Ids of the output.
  bool prompt_logprobs = false;       ///< As at their usual place.
  bool stop_reason = false;           ///< Likewise.

  bool operator==(const NvextFields&) const = default;
};

/// What a body is read for.
enum class Purpose : std::uint8_t {
  Generate,  ///< All of it.
  Tokenize,  ///< What the tokens of its prompt depend on; other fields are passed over unread.
};

/// A chat or completions request as the client wrote it: every value of legal type and range, none
/// resolved against a model yet. Absent optionals were absent or null.
struct RequestBody {
  observe::Endpoint endpoint = observe::Endpoint::ChatCompletions;  ///< Which of the two.
  std::string model;  ///< Not blank; of a body to be tokenized also empty.

  bool stream = false;            ///< Answer as server-sent events.
  bool include_usage = false;     ///< A last chunk with usage.
  bool continuous_usage = false;  ///< Usage on every chunk as well.

  std::uint32_t n = 1;                      ///< Answers per prompt.
  std::optional<std::uint32_t> max_tokens;  ///< The completion's own limit wins in chat; 0: echo
                                            ///< only.
  std::uint32_t min_tokens = 0;             ///< No end before this many.
  std::optional<float> temperature;         ///< 0 … 2.
  std::optional<float> top_p;               ///< Above 0, at most 1.
  std::optional<std::uint32_t> top_k;       ///< 0 = off.
  std::optional<float> min_p;               ///< 0 … 1.
  std::optional<float> presence_penalty;    ///< −2 … 2.
  std::optional<float> frequency_penalty;   ///< −2 … 2.
  std::optional<float> repetition_penalty;  ///< Above 0.
  std::optional<std::int64_t> seed;         ///< Any.
  std::vector<std::pair<engine::TokenId, float>> logit_bias;      ///< −100 … 100 each.
  std::vector<engine::TokenId> allowed_token_ids;                 ///< Empty = all.
  std::vector<std::vector<engine::TokenId>> bad_words_token_ids;  ///< None empty.
  std::vector<std::string> bad_words;                             ///< None empty.
  std::vector<std::string> stop;                                  ///< At most 32, none empty.
  std::vector<engine::TokenId> stop_token_ids;                    ///< Also from integer `stop`.
  bool ignore_eos = false;                                        ///< Concerns EOS only.
  bool include_stop = false;                                      ///< Keep the matched stop.
  bool skip_special_tokens = true;                                ///< Leave special tokens out.
  std::optional<bool> add_special_tokens;                         ///< Default by endpoint.
  std::optional<std::int64_t> truncate_prompt_tokens;             ///< −1 = to what fits.
  bool truncate_right = false;                                    ///< Cut the end, not the start.

  std::optional<bool> logprobs;                    ///< Completions: true when a count was given.
  std::optional<std::uint32_t> top_logprobs;       ///< Candidates per token, at most 20.
  std::optional<std::uint32_t> prompt_logprobs;    ///< Per prompt token; may be kAllCandidates.
  std::vector<engine::TokenId> logprob_token_ids;  ///< Empty = the likeliest.
  bool echo = false;                               ///< The prompt comes first.
  bool tokens_as_ids = false;                      ///< `token_id:N` for every token's text.
  bool return_token_ids = false;                   ///< Ids of prompt and output.
  NvextFields nvext_fields;                        ///< Further places of the same facts.

  std::int32_t priority = 0;                ///< Lower runs earlier.
  std::string cache_salt;                   ///< Empty = none.
  std::string session_id;                   ///< Empty = none.
  routing::RoutingConstraints constraints;  ///< Labels of workers that it requires or likes.
  routing::QueueHints queue;                ///< Its place among requests that wait for a worker.
  std::optional<std::uint32_t> expected_output;  ///< Tokens it will generate; a guess.
  std::string routing_session;  ///< From a header: names the session for routing, in place of
                                ///< `session_id`.
  std::string request_id;       ///< Names the answer; empty = made here.
  std::optional<std::uint64_t> worker_id;           ///< Pinned by the client.
  std::optional<std::uint64_t> prefill_worker_id;   ///< Likewise, for the prompt's part.
  std::optional<std::uint32_t> prefill_rank;        ///< Likewise.
  std::optional<std::uint32_t> data_parallel_rank;  ///< Pinned by the client.
  bool annotate_request_id = false;                 ///< Send the internal id as an SSE event first.
  json::Object vllm_xargs;                          ///< Extra arguments of the engine, checked.

  json::Value messages;                 ///< Chat: an array of checked messages, not empty.
  json::Value documents;                ///< Chat: an array of objects, or null.
  json::Value tools;                    ///< Chat that is tokenized: checked tools, or null.
  json::Object template_kwargs;         ///< Chat: further variables of the template.
  bool add_generation_prompt = true;    ///< Chat.
  bool continue_final_message = false;  ///< Chat.

  std::vector<Prompt> prompts;     ///< Completions: at least one; one text to be tokenized.
  bool return_token_strs = false;  ///< Tokenized: the spelling of each token as well.
};

/// Most choices of one request: prompts × n.
inline constexpr std::uint32_t kMaxChoices = 128;
/// Most stop strings, and most stop token ids in `stop`.
inline constexpr std::size_t kMaxStops = 32;
/// Most candidates per token, by number and by id.
inline constexpr std::uint32_t kMaxLogprobs = 20;
/// Most ids in `logprob_token_ids`, as engines have it.
inline constexpr std::size_t kMaxLogprobIds = 128;
/// Most ids in `stop_token_ids`.
inline constexpr std::size_t kMaxStopIds = 4096;
/// Most entries of `bad_words` and of `bad_words_token_ids`. Every choice carries them to the
/// engine.
inline constexpr std::size_t kMaxBadWords = 1024;
/// Most bytes of all `bad_words`, and most ids in all `bad_words_token_ids`.
inline constexpr std::size_t kMaxBadWordsSize = 65536;
/// Most bytes of a cache salt, in the body or in a header.
inline constexpr std::size_t kMaxSaltBytes = 4096;
/// Most taints that a request may require, and may prefer.
inline constexpr std::size_t kMaxTaints = 64;
/// Most bytes of one.
inline constexpr std::size_t kMaxTaintBytes = 256;
/// Most entries of `logit_bias`.
inline constexpr std::size_t kMaxBiases = 16384;
/// Most ids in `allowed_token_ids` × choices: each choice carries the list to the engine.
inline constexpr std::size_t kMaxAllowedIds = std::size_t{1} << 22;

/// Most bytes of `vllm_xargs` as compact JSON.
inline constexpr std::size_t kMaxXargsBytes = 65536;
/// Most strings, numbers and booleans in `vllm_xargs`, elements of arrays included.
inline constexpr std::size_t kMaxXargsValues = 16384;
/// Most of them × choices: each choice carries them to the engine.
inline constexpr std::size_t kMaxXargsTotal = std::size_t{1} << 19;

/// Parses and checks a body. Every error is the client's, names the field (`param`) and says the
/// rule.
Result<RequestBody> parse_request(observe::Endpoint endpoint, JsonReader& reader,
                                  const std::string& body, const ApiOptions& options,
                                  Purpose purpose = Purpose::Generate);

/// Which of the two a body is that may be either: a chat when it has `messages`, a completions
/// request when it has `prompt`. It is an error to have both or none.
Result<observe::Endpoint> find_endpoint(JsonReader& reader, const std::string& body);

/// Lets routing headers win over the body's `nvext`; numbers that do not parse are ignored, a
/// tenant that cannot be a cache salt is the client's mistake. `options.disable_nvext` leaves the
/// tenant's cache salt only.
Result<> apply_headers(const net::http::HeaderList& headers, const ApiOptions& options,
                       RequestBody& body);

/// Checks the tools of a chat; `tools` must be an array. The error names the place.
Result<> check_tools(const json::Value& tools);

/// Checks the messages of a chat; `messages` must be an array. The error names the place.
Result<> check_messages(json::Value& messages);

}  // namespace fairlead::api::openai
