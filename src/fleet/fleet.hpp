#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "fleet/worker.hpp"

namespace fairlead::fleet {

/// One public model and its workers. A LoRA adapter is a model of its own, a view that shares its
/// base's worker sets and with them every worker's record.
struct Model {
  std::string name;                  ///< Public name.
  std::string base_name;             ///< Of an adapter: the base model's public name; else empty.
  std::string lora_name;             ///< Of an adapter: its name on the engines; else empty.
  std::vector<std::string> aliases;  ///< Further public names.
  std::string model_id;              ///< Path or hub id, as the engines report it.
  std::string source_path;           ///< Folder or hub id of its files, or of the adapter; may be
                                     ///< empty.
  json::Value default_sampling;      ///< Object or null: the cards' sampling defaults.
  std::uint32_t context_length = 0;  ///< Smallest of the healthy workers' limits; 0 = unknown.
  std::uint32_t kv_block_size = 0;   ///< Tokens per KV block; 0 = unknown.
  std::int64_t created = 0;          ///< Unix seconds of the first registration.
  std::vector<std::shared_ptr<const WorkerSet>> worker_sets;  ///< One per namespace and role.

  /// The first set of a role, or null.
  const WorkerSet* set(Role role) const;
  /// The first set that answers requests: Decode when there is one, else Aggregated; null when
  /// neither. `select_worker_set` is what requests go by.
  const WorkerSet* serving_set() const;
  /// True when a request could be given to a worker now: some namespace has every role that it
  /// needs and a healthy worker (with the adapter) that answers requests.
  bool ready() const;
  /// The name whose files serve this model: an adapter's base, else its own.
  const std::string& files_name() const { return base_name.empty() ? name : base_name; }
};

/// All models at one moment. Immutable and shared between threads through `shared_ptr<const
/// Fleet>`; replaced as a whole.
struct Fleet {
  std::uint64_t generation = 0;                      ///< Grows with every snapshot.
  std::vector<std::shared_ptr<const Model>> models;  ///< In order of registration, adapters behind
                                                     ///< all base models.

  /// The model of this name or, failing that, of this alias; null when there is none.
  std::shared_ptr<const Model> find(std::string_view name) const;
  /// The worker of this id in any model, or null.
  std::shared_ptr<const Worker> worker(WorkerId id) const;
};

}  // namespace fairlead::fleet
