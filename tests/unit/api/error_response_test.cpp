#include "api/error_response.hpp"

#include <gtest/gtest.h>

#include "api/testing.hpp"
#include "base/json.hpp"

namespace fairlead::api {
namespace {

TEST(ErrorResponse, ClientMistakesNameTheField) {
  FakeExchange exchange;
  respond_error(exchange, {ErrorCode::InvalidRequest, "`n` \"bad\"", "n"}, {});
  EXPECT_EQ(exchange.status, 400);
  EXPECT_EQ(exchange.body,
            R"({"error":{"message":"`n` \"bad\"","type":"invalid_request_error","param":"n",)"
            R"("code":"invalid_request"}})");
  EXPECT_FALSE(exchange.headers.find("retry-after").has_value());
}

TEST(ErrorResponse, EveryCodeGivesANestedEnvelopeWithAStringCode) {
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const auto code = static_cast<ErrorCode>(i);
    FakeExchange exchange;
    respond_error(exchange, {code, "text", {}}, {});
    EXPECT_EQ(exchange.status, traits(code).http_status);
    const auto body = json::parse(exchange.body);
    ASSERT_TRUE(body.has_value()) << exchange.body;
    const json::Value* error = body->find("error");
    ASSERT_NE(error, nullptr);
    EXPECT_NE(error->find("message")->as_string(), nullptr);
    EXPECT_NE(error->find("type")->as_string(), nullptr);
    EXPECT_TRUE(error->find("param")->is_null());
    EXPECT_TRUE(error->find("code")->is_null() || error->find("code")->as_string());
  }
}

TEST(ErrorResponse, OverloadTakesTheConfiguredStatus) {
  const ApiOptions options{.overload_status = 529, .retry_after = 7};
  for (const ErrorCode code : {ErrorCode::Overloaded, ErrorCode::EngineExhausted}) {
    FakeExchange exchange;
    respond_error(exchange, {code, "x", {}}, options);
    EXPECT_EQ(exchange.status, 529);
    EXPECT_EQ(exchange.headers.find("retry-after"), "7");
  }
  FakeExchange queue;
  respond_error(queue, {ErrorCode::QueueFull, "x", {}}, options);
  EXPECT_EQ(queue.status, 429);
  EXPECT_EQ(queue.headers.find("retry-after"), "7");
  FakeExchange down;
  respond_error(down, {ErrorCode::NoWorkers, "x", {}}, options);
  EXPECT_EQ(down.status, 503);
  EXPECT_EQ(down.headers.find("retry-after"), "7");
  FakeExchange capability;
  respond_error(capability, {ErrorCode::CapabilityUnavailable, "x", {}}, options);
  EXPECT_EQ(capability.status, 503);
  EXPECT_FALSE(capability.headers.find("retry-after").has_value());
}

TEST(ErrorResponse, DrainingClosesTheConnection) {
  FakeExchange exchange;
  respond_error(exchange, {ErrorCode::Draining, "draining", {}}, {});
  EXPECT_EQ(exchange.status, 503);
  EXPECT_EQ(exchange.headers.find("connection"), "close");
  EXPECT_EQ(exchange.headers.find("retry-after"), "1");
}

TEST(ErrorResponse, EngineTextStaysPrivateUnlessTheRequestIsBlamed) {
  std::string out;
  append_error(out, {ErrorCode::EngineUnknown, "stack trace", {}});
  EXPECT_EQ(out.find("stack trace"), std::string::npos);
  out.clear();
  append_error(out, {ErrorCode::EngineRejected, "top_k is odd", {}});
  EXPECT_NE(out.find("top_k is odd"), std::string::npos);
}

TEST(ErrorResponse, TheServersOwnRefusalsLookTheSame) {
  EXPECT_EQ(server_error_body(413, "too big"),
            R"({"error":{"message":"too big","type":"invalid_request_error","param":null,)"
            R"("code":"request_too_large"}})");
  EXPECT_NE(server_error_body(503, "no room").find(R"("code":"overloaded")"), std::string::npos);
  for (const int status : {400, 408, 413, 431, 500, 503}) {
    EXPECT_TRUE(json::parse(server_error_body(status, "x")).has_value());
  }
}

}  // namespace
}  // namespace fairlead::api
