#pragma once

#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "engine/client.hpp"
#include "fleet/endpoint.hpp"

namespace fairlead::cli {

/// The backend of a name. Errors say whether it is unknown or not supported yet.
Result<engine::Backend> parse_backend(std::string_view origin, std::string_view name);

/// The engines that `serve` dials. Errors are wrong usage: engines without `--direct` and the
/// reverse, prefill engines alone, an unknown backend, a malformed URL, a URL named twice.
Result<std::vector<fleet::Endpoint>> select_engines(const Settings& settings);

}  // namespace fairlead::cli
