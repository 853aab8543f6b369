#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/request.hpp"

namespace fairlead::fleet {

/// What a canary generates. By default one token behind one token, with no sampling value at all:
/// there are models that refuse any temperature.
struct CanaryPayload {
  std::vector<engine::TokenId> token_ids;  ///< Prompt; empty = the model's BOS, or 1.
  engine::SamplingParams sampling;         ///< `unset` when no value was given.
  engine::StopConditions stop;             ///< One token unless said otherwise.
  json::Value extra_args;                  ///< Object or null; see GenerateRequest::extra_args.

  CanaryPayload();
};

/// Reads a payload:
/// `{"token_ids": [1], "sampling_options": {…}, "stop_conditions": {"max_tokens": 1, …}}`, every
/// member optional, null = not given. As soon as one sampling value is given all are sent, the
/// others neutral. Errors name the member; unknown ones are errors.
Result<CanaryPayload> parse_canary_payload(std::string_view text);

}  // namespace fairlead::fleet
