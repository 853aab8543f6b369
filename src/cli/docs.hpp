#pragma once

#include <string>

namespace fairlead::cli {

/// docs/configuration.md, generated from the option tables.
std::string configuration_page();

}  // namespace fairlead::cli
