#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "engine/client.hpp"

namespace fairlead::engine::sglang_grpc {

/// Fills in where the engine publishes KV events, one source per rank, from what GetServerInfo
/// says: its descriptor `kv_events`, else the list `kv_event_sources`, else the flag's text
/// `kv_events_config`. Hosts stay as reported, wildcards too. Sources that cannot be used are left
/// out, all of them, with the reason in `warnings`. `info` has its block size and ranks.
void read_event_sources(const json::Value& server, EngineInfo& info,
                        std::vector<std::string>& warnings);

}  // namespace fairlead::engine::sglang_grpc
