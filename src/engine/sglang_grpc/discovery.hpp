#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/sglang_grpc/dialect.hpp"

namespace fairlead::engine::sglang_grpc {

/// The serialized answers of an engine's discovery calls.
struct DiscoveryAnswers {
  std::string model_info;    ///< `GetModelInfoResponse`.
  std::string server_info;   ///< `GetServerInfoResponse`.
  std::string models;        ///< `ListModelsResponse`.
  std::string engine_state;  ///< `EngineStateSnapshot`; empty before 0.5.20.
};

/// What a probe finds out.
struct Discovery {
  EngineInfo info;  ///< The dialect's text included.
  Dialect dialect;  ///< For requests.
};

/// What the answers say, checked: names, ranks and sizes must make sense. Errors are
/// EngineProtocol. Hosts of KV event sources stay as the engine reports them.
Result<Discovery> read_discovery(const DiscoveryAnswers& answers);

/// How full each rank's cache is, from a `GetLoadResponse`: what is running over what there is.
/// Entries without figures are left out. Errors are EngineProtocol.
Result<std::vector<KvUsage>> read_load(const std::string& answer);

}  // namespace fairlead::engine::sglang_grpc
