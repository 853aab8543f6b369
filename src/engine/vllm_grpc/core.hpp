#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/client.hpp"
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
  /// Finished calls whose status is still awaited; older ones are reset.
  static constexpr std::size_t kMaxLingering = 256;

  /// `dialer` must outlive it.
  Core(net::Dialer& dialer, ClientOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// Tells the engine to drop a request, without waiting; failures are only logged.
  void abort(std::string request_id);
  /// Keeps a finished call until its status arrives, so that it is not reset for nothing.
  void linger(std::unique_ptr<GenerateCall> call);
  /// The status of a lingering call arrived. Safe on that call's stack.
  void release(GenerateCall& call);

  net::grpc::Channel channel;  ///< To the engine.
  Dialect dialect;             ///< Spoken by the engine, as far as known.
  std::string model;           ///< Served name sent in requests.
  RequestWriter writer;        ///< Writes one request at a time.
  ResponseScratch scratch;     ///< For the message being handled.

 private:
  net::Task<> send_abort(std::string request_id);
  void sweep();

  struct Lingering {
    std::unique_ptr<GenerateCall> call;
    net::TimePoint since;
  };
  std::vector<Lingering> lingering_;
  net::Timer sweep_timer_;
  net::TaskGroup aborts_;
};

}  // namespace fairlead::engine::vllm_grpc
