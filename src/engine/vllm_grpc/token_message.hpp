#pragma once

#include <string_view>
#include <vector>

#include "engine/request.hpp"

namespace fairlead::engine::vllm_grpc {

/// Decodes the message of ordinary steps, `{outputs: {num_tokens: N, token_ids: [N ids]}}` with
/// fields in order and nothing else, into `ids`. False when the message is anything else, well
/// formed or not: protobuf decides then, and `ids` is unspecified.
bool decode_token_message(std::string_view message, std::vector<TokenId>& ids);

}  // namespace fairlead::engine::vllm_grpc
