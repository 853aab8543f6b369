#pragma once

#include <optional>
#include <string>

#include "engine/client.hpp"
#include "engine/grpc_core.hpp"
#include "engine/lingering_calls.hpp"
#include "engine/sglang_grpc/dialect.hpp"
#include "engine/sglang_grpc/request.hpp"
#include "engine/sglang_grpc/response.hpp"

namespace fairlead::engine::sglang_grpc {

class GenerateCall;

/// What the streams of one client share. Outlives its streams.
class Core final : public GrpcCore {
 public:
  /// `dialer` must outlive it.
  Core(net::Dialer& dialer, const ClientOptions& options);
  ~Core() override;

  Dialect dialect;                         ///< The engine's, as far as known.
  RequestWriter writer;                    ///< Writes one request at a time.
  ResponseScratch scratch;                 ///< For the message being handled.
  LingeringCalls<GenerateCall> lingering;  ///< Finished, but not yet answered to the end.

 private:
  std::optional<AbortCall> abort_call(const std::string& request_id) const override;
};

}  // namespace fairlead::engine::sglang_grpc
