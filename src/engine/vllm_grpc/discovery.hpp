#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/vllm_grpc/dialect.hpp"

namespace fairlead::engine::vllm_grpc {

/// The serialized answers of a server's discovery calls. Empty messages are what servers without
/// the call count as.
struct DiscoveryAnswers {
  bool has_model_info = false;   ///< The server knows GetModelInfo.
  bool has_server_info = false;  ///< The server knows GetServerInfo.
  std::string model_info;        ///< `vllm.ModelInfo`.
  std::string server_info;       ///< `vllm.ServerInfo`.
  std::string kv_event_sources;  ///< `vllm.GetKvEventSourcesResponse`.
};

/// What the answers say, checked: names, ranks and sizes must make sense. Errors are
/// EngineProtocol. KV event sources that cannot be used are left out, all of them, with the reason
/// in `warnings`; hosts in them stay as the engine reports them.
Result<EngineInfo> read_discovery(const DiscoveryAnswers& answers, Dialect dialect,
                                  std::vector<std::string>& warnings);

/// Fills in the adapters that `answer`, a `vllm.ListLorasResponse`, lists. Blank and repeated names
/// are left out. Errors are EngineProtocol.
Result<> read_loras(const std::string& answer, EngineInfo& info);

/// The dialect of a server that has `vllm.Inference`, from its answers.
Dialect dialect_of_answers(const DiscoveryAnswers& answers);

}  // namespace fairlead::engine::vllm_grpc
