#pragma once

#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::engine::vllm_http {

/// The failure that an answer with a status other than 200 means. `call` names the request in the
/// message; `body` is vLLM's `{"error": {...}}`, or anything.
Error status_error(std::string_view call, int status, std::string_view body);

/// The failure that an error object inside a stream means: its `code` is an HTTP status, or a word
/// on servers before vllm-rs 0.33.0.
Error stream_error(std::string_view call, const json::Value& error);

/// The `message` of an error body, or the beginning of a body of another form.
std::string error_message(std::string_view body);

}  // namespace fairlead::engine::vllm_http
