#pragma once

#include <string>

#include "engine/client.hpp"
#include "engine/lingering_calls.hpp"
#include "engine/vllm_grpc/dialect.hpp"
#include "engine/vllm_grpc/request.hpp"
#include "engine/vllm_grpc/response.hpp"
#include "net/grpc.hpp"
#include "net/task_group.hpp"

namespace fairlead::engine::vllm_grpc {

class GenerateCall;

/// What the streams of one client share. Outlives its streams.
class Core {
 public:
  /// Aborts that wait for their answer; more than these are not sent, the reset stream alone must
  /// do.
  static constexpr std::size_t kMaxAborts = 1024;

  /// `dialer` must outlive it.
  Core(net::Dialer& dialer, ClientOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Tells the engine to drop a request, without waiting; failures are only logged.
  void abort(std::string request_id);

  net::grpc::Channel channel;              ///< To the engine.
  Dialect dialect;                         ///< Spoken by the engine, as far as known.
  std::string model;                       ///< Served name sent in requests.
  RequestWriter writer;                    ///< Writes one request at a time.
  ResponseScratch scratch;                 ///< For the message being handled.
  LingeringCalls<GenerateCall> lingering;  ///< Finished, but not yet answered to the end.

 private:
  net::Task<> send_abort(std::string request_id);
  net::TaskGroup aborts_;
};

}  // namespace fairlead::engine::vllm_grpc
