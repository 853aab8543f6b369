#pragma once

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/model_files.hpp"

namespace fairlead::cli {

/// Lets the members of `--default-sampling-params` win over a model's own defaults; null changes
/// nothing. Errors name the member and the rule.
Result<> overlay_sampling(const json::Value& params, chat::SamplingDefaults& defaults);

}  // namespace fairlead::cli
