#pragma once

#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "fleet/endpoint.hpp"

namespace fairlead::fleet {

/// An engine as operators write it: `URL`, or `BACKEND=URL`.
struct EngineAddress {
  std::optional<engine::Backend> backend;  ///< When it was named.
  Endpoint endpoint;                       ///< Where the engine listens.
};

/// The engine family of a name. Errors are `InvalidRequest` and say whether the name is unknown or
/// not supported yet, and what to choose.
Result<engine::Backend> parse_backend(std::string_view name);

/// Parses `URL` or `BACKEND=URL`; errors as of `parse_backend` and `parse_endpoint`.
Result<EngineAddress> parse_engine_address(std::string_view text);

}  // namespace fairlead::fleet
