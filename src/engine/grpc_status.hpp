#pragma once

#include <string_view>

#include "base/error.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine {

/// The failure that a status means for routing, with the text `RPC: status text (CODE)`. What the
/// server says is mapped by its code; a connection that could not be made or broke counts against
/// the worker whatever the code.
Error status_error(std::string_view rpc, const net::grpc::Status& status);

}  // namespace fairlead::engine
