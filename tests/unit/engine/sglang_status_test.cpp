#include "engine/sglang_grpc/status.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fairlead::engine::sglang_grpc {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

TEST(SglangStatus, CodesOfTheServer) {
  const auto code = [](StatusCode status) { return generate_error({status, "text"}).code; };
  EXPECT_EQ(code(StatusCode::Unavailable), ErrorCode::EngineUnreachable);
  EXPECT_EQ(code(StatusCode::DeadlineExceeded), ErrorCode::EngineConnectTimeout);
  EXPECT_EQ(code(StatusCode::ResourceExhausted), ErrorCode::EngineExhausted);
  EXPECT_EQ(code(StatusCode::Cancelled), ErrorCode::EngineCancelled);
  for (const StatusCode blamed :
       {StatusCode::InvalidArgument, StatusCode::NotFound, StatusCode::OutOfRange,
        StatusCode::FailedPrecondition, StatusCode::AlreadyExists}) {
    EXPECT_EQ(code(blamed), ErrorCode::EngineRejected);
  }
  EXPECT_EQ(code(StatusCode::Internal), ErrorCode::EngineUnknown);
  EXPECT_EQ(code(StatusCode::Unknown), ErrorCode::EngineUnknown);
}

TEST(SglangStatus, InternalErrorsAreToldApartByTheirText) {
  for (const char* blamed :
       {"temperature must be a non-negative finite number, got -1.0.",
        "min_new_tokens must be in [0, max_new_tokens(4)], got 9.", "input_ids cannot be empty.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "LoRA adapter 'nope' was requested, but LoRA is not enabled."}) {
    EXPECT_EQ(generate_error({StatusCode::Internal, blamed}).code, ErrorCode::EngineRejected)
        << blamed;
  }
  for (const char* fault :
       {"Failed to submit request: RuntimeError: Duplicate active gRPC request id: dup",
        "Failed to submit request: temperature must be fun",
        "stream closed before a terminal response", "routed_dp_rank=5 out of range [0, 1)",
        "CUDA error: the tensor must be contiguous",
        "failed to decode Protobuf message: GenerateRequest.rid: must be a string", ""}) {
    EXPECT_EQ(generate_error({StatusCode::Internal, fault}).code, ErrorCode::EngineUnknown)
        << fault;
  }
  const Error shown = generate_error({StatusCode::Internal, "top_p must be in\n(0, 1]"});
  EXPECT_EQ(shown.message, "Generate: top_p must be in (0, 1] (INTERNAL)");
}

TEST(SglangStatus, OnlyTheServersOwnTextCounts) {
  const Status broken{StatusCode::Internal, "top_p must be in (0, 1]", Status::Origin::Connection};
  EXPECT_EQ(generate_error(broken).code, ErrorCode::EngineDisconnected);
}

TEST(SglangStatus, LongTextsAreCutBetweenCharacters) {
  std::string text(4095, 'a');
  text += "é" + std::string(100, 'b');
  const Error error = generate_error({StatusCode::Internal, text});
  EXPECT_EQ(error.message, "Generate: " + std::string(4095, 'a') + "… (INTERNAL)");
}

}  // namespace
}  // namespace fairlead::engine::sglang_grpc
