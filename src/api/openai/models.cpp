#include "api/openai/models.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fleet/readiness.hpp"

namespace fairlead::api::openai {
namespace {

void write_model(json::Writer& writer, const serving::Service& service, const fleet::Model& model,
                 std::string_view name) {
  std::uint32_t context = model.context_length;
  if (const auto assets = service.assets(model); assets && assets->context_length > 0) {
    context = context == 0 ? assets->context_length : std::min(context, assets->context_length);
  }
  writer.begin_object().key("id").string(name).key("object").string("model");
  writer.key("created").integer(model.created).key("owned_by").string("fairlead");
  const bool adapter = !model.base_name.empty();
  const std::string& root = adapter ? model.source_path : model.model_id;
  writer.key("root").string(root.empty() ? model.name : root).key("parent");
  adapter ? writer.string(model.base_name) : writer.null();
  writer.key("max_model_len");
  context == 0 ? writer.null() : writer.unsigned_integer(context);
  writer.end_object();
}

void write_worker_sets(json::Writer& writer, const fleet::Model& model) {
  writer.key("worker_sets").begin_array();
  for (const auto& set : model.worker_sets) {
    writer.begin_object().key("role").string(fleet::role_name(set->role));
    writer.key("workers").unsigned_integer(set->workers.size());
    writer.key("healthy_workers").unsigned_integer(set->healthy()).end_object();
  }
  writer.end_array();
}

/// As in cards.
std::string_view role_key(fleet::Role role) {
  switch (role) {
    case fleet::Role::Aggregated: return "aggregated";
    case fleet::Role::Prefill: return "prefill";
    case fleet::Role::Decode: return "decode";
  }
  return "aggregated";
}

std::vector<std::string_view> sorted_keys(const std::vector<fleet::Role>& roles) {
  std::vector<std::string_view> out;
  out.reserve(roles.size());
  for (const fleet::Role role : roles) {
    out.push_back(role_key(role));
  }
  std::ranges::sort(out);
  return out;
}

void write_roles(json::Writer& writer, std::string_view key,
                 const std::vector<fleet::Role>& roles) {
  writer.key(key).begin_array();
  for (const std::string_view name : sorted_keys(roles)) {
    writer.string(name);
  }
  writer.end_array();
}

/// For people: what is missing, or what keeps prefill and decode sets from being paired.
std::string reason_of(const fleet::Readiness& readiness) {
  const std::vector<fleet::Role>& roles =
      readiness.missing.empty() ? readiness.ambiguous : readiness.missing;
  return roles.empty() ? std::string()
                       : fmt::format("{} worker types: {}",
                                     readiness.missing.empty() ? "ambiguous" : "missing",
                                     fmt::join(sorted_keys(roles), ", "));
}

void write_worker_types(json::Writer& writer, const fleet::Model& model,
                        std::string_view name_space) {
  std::map<std::string_view, std::vector<const fleet::WorkerSet*>> by_role;
  for (const auto& set : model.worker_sets) {
    if (set->name_space == name_space) {
      by_role[role_key(set->role)].push_back(set.get());
    }
  }
  writer.key("worker_types").begin_object();
  for (const auto& [role, sets] : by_role) {
    std::size_t workers = 0;
    for (const fleet::WorkerSet* set : sets) {
      workers += set->healthy_with(model.lora_name);
    }
    writer.key(role).begin_object().key("workers").unsigned_integer(workers);
    writer.key("needs").begin_array();
    for (const std::vector<fleet::Role>& peers : sets.front()->needs) {
      writer.begin_array();
      for (const std::string_view peer : sorted_keys(peers)) {
        writer.string(peer);
      }
      writer.end_array();
    }
    writer.end_array().end_object();
  }
  writer.end_object();
}

/// Whether each namespace has all the roles it needs.
void write_namespaces(json::Writer& writer, const fleet::Model& model) {
  std::set<std::string_view> names;
  for (const auto& set : model.worker_sets) {
    names.insert(set->name_space);
  }
  writer.key("namespaces").begin_object();
  for (const std::string_view name : names) {
    const fleet::Readiness readiness = fleet::namespace_readiness(model, name);
    writer.key(name).begin_object().key("ready").boolean(readiness.ready);
    if (const std::string reason = reason_of(readiness); !reason.empty()) {
      writer.key("reason").string(reason);
    }
    write_worker_types(writer, model, name);
    write_roles(writer, "present", readiness.present);
    write_roles(writer, "missing_worker_types", readiness.missing);
    writer.end_object();
  }
  writer.end_object();
}

/// In kv mode, what is known of the caches of a worker's ranks; nothing in other modes.
void write_kv_views(json::Writer& writer, const serving::Service& service,
                    const fleet::WorkerSet& set, const fleet::Worker& worker) {
  if (!service.routes_by_kv()) {
    return;
  }
  writer.key("kv_views").begin_array();
  if (const auto view = service.kv_view(set.id)) {
    for (const kv::TargetId id : view->of_worker(worker.id)) {
      writer.begin_object().key("dp_rank").unsigned_integer(view->places[id].rank);
      writer.key("state").string(routing::target_state_name(view->states[id])).end_object();
    }
  }
  writer.end_array();
}

}  // namespace

bool is_servable(const serving::Service& service, const fleet::Model& model) {
  return model.ready() && service.assets(model) != nullptr;
}

bool any_servable(const serving::Service& service) {
  return std::ranges::any_of(service.fleet()->models,
                             [&](const auto& model) { return is_servable(service, *model); });
}

std::string models_body(const serving::Service& service) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object().key("object").string("list").key("data").begin_array();
  for (const auto& model : service.fleet()->models) {
    if (!is_servable(service, *model)) {
      continue;
    }
    write_model(writer, service, *model, model->name);
    for (const std::string& alias : model->aliases) {
      write_model(writer, service, *model, alias);
    }
  }
  writer.end_array().end_object();
  return out;
}

std::string model_body(const serving::Service& service, const fleet::Model& model,
                       std::string_view name) {
  std::string out;
  json::Writer writer(out);
  write_model(writer, service, model, name);
  return out;
}

std::string model_ready_body(const serving::Service& service, const fleet::Model& model) {
  std::string out;
  json::Writer writer(out);
  writer.begin_object().key("id").string(model.name).key("ready");
  writer.boolean(is_servable(service, model)).key("files_loaded");
  writer.boolean(service.assets(model) != nullptr);
  write_worker_sets(writer, model);
  write_namespaces(writer, model);
  writer.end_object();
  return out;
}

std::string health_body(const serving::Service& service) {
  std::string out;
  json::Writer writer(out);
  const bool draining = service.draining();
  writer.begin_object().key("status").string(draining ? "shutting_down" : "healthy");
  writer.key("message");
  writer.string(draining                ? "The server is shutting down"
                : any_servable(service) ? "At least one model can be served"
                                        : "No model can be served yet");
  std::set<std::string_view> endpoints;
  for (const auto& model : service.fleet()->models) {
    for (const auto& set : model->worker_sets) {
      for (const auto& worker : set->workers) {
        endpoints.insert(worker->endpoint.url);
      }
    }
  }
  writer.key("endpoints").begin_array();
  for (const std::string_view endpoint : endpoints) {
    writer.string(endpoint);
  }
  writer.end_array().key("instances").begin_array();
  for (const auto& model : service.fleet()->models) {
    if (!model->base_name.empty()) {
      continue;  // its workers are its base's
    }
    for (const auto& set : model->worker_sets) {
      for (const auto& worker : set->workers) {
        writer.begin_object().key("worker_id").unsigned_integer(worker->id);
        writer.key("model").string(model->name);
        writer.key("role").string(fleet::role_name(set->role));
        writer.key("endpoint").string(worker->endpoint.url);
        writer.key("healthy").boolean(worker->healthy);
        writer.key("circuit").string(fleet::circuit_name(worker->circuit));
        writer.key("taints").begin_array();
        for (const std::string& taint : worker->taints) {
          writer.string(taint);
        }
        writer.end_array();
        write_kv_views(writer, service, *set, *worker);
        writer.end_object();
      }
    }
  }
  writer.end_array().key("models").begin_array();
  for (const auto& model : service.fleet()->models) {
    writer.begin_object().key("id").string(model->name);
    writer.key("ready").boolean(is_servable(service, *model)).end_object();
  }
  writer.end_array().end_object();
  return out;
}

}  // namespace fairlead::api::openai
