#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fleet/fleet.hpp"

namespace fairlead::fleet {

/// What is known of one engine that the operator named.
struct Member {
  Endpoint endpoint;                                ///< Where it is.
  WorkerId id = 0;                                  ///< Of the endpoint.
  engine::Backend backend = engine::Backend::Vllm;  ///< Which wire.
  bool prefill = false;                             ///< Named in the prefill list.
  std::size_t slot = 0;                             ///< Place in its list.
  std::optional<engine::EngineInfo> info;           ///< Last probe; absent before the first.
  std::vector<net::Address> addresses;              ///< Resolved.
  std::uint64_t incarnation = 0;                    ///< See Worker.
  bool up = false;                                  ///< Answers; may be given requests.
  std::string exclusion;  ///< Why it is left out though it answers; empty if not.
};

/// Builds snapshots of a fleet of one model out of its members. Pure but for what it must remember
/// between snapshots: which model is served, since when, and the ids of its worker sets.
class FleetBuilder {
 public:
  /// `model_name` replaces the engines' public names unless it is empty. Slots are below the given
  /// counts. With prefill members the others are Decode, otherwise Aggregated.
  FleetBuilder(std::string model_name, std::size_t engines, std::size_t prefill_engines);

  /// The snapshot of these members; fills their `exclusion`. The engines that answer must agree on
  /// model id, served name and KV block size (unknown values agree with any): the first to serve
  /// decides for as long as one like it is up, and the ones that differ are left out. When none
  /// like it is up, the next one that is, in order, decides anew.
  std::shared_ptr<const Fleet> build(std::span<Member* const> members, std::int64_t unix_seconds);

 private:
  /// What all engines of the fleet share.
  struct Identity {
    std::string model_id;
    std::string served_name;
    std::uint32_t kv_block_size = 0;
  };

  std::string difference(const engine::EngineInfo& info) const;
  void adopt(const engine::EngineInfo& info, std::int64_t unix_seconds);
  void learn(const engine::EngineInfo& info);
  void choose_identity(std::span<Member* const> members, std::int64_t unix_seconds);
  std::shared_ptr<const Model> build_model(std::span<Member* const> members) const;
  std::shared_ptr<const WorkerSet> build_set(std::span<Member* const> members, bool prefill) const;

  std::string model_name_;
  std::size_t engines_;
  std::size_t prefill_engines_;
  std::optional<Identity> identity_;
  std::int64_t created_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t registrations_ = 0;
};

}  // namespace fairlead::fleet
