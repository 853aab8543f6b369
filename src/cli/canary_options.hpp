#pragma once

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "fleet/canary.hpp"

namespace fairlead::cli {

/// The options of health canaries, all but where a model's BOS comes from. Errors are wrong usage,
/// one line.
Result<fleet::CanaryOptions> canary_options(const Settings& settings);

}  // namespace fairlead::cli
