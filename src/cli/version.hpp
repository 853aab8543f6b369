#pragma once

#include <string_view>

namespace fairlead::cli {

/// Version of the program.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace fairlead::cli
