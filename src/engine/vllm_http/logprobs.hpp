#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/client.hpp"
#include "engine/vllm_http/answer_split.hpp"

namespace fairlead::engine::vllm_http {

/// Reads `{content: [...]}` of one message, which must have an entry for each of `ids`, and fills
/// `out` from the entry of `ids[from]` on. An entry is `{token_id, logprob, rank, top_logprobs}`;
/// before 0.32.0 it is `{token: "token_id:<id>", logprob, top_logprobs}`. Candidates are what
/// `output` asks for: the requested ids in their order (without ranks, which are positions then),
/// or the most likely ones, most likely first. An entry that is null, not finite or of another
/// token is a placeholder; a list that is absent or of another length is EngineProtocol.
Result<> read_token_logprobs(const json::Value* logprobs, std::span<const TokenId> ids,
                             std::size_t from, const OutputOptions& output,
                             std::vector<TokenLogprob>& out);

/// The same of a whole answer, from the elements of `content`, one at a time.
Result<> read_answer_logprobs(std::optional<ArrayText> entries, std::span<const TokenId> ids,
                              const OutputOptions& output, std::vector<TokenLogprob>& out);

/// Reads `prompt_logprobs`, one map from id to `{logprob, rank}` per prompt token; the first token
/// has none. Otherwise as above.
Result<> read_prompt_logprobs(std::optional<ArrayText> entries, std::span<const TokenId> prompt,
                              std::uint32_t count, std::vector<TokenLogprob>& out);

}  // namespace fairlead::engine::vllm_http
