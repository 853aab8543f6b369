#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/worker.hpp"

namespace fairlead::fleet {

/// One public model and its workers. A LoRA adapter is a model of its own that shares its base's
/// worker sets.
struct Model {
  std::string name;                  ///< Public name.
  std::string base_name;             ///< Of an adapter: the base model's public name; else empty.
  std::string lora_name;             ///< Of an adapter: its name on the engines; else empty.
  std::vector<std::string> aliases;  ///< Further public names.
  std::string model_id;              ///< Path or hub id, as the engines report it.
  std::uint32_t context_length = 0;  ///< Smallest of the healthy workers' limits; 0 = unknown.
  std::uint32_t kv_block_size = 0;   ///< Tokens per KV block; 0 = unknown.
  std::int64_t created = 0;          ///< Unix seconds of the first registration.
  std::vector<std::shared_ptr<const WorkerSet>> worker_sets;  ///< One per role.

  /// The set of a role, or null.
  const WorkerSet* set(Role role) const;
  /// The set that answers requests: Decode when there is one, else Aggregated; null when neither.
  const WorkerSet* serving_set() const;
  /// True when a request could be given to a worker now.
  bool ready() const;
};

/// All models at one moment. Immutable and shared between threads through `shared_ptr<const
/// Fleet>`; replaced as a whole.
struct Fleet {
  std::uint64_t generation = 0;                      ///< Grows with every snapshot.
  std::vector<std::shared_ptr<const Model>> models;  ///< In order of registration.

  /// The model of this name or, failing that, of this alias; null when there is none.
  std::shared_ptr<const Model> find(std::string_view name) const;
  /// The worker of this id in any model, or null.
  std::shared_ptr<const Worker> worker(WorkerId id) const;
};

}  // namespace fairlead::fleet
