#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.hpp"

// Reads what is needed here of a server's /metrics, the text format of Prometheus.

namespace fairlead::engine::vllm_http {

/// A whole decimal number of 32 bits.
std::optional<std::uint32_t> parse_number(std::string_view text);

/// What the metrics tell about the engines behind a server.
struct MetricFacts {
  std::map<std::uint32_t, std::uint32_t> block_sizes;  ///< By rank; 0 = not told.
  std::uint64_t blocks = 0;                            ///< Of one rank.
  std::string started;                                 ///< Of the process.
};

/// Reads the facts that do not change while the process lives.
MetricFacts read_metrics(std::string_view text);

/// Reads how full the ranks' KV caches are. Ranks with a value that is no number are left out; one
/// outside of 0 to 1 counts as the nearer end. At most 4096 ranks.
std::vector<KvUsage> read_kv_usage(std::string_view text);

}  // namespace fairlead::engine::vllm_http
