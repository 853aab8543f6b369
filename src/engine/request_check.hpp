#pragma once

#include "base/error.hpp"
#include "engine/request.hpp"

namespace fairlead::engine {

/// What no engine's wire could carry, whatever its version: an empty prompt, counts out of range,
/// objects that are none, connector arguments among the extra ones. Errors are InvalidRequest and
/// name the field.
Result<> check_request(const GenerateRequest& request);

}  // namespace fairlead::engine
