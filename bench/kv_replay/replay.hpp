#pragma once

#include <cstdint>
#include <vector>

#include "kv_replay/workload.hpp"

namespace fairlead::kv_replay {

/// What a replay did.
struct Report {
  std::size_t finds = 0;           ///< Look-ups, each with the hashing of its chain.
  std::size_t events = 0;          ///< Stores and removals.
  std::size_t query_blocks = 0;    ///< Blocks of all prompts, found or not.
  std::size_t matched_blocks = 0;  ///< Depths of each prompt's best worker.
  std::size_t stored_blocks = 0;   ///< Of stores.
  std::size_t removed_blocks = 0;  ///< Of removals.
  std::size_t failed = 0;          ///< Stores that were not stored whole.
  std::size_t held_blocks = 0;     ///< In the index at the end.
  std::size_t index_bytes = 0;     ///< Its memory then.
  double seconds = 0;      ///< Until the last call returned: events are applied in the call.
  double cpu_seconds = 0;  ///< Of the calling threads.
  double latest_ms = 0;    ///< The furthest a call was behind its time.
  double find_p50_us = 0;  ///< Of look-ups.
  double find_p99_us = 0;  ///< Of look-ups.
};

/// Applies a workload to a new index from `threads` threads, worker by worker on one of them:
/// within `window_ms`, every call at its time, or as fast as possible when that is 0.
Report replay(const std::vector<std::vector<Operation>>& workload, std::size_t threads,
              double window_ms);

}  // namespace fairlead::kv_replay
