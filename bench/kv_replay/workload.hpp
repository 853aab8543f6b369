#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "kv/hashes.hpp"

// What a fleet of engines with prefix caches does with a request trace, as calls of a KV index.

namespace fairlead::kv_replay {

/// One line of a trace.
struct Request {
  double time_ms = 0;                 ///< Arrival.
  std::uint32_t output_length = 0;    ///< Tokens.
  std::vector<std::uint64_t> blocks;  ///< Prefix blocks; equal ids are equal content.
};

/// How engines are modelled.
struct WorkloadOptions {
  std::size_t workers = 256;       ///< Requests are dealt to them at random.
  std::size_t copies = 1;          ///< Disjoint copies of everything.
  std::size_t gpu_blocks = 16384;  ///< Of each worker's cache.
  std::uint32_t block_size = 512;  ///< Tokens of a block.
  double simulation_ms = 30'000;   ///< The trace is pressed into this time before it is simulated.
  std::uint64_t seed = 42;         ///< Of the dealing.
};

/// One call: a look-up, a store or a removal.
struct Operation {
  enum class Kind : std::uint8_t { Find, Store, Remove };
  double time_ms = 0;                      ///< When, in simulated time.
  std::uint32_t order = 0;                 ///< Among the worker's of the same time.
  Kind kind = Kind::Find;                  ///< Which of the fields count.
  std::uint32_t worker = 0;                ///< Whose.
  std::vector<kv::LocalHash> prompt{};     ///< Find.
  std::optional<kv::EngineHash> parent{};  ///< Store.
  std::vector<kv::StoredBlock> stored{};   ///< Store.
  std::vector<kv::EngineHash> removed{};   ///< Remove.
};

/// Reads JSON lines as the Mooncake traces have them.
Result<std::vector<Request>> read_trace(std::istream& in);

/// Every worker's operations, each list in the order of time; copies follow one another.
std::vector<std::vector<Operation>> make_workload(const std::vector<Request>& trace,
                                                  const WorkloadOptions& options);

}  // namespace fairlead::kv_replay
