#include "routing/kv_set_view.hpp"

#include <algorithm>
#include <tuple>

namespace fairlead::routing {

std::string_view target_state_name(TargetState state) {
  switch (state) {
    case TargetState::Connecting: return "connecting";
    case TargetState::Replaying: return "replaying";
    case TargetState::Live: return "live";
    case TargetState::NoEvents: return "no_events";
    case TargetState::Stale: return "stale";
    case TargetState::Distrusted: return "distrusted";
    case TargetState::Approximate: return "approximate";
    case TargetState::kCount: break;
  }
  return "";
}

std::optional<kv::TargetId> KvSetView::find(TargetRef target) const {
  const auto key = [this](kv::TargetId id) {
    return std::tuple(places[id].worker_id, places[id].rank);
  };
  const auto wanted = std::tuple(target.worker_id, target.rank);
  const auto found = std::ranges::lower_bound(by_ref, wanted, {}, key);
  return found == by_ref.end() || key(*found) != wanted ? std::nullopt : std::optional(*found);
}

std::span<const kv::TargetId> KvSetView::of_worker(std::uint64_t worker_id) const {
  return std::ranges::equal_range(by_ref, worker_id, {},
                                  [this](kv::TargetId id) { return places[id].worker_id; });
}

}  // namespace fairlead::routing
