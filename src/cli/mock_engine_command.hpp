#pragma once

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "mock/options.hpp"

namespace fairlead::cli {

/// The engine's options as the command line gives them. Errors are wrong usage.
Result<mock::MockOptions> mock_options(const Settings& settings);

}  // namespace fairlead::cli
