#include "engine/sglang_grpc/core.hpp"

#include "engine/sglang_grpc/generate_call.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {

Core::Core(net::Dialer& dialer, const ClientOptions& options)
    : GrpcCore(dialer, options), dialect(dialect_from_text(options.dialect)) {}

Core::~Core() = default;

/// Requests without an id have one that only the engine knows; their reset stream must do.
std::optional<GrpcCore::AbortCall> Core::abort_call(const std::string& request_id) const {
  if (request_id.empty()) {
    return std::nullopt;
  }
  ::sglang::runtime::v1::AbortRequest request;
  request.set_rid(request_id);
  return AbortCall{"/sglang.runtime.v1.SglangService/Abort", request.SerializeAsString()};
}

}  // namespace fairlead::engine::sglang_grpc
