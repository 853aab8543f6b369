#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "api/openai/request_parser.hpp"

namespace fairlead::api::openai {
namespace {

TEST(ApiDocumentation, NamesEveryFieldOfRequests) {
  std::ifstream file(FAIRLEAD_SOURCE_DIR "/docs/api.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(page.empty());
  for (const RequestParser::Field& field : RequestParser::fields()) {
    EXPECT_NE(page.find("`" + std::string(field.name) + "`"), std::string::npos)
        << field.name << " is not in docs/api.md";
  }
}

}  // namespace
}  // namespace fairlead::api::openai
