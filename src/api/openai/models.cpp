#include "api/openai/models.hpp"

#include <algorithm>
#include <set>

#include "base/json.hpp"

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
        writer.key("healthy").boolean(worker->healthy).end_object();
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
