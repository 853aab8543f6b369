#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "engine/capability.hpp"
#include "fleet/fleet.hpp"

namespace fairlead::fleet {

/// What the choice of a worker set may depend on.
struct SelectRequest {
  engine::CapabilitySet required;     ///< What the request cannot do without.
  std::optional<WorkerId> worker_id;  ///< Named by the client: only its set comes into question.
  std::span<const std::string> required_taints = {};  ///< Only workers that have all of them count.
  bool enforce = true;  ///< False lets capabilities be; for tests of what then happens.
};

/// The worker set that a request to the model goes to, by the model's snapshot alone. Of a model
/// that is an adapter only workers that have the adapter count, and those with the required taints.
///
/// Eligible are the sets that answer requests, have a healthy worker (the named one) and lie in a
/// ready namespace. Of these a set qualifies when every committed member has what is required, well
/// or not, and so have all members of the prefill sets in its namespace: any of them may get the
/// request. Several: drawn by `draw`, 64 random bits, with the healthy workers as weights.
///
/// Errors: NoWorkers when no set is eligible, TaintsUnmatched when that is for the taints.
/// CapabilityUnsupported when no worker of the model has
/// a capability, CapabilityUnavailable when some have it but no set qualifies; both name the
/// capabilities, the model and the request's field.
Result<std::shared_ptr<const WorkerSet>> select_worker_set(const Model& model,
                                                           const SelectRequest& request,
                                                           std::uint64_t draw);

/// The prefill workers that a decode set's requests go to first: the live set of that role in its
/// namespace, if the model's adapter is there. Null for other sets, and when there is none.
std::shared_ptr<const WorkerSet> prefill_peers(const Model& model, const WorkerSet& set);

}  // namespace fairlead::fleet
