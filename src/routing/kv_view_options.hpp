#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fairlead::routing {

/// How the frontend learns what workers have cached. Kv mode only.
struct KvViewOptions {
  /// Follow the KV events of the engines that publish them. Off: approximate mode for all.
  bool events = true;
  /// Approximate mode, for targets without events: what was routed to them counts as cached for so
  /// long.
  std::chrono::milliseconds approximate_ttl = std::chrono::seconds(120);
  /// Targets with events: what was routed to them counts as cached for so long, since events come
  /// late. 0 = off.
  std::chrono::milliseconds predicted_ttl = std::chrono::seconds(5);
  /// Bytes of one worker set's index of events.
  std::size_t index_bytes = std::size_t{4} << 30U;
  /// Blocks of one worker set's index of what was routed, over all targets.
  std::size_t approximate_blocks = std::size_t{1} << 20U;
  /// Threads that receive and decode events.
  int event_threads = 2;
  /// Tokens per block; 0 = what the engines report.
  std::uint32_t block_size = 0;
};

}  // namespace fairlead::routing
