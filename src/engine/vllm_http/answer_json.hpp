#pragma once

#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::engine::vllm_http {

/// Parses what an engine says. Python servers may write numbers that are not finite as bare words
/// (`NaN`, `-Infinity`), which JSON does not have, and numbers may be beyond a double (`1e999`):
/// both are read as null, so that one such value does not take the others away.
Result<json::Value> parse_answer(std::string_view text);

}  // namespace fairlead::engine::vllm_http
