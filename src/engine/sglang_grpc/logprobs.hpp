#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "engine/client.hpp"

namespace fairlead::engine::sglang_grpc {

/// Two parallel lists of `meta_info`, as texts: the tokens' own log-probabilities, each
/// `[logprob, id, text]`, and the most likely ones at each position, each a list of such or null.
struct LogprobLists {
  std::string_view tokens;  ///< `…_token_logprobs`.
  std::string_view top;     ///< `…_top_logprobs`; empty = none were asked for.
};

/// Fills `out` for `ids`, the new ones of `total` so far. A list of `total` entries repeats what
/// came before, one of as many as there are new ids does not: which of both an engine sends does
/// not depend on its mode alone. At most `candidates` are taken of each position. An entry that is
/// null, not finite or of another token is a placeholder; lists that are absent or of another
/// length are EngineProtocol.
Result<> read_output_logprobs(const LogprobLists& lists, std::span<const TokenId> ids,
                              std::size_t total, std::uint32_t candidates,
                              std::vector<TokenLogprob>& out);

/// The same for the prompt's tokens, the first of which has none; older engines leave it out.
Result<> read_prompt_logprobs(const LogprobLists& lists, std::span<const TokenId> prompt,
                              std::uint32_t candidates, std::vector<TokenLogprob>& out);

}  // namespace fairlead::engine::sglang_grpc
