#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "fleet/endpoint.hpp"
#include "net/reactor.hpp"

namespace fairlead::fleet {

/// What `fairlead probe` prints: one line of JSON with the worker id, the endpoint and everything
/// the engine reports, ZMQ hosts replaced.
std::string probe_json(const Endpoint& endpoint, engine::EngineInfo info);

/// Probes an engine once, in a reactor of its own; blocks for at most `timeout`. The result is
/// `probe_json`; errors name the endpoint and say what to look at.
Result<std::string> probe_engine(std::string_view url, engine::Backend backend,
                                 net::Duration timeout);

}  // namespace fairlead::fleet
