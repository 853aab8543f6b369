#include "engine/sglang_grpc/generate_call.hpp"

#include "engine/sglang_grpc/status.hpp"

namespace fairlead::engine::sglang_grpc {

GenerateCall::GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink)
    : GrpcCall(core, sink, request.request_id),
      core_(core),
      translator_(request, core.dialect.output) {}

Result<> GenerateCall::start(const GenerateRequest& request) {
  const Result<std::string_view> message = core_.writer.write(request, core_.dialect);
  if (!message) {
    return std::unexpected(message.error());
  }
  send("/sglang.runtime.v1.SglangService/Generate", {}, *message);
  core_.writer.trim();
  return {};
}

Result<> GenerateCall::feed(std::string_view message, TokenSink& sink) {
  return translator_.feed(core_.scratch, message, sink);
}

Error GenerateCall::end_error(const net::grpc::Status& status) const {
  return generate_error(status);
}

void GenerateCall::release() { core_.lingering.release(*this); }

}  // namespace fairlead::engine::sglang_grpc
