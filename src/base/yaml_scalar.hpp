#pragma once

#include <string_view>

#include "base/json.hpp"

namespace fairlead::yaml {

/// What a plain scalar means by the core schema; part of `parse`.
json::Value resolve_scalar(std::string_view text);

}  // namespace fairlead::yaml
