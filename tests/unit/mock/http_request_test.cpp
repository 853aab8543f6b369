#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "mock/vllm_http_error.hpp"
#include "mock/vllm_http_request.hpp"

namespace fairlead::mock {
namespace {

MockOptions options_of(HttpFlavor flavor) {
  MockOptions options;
  options.flavor = flavor;
  EXPECT_TRUE(resolve(options));
  return options;
}

HttpOutcome check(std::string_view body, HttpFlavor flavor = HttpFlavor::Rust033) {
  return check_http_request(body, std::nullopt, options_of(flavor));
}

std::string refusal_of(std::string_view body, HttpFlavor flavor = HttpFlavor::Rust033) {
  const HttpOutcome outcome = check(body, flavor);
  return outcome.refusal ? outcome.refusal->message : "accepted";
}

TEST(HttpRequest, TypesComeBeforeValues) {
  EXPECT_EQ(refusal_of(R"({"token_ids": [], "sampling_params": {"vllm_xargs": 5}})"),
            "Failed to deserialize the JSON body into the target type: sampling_params.vllm_xargs: "
            "invalid type: integer `5`, expected a map at line 1 column 55");
  EXPECT_EQ(refusal_of(R"({"token_ids": [], "sampling_params": {"other": 5}})"),
            "token_ids must contain at least one token ID.");
}

TEST(HttpRequest, SerdeNamesTheFirstFault) {
  EXPECT_EQ(refusal_of("{\n\"token_ids\": [1, -2],\n \"sampling_params\": {\"n\": \"x\"}}"),
            "Failed to deserialize the JSON body into the target type: token_ids[1]: invalid "
            "value: integer `-2`, expected u32 at line 3 column 31");
  EXPECT_EQ(refusal_of(R"({"token_ids": [1]})"),
            "Failed to deserialize the JSON body into the target type: missing field "
            "`sampling_params` at line 1 column 18");
}

TEST(HttpRequest, PydanticNamesAllFaults) {
  const HttpOutcome outcome =
      check(R"({"token_ids": [], "stream": 1, "sampling_params": {"extra_args": "x"}})",
            HttpFlavor::Python032);
  ASSERT_TRUE(outcome.refusal);
  EXPECT_EQ(outcome.refusal->kind, Refusal::Kind::Malformed);
  EXPECT_TRUE(outcome.refusal->message.starts_with("3 validation errors:\n"));
  EXPECT_NE(outcome.refusal->message.find("'body.sampling_params.extra_args'"), std::string::npos);
  EXPECT_NE(outcome.refusal->message.find("'too_short'"), std::string::npos);
}

TEST(HttpRequest, WholeFloatsAreIntegersInPythonOnly) {
  constexpr std::string_view kBody =
      R"({"token_ids": [1.0], "sampling_params": {"max_tokens": 3.0}})";
  const HttpOutcome python = check(kBody, HttpFlavor::Python032);
  ASSERT_TRUE(python.request);
  EXPECT_EQ(python.request->spec.stop.max_new_tokens, 3U);
  EXPECT_NE(refusal_of(kBody).find("invalid type: floating point `1`, expected u32"),
            std::string::npos);
}

TEST(HttpRequest, BiasesByMemberNameAreReadInPythonOnly) {
  constexpr std::string_view kBody =
      R"({"token_ids": [1], "sampling_params": {"logit_bias": {"7": 0.5}}})";
  for (const HttpFlavor rust : {HttpFlavor::Rust033, HttpFlavor::Rust032}) {
    const HttpOutcome outcome = check(kBody, rust);
    ASSERT_TRUE(outcome.refusal);
    EXPECT_EQ(outcome.refusal->kind, Refusal::Kind::Malformed);
    EXPECT_NE(outcome.refusal->message.find("invalid type: string \"7\", expected u32"),
              std::string::npos);
    EXPECT_TRUE(
        check(R"({"token_ids": [1], "sampling_params": {"logit_bias": {}}})", rust).request);
  }
  EXPECT_TRUE(check(kBody, HttpFlavor::Python032).request);
}

TEST(HttpRequest, BadWordsAreListsOfIdsInRustOnly) {
  const auto body = [](std::string_view value) {
    return fmt::format(R"({{"token_ids": [1], "sampling_params": {{"bad_words_token_ids": {}}}}})",
                       value);
  };
  EXPECT_EQ(refusal_of(body("[[1, 2], [3]]")), "accepted");
  EXPECT_EQ(refusal_of(body("[]")), "accepted");
  EXPECT_EQ(refusal_of(body("null")), "accepted");
  EXPECT_NE(refusal_of(body("[1]")).find("invalid type: integer `1`, expected a sequence"),
            std::string::npos);
  EXPECT_NE(refusal_of(body(R"([["x"]])")).find("invalid type: string \"x\", expected u32"),
            std::string::npos);
  EXPECT_NE(refusal_of(body("[[1], [-1]]")).find("invalid value: integer `-1`, expected u32"),
            std::string::npos);
  EXPECT_EQ(refusal_of(body("[[1], []]")), "bad_words_token_ids must not contain empty sequences");
  EXPECT_EQ(refusal_of(body(R"("?")"), HttpFlavor::Python032), "accepted");

  MockOptions options = options_of(HttpFlavor::Rust033);
  options.vocab_size = 100;
  const HttpOutcome outside = check_http_request(body("[[5, 100], [200]]"), std::nullopt, options);
  ASSERT_TRUE(outside.refusal);
  EXPECT_EQ(outside.refusal->message,
            "token_id(s) [100, 200] in bad_words are out of vocabulary. Vocabulary size: 100");
  options.without = {Capability::BadWordsTokenIds};
  EXPECT_TRUE(check_http_request(body(R"("?")"), std::nullopt, options).request);
}

TEST(HttpRequest, NullIsAbsentUnlessRequired) {
  EXPECT_TRUE(check(R"({"token_ids": [1], "model": null, "stream": null,
                        "sampling_params": {"temperature": null, "vllm_xargs": null}})")
                  .request);
  EXPECT_NE(refusal_of(R"({"token_ids": null, "sampling_params": {}})")
                .find("token_ids: invalid type: null, expected a sequence"),
            std::string::npos);
}

TEST(HttpRequest, ManyFaultsMakeASmallAnswer) {
  std::string body = R"({"sampling_params": {}, "token_ids": [)";
  for (int i = 0; i < 10000; ++i) {
    body += R"("x",)";
  }
  body += R"("x"]})";
  const std::string message = refusal_of(body, HttpFlavor::Python032);
  EXPECT_TRUE(message.starts_with("10001 validation errors:"));
  EXPECT_LT(message.size(), 8192U);
}

TEST(HttpRequest, PythonFindsSomeFaultsWhenItsStreamHasBegun) {
  MockOptions options = options_of(HttpFlavor::Python032);
  options.vocab_size = 100;
  const auto outcome_of = [&](std::string_view body) {
    return check_http_request(body, std::nullopt, options);
  };
  EXPECT_TRUE(
      outcome_of(R"({"token_ids": [100], "stream": true, "sampling_params": {}})").as_event);
  EXPECT_FALSE(outcome_of(R"({"token_ids": [100], "sampling_params": {}})").as_event);
  EXPECT_FALSE(
      outcome_of(R"({"token_ids": [1], "model": "x", "stream": true, "sampling_params": {}})")
          .as_event);
}

TEST(HttpError, CodesAreNumbersOrNames) {
  const Refusal missing{Refusal::Kind::NotFound, "no \"x\"", "model"};
  EXPECT_EQ(
      http_error(HttpFlavor::Rust033, missing).body,
      R"({"error":{"message":"no \"x\"","type":"NotFoundError","param":"model","code":404}})");
  EXPECT_EQ(http_error(HttpFlavor::Rust032, missing).body,
            R"({"error":{"message":"no \"x\"","type":"invalid_request_error","param":"model",)"
            R"("code":"model_not_found"}})");
  EXPECT_EQ(http_error(HttpFlavor::Rust032, missing).status, 404);
}

}  // namespace
}  // namespace fairlead::mock
