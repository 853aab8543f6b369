#include "engine/grpc_status.hpp"

#include <gtest/gtest.h>

#include <map>

namespace fairlead::engine {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

TEST(StatusErrors, ServerCodesFollowTheTable) {
  using enum StatusCode;
  const std::map<StatusCode, ErrorCode> table{
      {Unavailable, ErrorCode::EngineUnreachable},
      {DeadlineExceeded, ErrorCode::EngineConnectTimeout},
      {ResourceExhausted, ErrorCode::EngineExhausted},
      {Cancelled, ErrorCode::EngineCancelled},
      {InvalidArgument, ErrorCode::EngineRejected},
      {NotFound, ErrorCode::EngineUnreachable},
      {OutOfRange, ErrorCode::EngineRejected},
      {FailedPrecondition, ErrorCode::EngineRejected},
      {AlreadyExists, ErrorCode::EngineRejected},
      {Unknown, ErrorCode::EngineUnknown},
      {PermissionDenied, ErrorCode::EngineUnknown},
      {Aborted, ErrorCode::EngineUnknown},
      {Unimplemented, ErrorCode::EngineUnknown},
      {Internal, ErrorCode::EngineUnknown},
      {DataLoss, ErrorCode::EngineUnknown},
      {Unauthenticated, ErrorCode::EngineUnknown},
  };
  EXPECT_EQ(table.size(), 16U);
  for (const auto& [code, expected] : table) {
    EXPECT_EQ(status_error("Generate", {code, "x", Status::Origin::Server}).code, expected)
        << net::grpc::status_name(code);
  }
}

TEST(StatusErrors, BrokenConnectionsCountAgainstTheWorkerWhateverTheCode) {
  for (const StatusCode code : {StatusCode::Unavailable, StatusCode::Unknown, StatusCode::Internal,
                                StatusCode::Cancelled}) {
    const Error connect = status_error("Generate", {code, "x", Status::Origin::Connect});
    EXPECT_EQ(connect.code, ErrorCode::EngineUnreachable);
    const Error broken = status_error("Generate", {code, "x", Status::Origin::Connection});
    EXPECT_EQ(broken.code, ErrorCode::EngineDisconnected);
    EXPECT_TRUE(traits(connect.code).worker_down && traits(broken.code).worker_down);
  }
}

TEST(StatusErrors, TimeoutsAndUnreadableAnswersAreToldApart) {
  const auto client = [](StatusCode code) {
    return status_error("Generate", {code, "x", Status::Origin::Client}).code;
  };
  EXPECT_EQ(client(StatusCode::DeadlineExceeded), ErrorCode::EngineConnectTimeout);
  EXPECT_EQ(client(StatusCode::ResourceExhausted), ErrorCode::EngineProtocol);
  EXPECT_EQ(client(StatusCode::Internal), ErrorCode::EngineProtocol);
  EXPECT_EQ(client(StatusCode::Cancelled), ErrorCode::EngineCancelled);
  EXPECT_EQ(status_error("x", {StatusCode::DeadlineExceeded, "x", Status::Origin::Connect}).code,
            ErrorCode::EngineConnectTimeout);
  EXPECT_EQ(status_error("x", {StatusCode::ResourceExhausted, "x", Status::Origin::Connect}).code,
            ErrorCode::EngineExhausted);
}

TEST(StatusErrors, TheMessageNamesRpcTextAndCode) {
  EXPECT_EQ(status_error("GenerateStream",
                         {StatusCode::NotFound, "model `nope` not found", Status::Origin::Server})
                .message,
            "GenerateStream: model `nope` not found (NOT_FOUND)");
}

}  // namespace
}  // namespace fairlead::engine
