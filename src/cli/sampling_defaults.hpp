#pragma once

#include "base/error.hpp"
#include "base/json.hpp"
#include "chat/model_files.hpp"

namespace fairlead::cli {

/// Lets the members of `--default-sampling-params`, or of a card's defaults, win over what is
/// there; those of `extra_args` one by one. Null changes nothing. Errors name the member and the
/// rule.
Result<> overlay_sampling(const json::Value& params, chat::SamplingDefaults& defaults);

}  // namespace fairlead::cli
