#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fleet/fleet.hpp"

namespace fairlead::fleet {

/// What readiness is decided from: the worker sets of one model in one namespace.
struct ReadinessUnit {
  Role role = Role::Aggregated;          ///< Of the set.
  std::size_t live = 0;                  ///< Its healthy workers.
  std::vector<std::vector<Role>> needs;  ///< Peer roles: any of the lists.
  bool dispensable = false;              ///< Being dead it does not make its role a missing one.
};

/// Whether a namespace can serve, and why not.
struct Readiness {
  bool ready = false;           ///< Some worker lives and no role is missing.
  std::vector<Role> present;    ///< Roles with a live unit, in the order of the enumeration.
  std::vector<Role> missing;    ///< Roles that are registered or needed by a live unit, and dead.
  std::vector<Role> ambiguous;  ///< Roles other than aggregated with several live units. For
                                ///< people only: it does not prevent readiness.
};

/// Decides for these units. Needs of dead units do not count.
Readiness readiness(std::span<const ReadinessUnit> units);

/// Decides for the model's worker sets in a namespace.
Readiness namespace_readiness(const Model& model, std::string_view name_space);

/// `namespace_readiness(model, name_space).ready`, for every request: allocates nothing.
bool namespace_ready(const Model& model, std::string_view name_space);

}  // namespace fairlead::fleet
