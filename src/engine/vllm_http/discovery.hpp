#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/vllm_http/dialect.hpp"

namespace fairlead::engine::vllm_http {

/// Bodies of a server's answers to the discovery requests; empty where it has no such route.
struct DiscoveryAnswers {
  std::string version;           ///< GET /version.
  std::string models;            ///< GET /v1/models.
  std::string kv_event_sources;  ///< GET /kv_event_sources.
  std::string metrics;           ///< GET /metrics.
};

/// Whose server it is, which its answers say by themselves. The fields that it takes are found out
/// by asking; see field_probe.hpp.
Dialect dialect_of_answers(const DiscoveryAnswers& answers);

/// Puts the facts together. Errors are EngineProtocol; what could not be used becomes a warning.
Result<EngineInfo> read_discovery(const DiscoveryAnswers& answers, const Dialect& dialect);

}  // namespace fairlead::engine::vllm_http
