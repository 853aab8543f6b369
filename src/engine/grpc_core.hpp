#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "engine/client.hpp"
#include "net/grpc.hpp"
#include "net/task_group.hpp"

namespace fairlead::engine {

/// What the calls of one client of a gRPC engine share. Outlives its calls.
class GrpcCore {
 public:
  /// Aborts that wait for their answer; more than these are not sent, the reset stream alone must
  /// do.
  static constexpr std::size_t kMaxAborts = 1024;

  /// `dialer` must outlive it.
  GrpcCore(net::Dialer& dialer, const ClientOptions& options);
  virtual ~GrpcCore() = default;
  GrpcCore(const GrpcCore&) = delete;
  GrpcCore& operator=(const GrpcCore&) = delete;

  /// Tells the engine to drop a request, without waiting; failures are only logged.
  void abort(const std::string& request_id);

  net::grpc::Channel channel;  ///< To the engine.

 protected:
  /// A call that drops a request on the engine.
  struct AbortCall {
    std::string_view path;  ///< Its method; a literal.
    std::string message;    ///< Its request.
  };
  /// The call for this request; nothing when the engine has none.
  virtual std::optional<AbortCall> abort_call(const std::string& request_id) const = 0;

 private:
  net::Task<> send_abort(AbortCall call, std::string request_id);
  net::TaskGroup aborts_;
};

}  // namespace fairlead::engine
