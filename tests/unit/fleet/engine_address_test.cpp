#include "fleet/engine_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fairlead::fleet {
namespace {

using engine::Backend;
using ::testing::HasSubstr;

TEST(EngineAddress, MayNameItsBackend) {
  const auto plain = parse_engine_address(" http://h:1/ ");
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  EXPECT_FALSE(plain->backend.has_value());
  EXPECT_EQ(plain->endpoint.url, "http://h:1");
  EXPECT_EQ(parse_engine_address("vllm=grpc://h:1")->backend, Backend::Vllm);
  EXPECT_EQ(parse_engine_address("vllm-http=http://h:1")->backend, Backend::VllmHttp);
  EXPECT_EQ(parse_engine_address("vllm-http=http://h:1")->endpoint.url, "http://h:1");
  EXPECT_EQ(parse_engine_address("sglang=h:1")->backend, Backend::Sglang);
}

TEST(EngineAddress, MistakesSayWhatToChoose) {
  EXPECT_EQ(parse_engine_address("openai-http=h:1").error().message,
            "backend `openai-http` is not supported yet; choose `vllm`, `vllm-http` or `sglang`");
  EXPECT_EQ(parse_engine_address("=h:1").error().message,
            "backend `` is unknown; choose `vllm`, `vllm-http` or `sglang`");
  EXPECT_THAT(parse_engine_address("vllm=").error().message, HasSubstr("engine endpoint ``"));
  EXPECT_THAT(parse_engine_address("http://h:1?a=b").error().message, HasSubstr("query"));
}

}  // namespace
}  // namespace fairlead::fleet
