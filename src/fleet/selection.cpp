#include "fleet/selection.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fleet/readiness.hpp"

namespace fairlead::fleet {
namespace {

using engine::CapabilitySet;

/// A set that could take the request, and how many of its workers could.
struct Eligible {
  const std::shared_ptr<const WorkerSet>* set;
  std::size_t weight;
};

std::size_t usable_workers(const Model& model, const WorkerSet& set, const SelectRequest& request) {
  return static_cast<std::size_t>(
      std::ranges::count_if(set.workers, [&](const std::shared_ptr<const Worker>& worker) {
        return worker->healthy && worker->has_adapter(model.lora_name) &&
               worker->has_taints(request.required_taints) &&
               (!request.worker_id || *request.worker_id == worker->id);
      }));
}

std::vector<Eligible> eligible_sets(const Model& model, const SelectRequest& request) {
  std::vector<Eligible> out;
  for (const auto& set : model.worker_sets) {
    if (set->role == Role::Prefill) {
      continue;
    }
    const std::size_t weight = usable_workers(model, *set, request);
    if (weight > 0 && namespace_ready(model, set->name_space)) {
      out.push_back({&set, weight});
    }
  }
  return out;
}

/// Which of `required` some committed member lacks. The adapter decides who may get the request at
/// all, so workers without it are not asked whether they know adapters.
CapabilitySet lacking(const WorkerSet& set, const std::string& lora_name, CapabilitySet required) {
  CapabilitySet out;
  for (const auto& worker : set.workers) {
    CapabilitySet asked = required;
    if (!worker->has_adapter(lora_name)) {
      asked.remove(engine::Capability::Lora);
    }
    out = out.with(asked.without(worker->capabilities));
  }
  return out;
}

/// What some member of any of the model's sets has.
CapabilitySet somewhere(const Model& model) {
  CapabilitySet out;
  for (const auto& set : model.worker_sets) {
    for (const auto& worker : set->workers) {
      out = out.with(worker->capabilities);
    }
  }
  return out;
}

/// What a request may find lacking on its way: at the set or at a prefill peer.
CapabilitySet lacking_on_the_way(const Model& model, const WorkerSet& set, CapabilitySet required) {
  CapabilitySet own = required;
  if (prefill_peers(model, set)) {
    own.remove(engine::Capability::PromptLogprobs);  // its peers compute the prompt
  }
  CapabilitySet out = lacking(set, model.lora_name, own);
  for (const auto& peer : model.worker_sets) {
    if (peer->role == Role::Prefill && peer->name_space == set.name_space) {
      out = out.with(lacking(*peer, model.lora_name, required));
    }
  }
  return out;
}

std::unexpected<Error> refusal(const Model& model, CapabilitySet required, CapabilitySet missing) {
  const CapabilitySet nowhere = required.without(somewhere(model));
  if (!nowhere.empty()) {
    return fail(ErrorCode::CapabilityUnsupported,
                fmt::format("The model `{}` does not support: {}", model.name,
                            engine::capability_names(nowhere)),
                std::string(engine::capability_field(nowhere)));
  }
  return fail(ErrorCode::CapabilityUnavailable,
              fmt::format("Not all workers of the model `{}` that could get the request support: "
                          "{}",
                          model.name, engine::capability_names(missing)),
              std::string(engine::capability_field(missing)));
}

// Why no set is eligible.
std::unexpected<Error> nobody(const Model& model, const SelectRequest& request) {
  SelectRequest untainted = request;
  untainted.required_taints = {};
  if (!request.required_taints.empty() && !eligible_sets(model, untainted).empty()) {
    return fail(ErrorCode::TaintsUnmatched,
                fmt::format("{} has the required taint{} `{}`",
                            request.worker_id
                                ? fmt::format("The worker {} is not one that", *request.worker_id)
                                : fmt::format("No worker of the model `{}`", model.name),
                            request.required_taints.size() == 1 ? "" : "s",
                            fmt::join(request.required_taints, "`, `")),
                "nvext.routing_constraints.required_taints");
  }
  return fail(ErrorCode::NoWorkers,
              request.worker_id ? fmt::format("worker {} is not in routing of model `{}`",
                                              *request.worker_id, model.name)
                                : fmt::format("model `{}` has no usable workers", model.name));
}

}  // namespace

Result<std::shared_ptr<const WorkerSet>> select_worker_set(const Model& model,
                                                           const SelectRequest& request,
                                                           std::uint64_t draw) {
  std::vector<Eligible> eligible = eligible_sets(model, request);
  if (eligible.empty()) {
    return nobody(model, request);
  }
  if (request.enforce && !request.required.empty()) {
    CapabilitySet missing;
    std::erase_if(eligible, [&](const Eligible& candidate) {
      const CapabilitySet lacks = lacking_on_the_way(model, **candidate.set, request.required);
      missing = missing.with(lacks);
      return !lacks.empty();
    });
    if (eligible.empty()) {
      return refusal(model, request.required, missing);
    }
  }
  std::size_t total = 0;
  for (const Eligible& candidate : eligible) {
    total += candidate.weight;
  }
  std::uint64_t place = draw % total;
  for (const Eligible& candidate : eligible) {
    if (place < candidate.weight) {
      return *candidate.set;
    }
    place -= candidate.weight;
  }
  return *eligible.back().set;
}

std::shared_ptr<const WorkerSet> prefill_peers(const Model& model, const WorkerSet& set) {
  if (set.role != Role::Decode) {
    return nullptr;
  }
  const auto found = std::ranges::find_if(model.worker_sets, [&](const auto& peer) {
    return peer->role == Role::Prefill && peer->name_space == set.name_space &&
           peer->healthy_with(model.lora_name) > 0;
  });
  return found == model.worker_sets.end() ? nullptr : *found;
}

}  // namespace fairlead::fleet
