#include "base/error.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace fairlead {
namespace {

TEST(ErrorTable, EveryRowIsComplete) {
  std::set<std::string> names;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const ErrorTraits& row = traits(static_cast<ErrorCode>(i));
    EXPECT_EQ(static_cast<int>(row.code), i);
    EXPECT_TRUE(names.insert(std::string(row.name)).second) << row.name;
    EXPECT_GE(row.http_status, 400) << row.name;
    EXPECT_FALSE(row.openai_type.empty()) << row.name;
    EXPECT_FALSE(row.anthropic_type.empty()) << row.name;
    EXPECT_NE(row.public_message, !row.public_text.empty()) << row.name;
  }
}

TEST(ErrorTable, OnlyLostEnginesLeaveRouting) {
  std::set<ErrorCode> down;
  for (int i = 0; i < kErrorCodeCount; ++i) {
    const ErrorTraits& row = traits(static_cast<ErrorCode>(i));
    EXPECT_EQ(row.worker_down, row.migratable) << row.name;
    if (row.worker_down) {
      down.insert(row.code);
    }
  }
  EXPECT_EQ(down, (std::set{ErrorCode::EngineUnreachable, ErrorCode::EngineDisconnected,
                            ErrorCode::EngineConnectTimeout, ErrorCode::EngineSilent}));
}

TEST(ErrorTable, ClientMistakesAre4xx) {
  for (const ErrorCode code : {ErrorCode::InvalidRequest, ErrorCode::UnsupportedField,
                               ErrorCode::ContextLengthExceeded, ErrorCode::EngineRejected}) {
    EXPECT_EQ(traits(code).http_status, 400);
    EXPECT_EQ(traits(code).openai_type, "invalid_request_error");
  }
  EXPECT_EQ(traits(ErrorCode::ModelNotFound).http_status, 404);
}

TEST(Error, EngineTextStaysInsideUnlessTheRequestIsBlamed) {
  EXPECT_EQ((Error{ErrorCode::EngineUnknown, "secret", {}}.client_message()),
            "The engine failed while serving the request");
  EXPECT_EQ(
      (Error{ErrorCode::EngineRejected, "top_p must be in (0, 1], got 0", {}}.client_message()),
      "top_p must be in (0, 1], got 0");
}

}  // namespace
}  // namespace fairlead
