#pragma once

#include <string_view>

#include "engine/client.hpp"
#include "engine/grpc_call.hpp"
#include "engine/sglang_grpc/core.hpp"
#include "engine/sglang_grpc/response.hpp"

namespace fairlead::engine::sglang_grpc {

/// One Generate call.
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
  std::string_view rpc() const override { return "Generate"; }
  Error end_error(const net::grpc::Status& status) const override;
  void release() override;

  Core& core_;
  ResponseTranslator translator_;
};

}  // namespace fairlead::engine::sglang_grpc
