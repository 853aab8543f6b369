#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/client.hpp"
#include "fleet/activity.hpp"
#include "fleet/circuit.hpp"
#include "fleet/endpoint.hpp"
#include "net/socket.hpp"

namespace fairlead::fleet {

/// Replaces the hosts that nobody but the engine's own machine can use by the engine's own: those
/// of KV event endpoints that name every interface, and that of a bootstrap server when it is not
/// told or is local.
void replace_wildcard_hosts(engine::EngineInfo& info, std::string_view authority_host);

/// What a worker does in its model's fleet.
enum class Role : std::uint8_t {
  Aggregated,  ///< Prefill and decode.
  Prefill,     ///< Prompts only; hands its KV cache on.
  Decode,      ///< Goes on from a prefill worker's KV cache.
};

/// `Aggregated`, `Prefill` or `Decode`.
std::string_view role_name(Role role);

/// One engine as routing and dispatch see it. Immutable: a change makes a new object in a new
/// snapshot.
struct Worker {
  WorkerId id = 0;                                  ///< From the endpoint only.
  Endpoint endpoint;                                ///< Where it listens.
  engine::Backend backend = engine::Backend::Vllm;  ///< Which wire.
  Role role = Role::Aggregated;                     ///< In this fleet.
  /// What requests may ask of it: what the probe found, less what its card denies. The record that
  /// selection and dispatch read; it comes and goes with the worker, in one snapshot.
  engine::CapabilitySet capabilities;
  std::size_t slot = 0;                 ///< Place in its worker set, fixed for life.
  std::string card_key;                 ///< Key of the card that named it.
  engine::EngineInfo info;              ///< From the last probe, ZMQ hosts replaced.
  std::vector<std::string> adapters;    ///< Names of its LoRA adapters as the engine knows them,
                                        ///< sorted: reported by it or by adapter cards.
  std::vector<std::string> taints;      ///< Labels that requests may require or prefer, sorted.
  std::vector<net::Address> addresses;  ///< Resolved; what reactors dial.
  std::uint64_t incarnation = 0;        ///< Another one whenever the worker leaves routing, its
                                        ///< engine process or its card changes.
  bool healthy = false;                 ///< May be given requests.
  Circuit circuit = Circuit::Closed;    ///< HalfOpen: one request at a time only.
  std::shared_ptr<Activity> activity;   ///< What requests do on it; the same through all snapshots
                                        ///< of its card. Null: nobody wants to know.

  /// What a reactor needs to make its own client of this worker. A client is made anew when the
  /// incarnation has changed; only new addresses are given to the one there is.
  engine::ClientOptions client_options() const;
  /// True when it has the adapter, or when no adapter is asked for.
  bool has_adapter(std::string_view lora_name) const;
  /// True when it has the label.
  bool has_taint(std::string_view taint) const;
  /// True when it has all of the labels.
  bool has_taints(std::span<const std::string> all) const;
  /// True when it has the data-parallel rank.
  bool has_rank(std::uint32_t rank) const {
    return rank >= info.data_parallel_start &&
           rank - info.data_parallel_start < info.data_parallel_size;
  }
};

/// The interchangeable workers of one model, namespace and role: the members of one cohort.
struct WorkerSet {
  std::uint64_t id = 0;                  ///< The same through all snapshots; key of load tables.
  std::string name_space;                ///< Deployment boundary; empty for engines named by flags.
  Role role = Role::Aggregated;          ///< Of every worker in it.
  std::string checksum;                  ///< Of its workers' cards.
  std::vector<std::vector<Role>> needs;  ///< Peer roles it cannot serve without: any of the lists.
  bool dispensable = false;              ///< Its peers may do without it.
  std::size_t slot_count = 0;            ///< Every worker's slot is below it; only grows.
  /// Every worker that was probed once, by ascending slot. Unhealthy ones stay listed, so that what
  /// is kept by slot stays valid.
  std::vector<std::shared_ptr<const Worker>> workers;

  /// The worker in a slot, or null.
  const Worker* in_slot(std::size_t slot) const;
  /// Number of healthy workers.
  std::size_t healthy() const;
  /// Number of healthy workers that have the adapter; an empty name asks for none.
  std::size_t healthy_with(std::string_view lora_name) const;
};

}  // namespace fairlead::fleet
