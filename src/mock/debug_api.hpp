#pragma once

#include <functional>

#include "mock/engine_state.hpp"
#include "net/http.hpp"

namespace fairlead::mock {

/// What the debug port can ask of the engine.
struct DebugActions {
  std::function<Result<>(std::vector<Fault>)> set_faults;  ///< Replaces the faults.
  std::function<bool()> reset_prefix_cache;                ///< False when requests run.
};

/// The debug port: `GET /debug/state`, `GET /debug/requests`, `GET /debug/kv`, `GET` and `POST
/// /debug/fault` with
/// `{"faults": ["KIND:ARG", ...]}`, `POST /debug/reset_prefix_cache`. The state must outlive the
/// handler.
net::http::Handler make_debug_handler(const EngineState& state, DebugActions actions);

/// The error body of the debug port.
std::string debug_error(std::string_view message);

}  // namespace fairlead::mock
