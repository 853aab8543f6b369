#include "fleet/fleet.hpp"

#include <algorithm>

#include "fleet/readiness.hpp"

namespace fairlead::fleet {
namespace {

/// True for hosts that mean the machine that says so; without one that of the endpoint is meant.
bool is_local(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::" || host == "*" || host == "localhost" ||
         host == "::1" || host.starts_with("127.");
}

}  // namespace

void replace_wildcard_hosts(engine::EngineInfo& info, std::string_view authority_host) {
  for (engine::KvEventSource& source : info.kv_event_sources) {
    source.endpoint = replace_wildcard_host(source.endpoint, authority_host);
    source.replay_endpoint = replace_wildcard_host(source.replay_endpoint, authority_host);
  }
  if (info.bootstrap_port != 0 && is_local(info.bootstrap_host)) {
    const bool bracketed = authority_host.starts_with('[') && authority_host.ends_with(']');
    info.bootstrap_host =
        bracketed ? authority_host.substr(1, authority_host.size() - 2) : authority_host;
  }
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::Aggregated: return "Aggregated";
    case Role::Prefill: return "Prefill";
    case Role::Decode: return "Decode";
  }
  return "Aggregated";
}

engine::ClientOptions Worker::client_options() const {
  engine::ClientOptions options;
  options.backend = backend;
  options.authority = endpoint.authority;
  options.addresses = addresses;
  options.dialect = info.dialect;
  options.model = info.served_model_name;
  return options;
}

bool Worker::has_adapter(std::string_view lora_name) const {
  return lora_name.empty() || std::ranges::binary_search(adapters, lora_name);
}

bool Worker::has_taint(std::string_view taint) const {
  return std::ranges::binary_search(taints, taint);
}

bool Worker::has_taints(std::span<const std::string> all) const {
  return std::ranges::all_of(all, [this](const std::string& taint) { return has_taint(taint); });
}

const Worker* WorkerSet::in_slot(std::size_t slot) const {
  const auto found = std::ranges::lower_bound(
      workers, slot, {}, [](const std::shared_ptr<const Worker>& worker) { return worker->slot; });
  return found != workers.end() && (*found)->slot == slot ? found->get() : nullptr;
}

std::size_t WorkerSet::healthy() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      workers, [](const std::shared_ptr<const Worker>& worker) { return worker->healthy; }));
}

std::size_t WorkerSet::healthy_with(std::string_view lora_name) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(workers, [&](const std::shared_ptr<const Worker>& worker) {
        return worker->healthy && worker->has_adapter(lora_name);
      }));
}

const WorkerSet* Model::set(Role role) const {
  for (const std::shared_ptr<const WorkerSet>& set : worker_sets) {
    if (set->role == role) {
      return set.get();
    }
  }
  return nullptr;
}

const WorkerSet* Model::serving_set() const {
  const WorkerSet* decode = set(Role::Decode);
  return decode ? decode : set(Role::Aggregated);
}

bool Model::ready() const {
  return std::ranges::any_of(worker_sets, [&](const std::shared_ptr<const WorkerSet>& set) {
    return set->role != Role::Prefill && set->healthy_with(lora_name) > 0 &&
           namespace_ready(*this, set->name_space);
  });
}

std::shared_ptr<const Model> Fleet::find(std::string_view name) const {
  for (const std::shared_ptr<const Model>& model : models) {
    if (model->name == name) {
      return model;
    }
  }
  for (const std::shared_ptr<const Model>& model : models) {
    if (std::ranges::find(model->aliases, name) != model->aliases.end()) {
      return model;
    }
  }
  return nullptr;
}

std::shared_ptr<const Worker> Fleet::worker(WorkerId id) const {
  for (const std::shared_ptr<const Model>& model : models) {
    for (const std::shared_ptr<const WorkerSet>& set : model->worker_sets) {
      for (const std::shared_ptr<const Worker>& candidate : set->workers) {
        if (candidate->id == id) {
          return candidate;
        }
      }
    }
  }
  return nullptr;
}

}  // namespace fairlead::fleet
