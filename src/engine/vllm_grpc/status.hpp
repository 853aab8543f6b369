#pragma once

#include <string_view>

#include "base/error.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::vllm_grpc {

/// The failure that a status means for routing, with the text `RPC: status text (CODE)`. Codes of
/// the server follow spec/direct-mode.md 1.9; a connection that could not be made or broke counts
/// against the worker whatever its code.
Error status_error(std::string_view rpc, const net::grpc::Status& status);

}  // namespace fairlead::engine::vllm_grpc
