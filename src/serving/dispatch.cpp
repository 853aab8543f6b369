#include "serving/dispatch.hpp"

#include <fmt/format.h>

#include <utility>

namespace fairlead::serving {
namespace {

Result<> check_record(const fleet::Worker& worker, const engine::GenerateRequest& request) {
  engine::CapabilitySet missing =
      engine::required_capabilities(request).without(worker.capabilities);
  if (!worker.has_adapter(request.lora_name)) {
    missing.add(engine::Capability::Lora);
  }
  if (missing.empty()) {
    return {};
  }
  return fail(ErrorCode::CapabilityUnavailable,
              fmt::format("The worker chosen for the request does not support: {}",
                          engine::capability_names(missing)),
              std::string(engine::capability_field(missing)));
}

}  // namespace

Result<Dispatched> dispatch(Service& service, const fleet::Worker& chosen,
                            const engine::GenerateRequest& request, engine::TokenSink& sink) {
  Dispatched out;
  out.client = service.client(chosen);
  // Looked up last: whatever came between the choice and this line counts.
  const std::shared_ptr<const fleet::Worker> worker = service.worker(chosen.id);
  if (!worker) {
    return fail(ErrorCode::EngineUnreachable, fmt::format("worker {} has left", chosen.id));
  }
  if (service.options().enforce_capabilities) {
    if (Result<> checked = check_record(*worker, request); !checked) {
      return std::unexpected(std::move(checked.error()));
    }
  }
  Result<std::unique_ptr<engine::EngineStream>> opened = out.client->open(request, sink);
  if (!opened) {
    return std::unexpected(std::move(opened.error()));
  }
  out.stream = std::move(*opened);
  out.activity = fleet::Activity::Request(worker->activity, net::Reactor::current()->now());
  return out;
}

}  // namespace fairlead::serving
