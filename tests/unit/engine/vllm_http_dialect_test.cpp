#include "engine/vllm_http/dialect.hpp"

#include <gtest/gtest.h>

#include "engine/vllm_http/field_probe.hpp"

namespace fairlead::engine::vllm_http {
namespace {

using Frontend = Dialect::Frontend;
using ArgsKey = Dialect::ArgsKey;

TEST(VllmHttpDialect, TextsReadBackEqual) {
  for (const Frontend frontend : {Frontend::Rust, Frontend::Python}) {
    for (const ArgsKey key : {ArgsKey::None, ArgsKey::ExtraArgs, ArgsKey::VllmXargs}) {
      for (unsigned bits = 0; bits < 8; ++bits) {
        const Dialect dialect{frontend, key, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        EXPECT_EQ(dialect_from_text(dialect_text(dialect)), dialect) << dialect_text(dialect);
      }
    }
  }
  EXPECT_EQ(dialect_text({Frontend::Rust, ArgsKey::VllmXargs, true, true, false}),
            "rust/vllm_xargs+logprob_token_ids+bad_words_token_ids");
}

TEST(VllmHttpDialect, WhatIsNotUnderstoodCountsAsUnknown) {
  EXPECT_EQ(dialect_text({}), "");
  for (const char* text : {"", "vllm.Inference", "go/extra_args+logit_bias", "/", "+"}) {
    EXPECT_EQ(dialect_from_text(text), Dialect{}) << text;
  }
  EXPECT_EQ(dialect_from_text("rust/other+logit_bias+more"),
            (Dialect{Frontend::Rust, ArgsKey::None, false, false, true}));
}

TEST(VllmHttpFieldProbe, ComparesRefusalsAndNotTheirWords) {
  const Refusal prompt{400, "no prompt"};
  const Refusal type{400, "a map is expected"};
  EXPECT_TRUE(field_is_taken(prompt, type, prompt));
  EXPECT_TRUE(field_is_taken(prompt, {422, "no prompt"}, prompt));
  // Ignored, forbidden, and known but never readable.
  EXPECT_FALSE(field_is_taken(prompt, prompt, prompt));
  EXPECT_FALSE(field_is_taken(prompt, {400, "unknown"}, {400, "unknown"}));
  EXPECT_FALSE(field_is_taken(prompt, type, type));
}

TEST(VllmHttpFieldProbe, RequestsHaveNoPromptAndAtMostOneToken) {
  EXPECT_EQ(empty_request(), R"({"token_ids":[],"sampling_params":{"max_tokens":1}})");
  EXPECT_EQ(empty_request("extra_args", "{}"),
            R"({"token_ids":[],"sampling_params":{"max_tokens":1,"extra_args":{}}})");
}

TEST(VllmHttpFieldProbe, TheFirstKeyOfExtraArgumentsIsKept) {
  Dialect dialect;
  set_field(dialect, "extra_args");
  set_field(dialect, "vllm_xargs");
  EXPECT_EQ(dialect.args_key, ArgsKey::ExtraArgs);
  Dialect older;
  for (const ProbedField& field : probed_fields()) {
    if (field.name != "extra_args") {
      set_field(older, field.name);
    }
  }
  EXPECT_EQ(older, (Dialect{Frontend::Unknown, ArgsKey::VllmXargs, true, true, true}));
}

TEST(VllmHttpFieldProbe, AssumptionsFollowTheServer) {
  Dialect rust{.frontend = Frontend::Rust};
  assume_fields(rust);
  EXPECT_EQ(rust.args_key, ArgsKey::VllmXargs);
  EXPECT_FALSE(rust.logit_bias);
  Dialect python{.frontend = Frontend::Python};
  assume_fields(python);
  EXPECT_EQ(python.args_key, ArgsKey::ExtraArgs);
  EXPECT_TRUE(python.logit_bias);
  EXPECT_FALSE(python.bad_words_token_ids);
}

}  // namespace
}  // namespace fairlead::engine::vllm_http
