#include "engine/vllm_grpc/core.hpp"

#include "engine/vllm_grpc/generate_call.hpp"
#include "vllm/control.pb.h"

namespace fairlead::engine::vllm_grpc {

Core::Core(net::Dialer& dialer, const ClientOptions& options)
    : GrpcCore(dialer, options),
      dialect(dialect_from_name(options.dialect)),
      model(options.model) {}

Core::~Core() = default;

std::optional<GrpcCore::AbortCall> Core::abort_call(const std::string& request_id) const {
  if (!has_control(dialect)) {
    return std::nullopt;
  }
  ::vllm::AbortRequest request;
  request.add_request_ids(request_id);
  return AbortCall{"/vllm.Control/Abort", request.SerializeAsString()};
}

}  // namespace fairlead::engine::vllm_grpc
