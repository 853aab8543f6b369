#include "engine/grpc_status.hpp"

#include <fmt/format.h>

namespace fairlead::engine {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

ErrorCode server_code(StatusCode code) {
  switch (code) {
    // Not found is the model, which was chosen because this engine had it: it has changed.
    case StatusCode::NotFound:
    case StatusCode::Unavailable: return ErrorCode::EngineUnreachable;
    case StatusCode::DeadlineExceeded: return ErrorCode::EngineConnectTimeout;
    case StatusCode::ResourceExhausted: return ErrorCode::EngineExhausted;
    case StatusCode::Cancelled: return ErrorCode::EngineCancelled;
    case StatusCode::InvalidArgument:
    case StatusCode::OutOfRange:
    case StatusCode::FailedPrecondition:
    case StatusCode::AlreadyExists: return ErrorCode::EngineRejected;
    default: return ErrorCode::EngineUnknown;
  }
}

ErrorCode error_code(const Status& status) {
  const bool late = status.code == StatusCode::DeadlineExceeded;
  switch (status.origin) {
    case Status::Origin::Server: return server_code(status.code);
    case Status::Origin::Connect:
      // Exhausted: too many calls of this very process wait for a connection.
      return late                                           ? ErrorCode::EngineConnectTimeout
             : status.code == StatusCode::ResourceExhausted ? ErrorCode::EngineExhausted
                                                            : ErrorCode::EngineUnreachable;
    case Status::Origin::Connection: return ErrorCode::EngineDisconnected;
    case Status::Origin::Client:
      if (late) {
        return ErrorCode::EngineConnectTimeout;
      }
      // What is left is a message that this side could not read or take.
      return status.code == StatusCode::Cancelled ? ErrorCode::EngineCancelled
                                                  : ErrorCode::EngineProtocol;
  }
  return ErrorCode::EngineUnknown;
}

}  // namespace

Error status_error(std::string_view rpc, const Status& status) {
  return Error{error_code(status),
               fmt::format("{}: {} ({})", rpc, status.message, net::grpc::status_name(status.code)),
               {}};
}

}  // namespace fairlead::engine
