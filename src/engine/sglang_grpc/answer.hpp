#pragma once

#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "engine/request.hpp"

namespace fairlead::engine::sglang_grpc {

/// What is read of one `sglang.runtime.v1.GenerateResponse`. The values of `meta_info` are JSON
/// texts inside the message; empty = the key is absent.
struct Answer {
  std::vector<TokenId> ids;         ///< `output_ids`.
  bool finished = false;            ///< The terminal message.
  std::string_view finish_reason;   ///< `finish_reason`; `null` before the end.
  std::string_view output_tokens;   ///< `completion_tokens`, a running total.
  std::string_view cached_tokens;   ///< `cached_tokens`.
  std::string_view token_logprobs;  ///< `output_token_logprobs`.
  std::string_view top_logprobs;    ///< `output_top_logprobs`.
  std::string_view input_logprobs;  ///< `input_token_logprobs`.
  std::string_view input_top;       ///< `input_top_logprobs`.
};

/// Reads a message into `out`, without protobuf's map, which would be built and thrown away for
/// every token. Fields and keys that are not used are skipped. Errors, EngineProtocol, are those of
/// protobuf's own parser and negative ids.
Result<> read_answer(std::string_view message, Answer& out);

}  // namespace fairlead::engine::sglang_grpc
