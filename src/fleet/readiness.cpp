#include "fleet/readiness.hpp"

#include <algorithm>
#include <array>

namespace fairlead::fleet {
namespace {

constexpr std::array<Role, 3> kRoles{Role::Aggregated, Role::Prefill, Role::Decode};

bool has(const std::vector<Role>& roles, Role role) {
  return std::ranges::find(roles, role) != roles.end();
}

/// True when a list of peers is wholly there, or when there is none to choose from.
bool covered(const ReadinessUnit& unit, const std::vector<Role>& present) {
  const auto all_present = [&](const std::vector<Role>& peers) {
    return std::ranges::all_of(peers, [&](Role role) { return has(present, role); });
  };
  return unit.needs.empty() || std::ranges::any_of(unit.needs, all_present);
}

bool is_missing(Role role, std::span<const ReadinessUnit> units, const std::vector<Role>& present) {
  if (has(present, role)) {
    return false;
  }
  return std::ranges::any_of(units, [&](const ReadinessUnit& unit) {
    return (unit.role == role && !unit.dispensable) ||
           (unit.live > 0 && !covered(unit, present) &&
            std::ranges::any_of(unit.needs, [&](const auto& peers) { return has(peers, role); }));
  });
}

}  // namespace

Readiness readiness(std::span<const ReadinessUnit> units) {
  Readiness out;
  for (const Role role : kRoles) {
    const auto live = std::ranges::count_if(
        units, [&](const ReadinessUnit& unit) { return unit.role == role && unit.live > 0; });
    if (live > 0) {
      out.present.push_back(role);
    }
    if (live > 1 && role != Role::Aggregated) {
      out.ambiguous.push_back(role);
    }
  }
  for (const Role role : kRoles) {
    if (is_missing(role, units, out.present)) {
      out.missing.push_back(role);
    }
  }
  out.ready = !out.present.empty() && out.missing.empty();
  return out;
}

Readiness namespace_readiness(const Model& model, std::string_view name_space) {
  std::vector<ReadinessUnit> units;
  for (const auto& set : model.worker_sets) {
    if (set->name_space == name_space) {
      units.push_back({set->role, set->healthy(), set->needs, set->dispensable});
    }
  }
  return readiness(units);
}

bool namespace_ready(const Model& model, std::string_view name_space) {
  unsigned wanted = 0;
  unsigned present = 0;
  const auto bit = [](Role role) { return 1U << static_cast<unsigned>(role); };
  for (const auto& set : model.worker_sets) {
    if (set->name_space == name_space) {
      wanted |= set->dispensable ? 0 : bit(set->role);
      present |= set->healthy() > 0 ? bit(set->role) : 0;
    }
  }
  if (present == 0 || (wanted & ~present) != 0) {
    return false;
  }
  const auto all_present = [&](const std::vector<Role>& peers) {
    return std::ranges::all_of(peers, [&](Role role) { return (bit(role) & present) != 0; });
  };
  return std::ranges::all_of(model.worker_sets, [&](const auto& set) {
    return set->name_space != name_space || set->needs.empty() || set->healthy() == 0 ||
           std::ranges::any_of(set->needs, all_present);
  });
}

}  // namespace fairlead::fleet
