#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "engine/request.hpp"

namespace fairlead::serving {

/// Why a generation cannot go on on another engine, or empty when it can: the tokens so far become
/// its prompt there, and this is exact only if nothing but the tokens before decides on the next
/// one. The words complete "requests with ...". docs/failures.md lists the rows.
std::string_view migration_obstacle(const engine::GenerateRequest& request);

/// What is left to generate after `delivered` tokens that were appended to the prompt. False when
/// nothing is.
bool reduce(engine::StopConditions& stop, std::uint32_t delivered);

}  // namespace fairlead::serving
