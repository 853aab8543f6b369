#include "engine/vllm_http/status.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fairlead::engine::vllm_http {
namespace {

TEST(VllmHttpStatus, ClassesAreThoseOfTheGrpcStatuses) {
  const std::pair<int, ErrorCode> cases[] = {
      {400, ErrorCode::EngineRejected},       {404, ErrorCode::EngineUnreachable},
      {413, ErrorCode::EngineRejected},       {422, ErrorCode::EngineRejected},
      {401, ErrorCode::EngineUnreachable},    {403, ErrorCode::EngineUnreachable},
      {408, ErrorCode::EngineConnectTimeout}, {429, ErrorCode::EngineExhausted},
      {499, ErrorCode::EngineCancelled},      {500, ErrorCode::EngineUnknown},
      {501, ErrorCode::EngineUnknown},        {502, ErrorCode::EngineUnreachable},
      {503, ErrorCode::EngineUnreachable},    {504, ErrorCode::EngineConnectTimeout},
      {204, ErrorCode::EngineProtocol},       {302, ErrorCode::EngineProtocol},
      {405, ErrorCode::EngineProtocol},
  };
  for (const auto& [status, code] : cases) {
    const Error error = status_error("generate", status, R"({"error":{"message":"words"}})");
    EXPECT_EQ(error.code, code) << status;
    EXPECT_EQ(error.message, "generate: words (status " + std::to_string(status) + ")");
  }
}

TEST(VllmHttpStatus, AMissingRouteIsNoMissingModel) {
  for (const char* body : {"", R"({"detail":"Not Found"})", "<html>"}) {
    EXPECT_EQ(status_error("generate", 404, body).code, ErrorCode::EngineProtocol) << body;
  }
  EXPECT_EQ(status_error("generate", 404, "").message, "generate: status 404");
}

TEST(VllmHttpStatus, MessagesAreOneBoundedLine) {
  EXPECT_EQ(error_message(R"({"error":{"message":"a\n b"}})"), "a  b");
  EXPECT_EQ(error_message(R"({"detail":"why"})"), "why");
  EXPECT_EQ(error_message("plain\r\ntext"), "plain  text");
  EXPECT_EQ(error_message(std::string(5000, 'x')).size(), 200U);
  EXPECT_EQ(error_message(R"({"error":"text"})"), R"({"error":"text"})");
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
