#include "engine/vllm_grpc/dialect.hpp"

#include <gtest/gtest.h>

namespace fairlead::engine::vllm_grpc {
namespace {

TEST(Dialects, NamesReadBack) {
  for (const Dialect dialect : {Dialect::Generate, Dialect::InferenceEarly, Dialect::Inference}) {
    EXPECT_EQ(dialect_from_name(dialect_name(dialect)), dialect);
  }
  EXPECT_EQ(dialect_from_name(""), Dialect::Unknown);
  EXPECT_EQ(dialect_from_name("sglang"), Dialect::Unknown);
  EXPECT_EQ(dialect_name(Dialect::Unknown), "");
}

TEST(Dialects, ExplicitZerosCameWith0_32) {
  EXPECT_EQ(dialect_of_version("0.32.0", ""), Dialect::Inference);
  EXPECT_EQ(dialect_of_version("v0.33.1rc2.dev5", ""), Dialect::Inference);
  EXPECT_EQ(dialect_of_version("1.0.0", ""), Dialect::Inference);
  EXPECT_EQ(dialect_of_version("0.28.0", ""), Dialect::InferenceEarly);
  EXPECT_EQ(dialect_of_version("0.31.9", ""), Dialect::InferenceEarly);
  // A 0.33 server may stand before an older engine, whose version it reports.
  EXPECT_EQ(dialect_of_version("0.28.0", "0.6.0"), Dialect::Inference);
}

TEST(Dialects, UnreadableVersionsCountAsEarly) {
  for (const char* version : {"", "dev", "0", "0.", "0.x", "0-32", "99999999999999999999.1"}) {
    EXPECT_EQ(dialect_of_version(version, ""), Dialect::InferenceEarly) << version;
  }
}

TEST(Dialects, OnlyTheSingleServiceHasNoControl) {
  EXPECT_FALSE(has_control(Dialect::Generate));
  EXPECT_TRUE(has_control(Dialect::InferenceEarly));
  EXPECT_TRUE(has_control(Dialect::Inference));
  EXPECT_EQ(generate_stream_path(Dialect::Generate), "/vllm.Generate/GenerateStream");
  EXPECT_EQ(generate_stream_path(Dialect::Unknown), "/vllm.Inference/GenerateStream");
}

}  // namespace
}  // namespace fairlead::engine::vllm_grpc
