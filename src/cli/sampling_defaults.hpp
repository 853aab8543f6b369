#pragma once

#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/model_files.hpp"

namespace fairlead::cli {

/// Lets the members of `--default-sampling-params`, or of a card's defaults, win over what is
/// there; those of `extra_args` one by one. Null changes nothing, and neither does a wrong count of
/// log-probabilities. Other errors name the member and the rule.
Result<> overlay_sampling(const json::Value& params, chat::SamplingDefaults& defaults);

/// Removes counts of log-probabilities (`logprobs`, `prompt_logprobs`) that are none, with a
/// warning for each: requests are served without them. `origin` says where the members come from.
void drop_wrong_counts(std::string_view origin, json::Value& params);

}  // namespace fairlead::cli
