#pragma once

#include "cli/settings.hpp"

namespace fairlead::cli {

/// `fairlead config check|docs`: checks serve's options and prints what is in force, or prints
/// docs/configuration.md.
int run_config(const Settings& settings);

/// `fairlead version`.
int run_version(const Settings& settings);

}  // namespace fairlead::cli
