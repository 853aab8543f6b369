#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mock/engine_state.hpp"

namespace fairlead::mock {

/// The `json_info` of GetModelInfo.
std::string sglang_model_info(const EngineState& state);
/// The `json_info` of GetServerInfo: those of the real one's 555 keys that a router could read.
std::string sglang_server_info(const EngineState& state);
/// The `json_info` of GetLoad; `rank` chooses one, an unknown one gives an empty list.
std::string sglang_load(const EngineState& state, std::optional<std::int32_t> rank);

}  // namespace fairlead::mock
