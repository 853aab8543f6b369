#include "engine/vllm_http/core.hpp"

#include <utility>

#include "engine/vllm_http/generate_call.hpp"

namespace fairlead::engine::vllm_http {
namespace {

/// Every running generation has its connection: many become idle at once.
net::http::ClientLimits client_limits() {
  net::http::ClientLimits limits;
  limits.idle_connections = 256;
  return limits;
}

}  // namespace

Core::Core(net::Dialer& dialer, ClientOptions options)
    : http(dialer, std::move(options.authority), std::move(options.addresses), client_limits()),
      dialect(dialect_from_text(options.dialect)),
      model(std::move(options.model)) {}

Core::~Core() = default;

}  // namespace fairlead::engine::vllm_http
