#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/request.hpp"
#include "engine/vllm_http/dialect.hpp"
#include "net/http_client.hpp"

namespace fairlead::engine::vllm_http {

/// The token route.
inline constexpr std::string_view kGeneratePath = "/inference/v1/generate";

/// Most ids of `logprob_token_ids`: vLLM takes 128, and one is added (see write_request).
inline constexpr std::size_t kMaxLogprobTokenIds = 127;

/// True when the answer can be streamed: streams carry neither the prompt's log-probabilities nor
/// transfer parameters.
bool is_streamed(const GenerateRequest& request);

/// The body of a request: everything the engine would fill in by itself is explicit. `model` is the
/// served name; empty = the primary. Errors: InvalidRequest, or UnsupportedField for what the
/// server cannot be told; nothing is left out silently but hints and defaults.
///
/// `logprobs` must be the number of `logprob_token_ids`, and most servers cut the list of
/// candidates to it although the sampled token takes the first place: the last id is sent twice.
Result<std::string> write_request(const GenerateRequest& request, const Dialect& dialect,
                                  std::string_view model);

/// The header fields that go with it.
net::http::HeaderList request_headers(const GenerateRequest& request);

}  // namespace fairlead::engine::vllm_http
