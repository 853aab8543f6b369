#pragma once

#include <string>
#include <string_view>

#include "fleet/fleet.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// True when a request for the model could be served now: a healthy worker, and its files loaded.
bool is_servable(const serving::Service& service, const fleet::Model& model);

/// True when at least one model is servable.
bool any_servable(const serving::Service& service);

/// The body of `/v1/models`: the servable models and their aliases, in order of registration.
std::string models_body(const serving::Service& service);

/// The body of `/v1/models/{id}`; `name` is the model's name or alias.
std::string model_body(const serving::Service& service, const fleet::Model& model,
                       std::string_view name);

/// The body of `/v1/models/{id}/ready`.
std::string model_ready_body(const serving::Service& service, const fleet::Model& model);

/// The body of `/health`.
std::string health_body(const serving::Service& service);

}  // namespace fairlead::api::openai
