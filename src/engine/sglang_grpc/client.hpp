#pragma once

#include <memory>

#include "engine/client.hpp"

namespace fairlead::engine::sglang_grpc {

/// A client of SGLang's native gRPC interface, `sglang.runtime.v1`, of every release that has it.
std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, const ClientOptions& options);

}  // namespace fairlead::engine::sglang_grpc
