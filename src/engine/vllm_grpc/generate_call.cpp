#include "engine/vllm_grpc/generate_call.hpp"

#include <utility>

namespace fairlead::engine::vllm_grpc {

GenerateCall::GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink)
    : GrpcCall(core, sink, request.request_id), core_(core), translator_(request) {}

Result<> GenerateCall::start(const GenerateRequest& request) {
  const Result<std::string_view> message = core_.writer.write(request, core_.dialect, core_.model);
  if (!message) {
    return std::unexpected(message.error());
  }
  if (core_.dialect == Dialect::Unknown) {
    undecided_ = std::make_unique<GenerateRequest>(request);
  }
  send(generate_stream_path(core_.dialect), request_metadata(request), *message);
  core_.writer.trim();
  return {};
}

Result<> GenerateCall::feed(std::string_view message, TokenSink& sink) {
  return translator_.feed(core_.scratch, message, sink);
}

void GenerateCall::release() { core_.lingering.release(*this); }

/// Sends the request to `vllm.Generate` when it is not known that the server has `vllm.Inference`.
bool GenerateCall::retry_unimplemented() {
  if (!undecided_) {
    // The server was replaced by another generation: find out anew with the next request.
    core_.dialect = Dialect::Unknown;
    return false;
  }
  const std::unique_ptr<GenerateRequest> request = std::move(undecided_);
  const Result<std::string_view> message =
      core_.writer.write(*request, Dialect::Generate, core_.model);
  if (!message) {
    fail_stream(message.error());
    return true;
  }
  core_.dialect = Dialect::Generate;
  send(generate_stream_path(Dialect::Generate), {}, *message);
  core_.writer.trim();
  return true;
}

}  // namespace fairlead::engine::vllm_grpc
