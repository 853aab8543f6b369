#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kv/approximate_index.hpp"
#include "kv/hashes.hpp"
#include "kv/index.hpp"
#include "routing/kv_route.hpp"
#include "routing/kv_truth.hpp"

namespace fairlead::kv {
class CheckpointGiver;
}

namespace fairlead::routing {

/// How what is known of one target's cache is come by.
enum class TargetState : std::uint8_t {
  Connecting,   ///< Its events are not there yet.
  Replaying,    ///< History, or a gap, is being fetched.
  Live,         ///< The view follows the engine's events.
  NoEvents,     ///< The engine has announced nothing so far.
  Stale,        ///< Its events cannot be followed.
  Distrusted,   ///< They can, but what they say was wrong persistently.
  Approximate,  ///< It has no events: what was routed to it lately counts as cached.
  kCount,
};

/// Name for metrics, `/health` and documents.
std::string_view target_state_name(TargetState state);

/// The indexes of one worker set. Any thread; see the members.
struct KvCaches {
  /// Empty ones.
  KvCaches(kv::HashParams how, const kv::IndexOptions& index_options,
           const kv::ApproximateIndexOptions& routed_options,
           const kv::ApproximateIndexOptions& predicted_options)
      : params(how),
        index(index_options),
        routed(routed_options),
        predicted(predicted_options),
        predicts(predicted_options.ttl.count() > 0) {}

  const kv::HashParams params;     ///< How prompts are cut and hashed.
  kv::KvIndex index;               ///< From events.
  kv::ApproximateIndex routed;     ///< What was routed to targets without usable events.
  kv::ApproximateIndex predicted;  ///< What was routed lately to targets with events.
  const bool predicts;             ///< The latter is in use.
  KvTruth truth;                   ///< How good all of it was.
};

/// What is known of the caches of one worker set at one moment. Immutable but for the caches.
struct KvSetView {
  std::shared_ptr<KvCaches> caches;  ///< Never null.
  std::vector<TargetPlace> places;   ///< By TargetId; ids not in use have worker 0.
  std::vector<TargetState> states;   ///< By TargetId.
  /// By TargetId; null for targets without events.
  std::vector<std::shared_ptr<const kv::CheckpointGiver>> checkpoints;
  std::vector<kv::TargetId> by_ref;  ///< Ids in use, by worker and rank.
  bool degraded = false;             ///< Some target is Connecting, Stale or Distrusted.

  /// The id of a target, if the view has it.
  std::optional<kv::TargetId> find(TargetRef target) const;
  /// The ids of a worker's targets, by rank.
  std::span<const kv::TargetId> of_worker(std::uint64_t worker_id) const;
  /// True when a target's events tell what it has cached.
  bool follows_events(kv::TargetId id) const {
    return states[id] == TargetState::Live || states[id] == TargetState::Replaying;
  }
};

/// All worker sets with known block sizes, by their id.
using KvViewMap = std::unordered_map<std::uint64_t, std::shared_ptr<const KvSetView>>;

}  // namespace fairlead::routing
