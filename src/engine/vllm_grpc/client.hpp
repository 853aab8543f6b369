#pragma once

#include <memory>

#include "engine/client.hpp"

namespace fairlead::engine::vllm_grpc {

/// A client of vLLM's own gRPC interface, either generation of it.
std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, const ClientOptions& options);

}  // namespace fairlead::engine::vllm_grpc
