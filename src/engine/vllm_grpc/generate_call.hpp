#pragma once

#include <memory>
#include <string_view>

#include "engine/client.hpp"
#include "engine/grpc_call.hpp"
#include "engine/vllm_grpc/core.hpp"
#include "engine/vllm_grpc/response.hpp"

namespace fairlead::engine::vllm_grpc {

/// One GenerateStream call.
class GenerateCall final : public GrpcCall {
 public:
  /// All must outlive it; the sink only until the call is finished.
  GenerateCall(Core& core, const GenerateRequest& request, TokenSink& sink);

  /// Sends the request. Errors say what is wrong with it; nothing was sent then.
  Result<> start(const GenerateRequest& request);

 private:
  Result<> feed(std::string_view message, TokenSink& sink) override;
  bool finished() const override { return translator_.finished(); }
  bool started() const override { return translator_.started(); }
  std::string_view rpc() const override { return "GenerateStream"; }
  bool retry_unimplemented() override;
  void release() override;

  Core& core_;
  ResponseTranslator translator_;
  // Kept only while the dialect is unknown: the request may have to be sent to the older service.
  std::unique_ptr<GenerateRequest> undecided_;
};

}  // namespace fairlead::engine::vllm_grpc
