#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/request.hpp"

namespace fairlead::engine::vllm_http {

/// Reads the common event of a stream, new ids and nothing else to report: one choice with index 0,
/// no finish reason, no log-probabilities, no error. `total` is `usage.completion_tokens` where
/// given. False leaves the event to the full parser; what is accepted means the same to it. Works
/// without allocating once `ids` has grown.
bool decode_token_event(std::string_view event, std::vector<TokenId>& ids,
                        std::optional<std::uint32_t>& total);

}  // namespace fairlead::engine::vllm_http
