#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/testing.hpp"
#include "engine/vllm_grpc/dialect.hpp"
#include "engine/vllm_grpc/request.hpp"
#include "engine/vllm_http/dialect.hpp"
#include "engine/vllm_http/request.hpp"
#include "vllm/inference.pb.h"

// Every option of a request on every wire: it reaches the engine, or the request is refused by
// name. Nothing but hints and defaults may be lost without a word.

namespace fairlead::engine {
namespace {

using testing::plain_request;

/// What becomes of an option that is set.
enum class Fate : std::uint8_t {
  Sent,     ///< The request differs from one without it.
  Refused,  ///< UnsupportedField.
  Dropped,  ///< The request is the same.
};

/// A wire under test.
struct Wire {
  std::string_view name;
  /// What is sent: body and header fields.
  std::function<Result<std::string>(const GenerateRequest&)> write;
};

Wire grpc_wire(vllm_grpc::Dialect dialect) {
  return {vllm_grpc::dialect_name(dialect), [dialect](const GenerateRequest& request) {
            static vllm_grpc::RequestWriter writer;
            const Result<std::string_view> written = writer.write(request, dialect, "m");
            if (!written) {
              return Result<std::string>(std::unexpected(written.error()));
            }
            // Parsed and printed, so that the order of map entries does not matter.
            ::vllm::GenerateRequest message;
            EXPECT_TRUE(message.ParseFromString(std::string(*written)));
            std::string out = message.ShortDebugString();
            for (const auto& [name, value] : vllm_grpc::request_metadata(request)) {
              out.append("\n").append(name).append("=").append(value);
            }
            return Result<std::string>(out);
          }};
}

Wire http_wire(std::string_view dialect) {
  return {dialect, [dialect](const GenerateRequest& request) {
            Result<std::string> body =
                vllm_http::write_request(request, vllm_http::dialect_from_text(dialect), "m");
            if (body) {
              for (const net::http::Header& header : vllm_http::request_headers(request)) {
                body->append("\n").append(header.name).append("=").append(header.value);
              }
            }
            return body;
          }};
}

constexpr std::string_view kRust32 = "rust/vllm_xargs+logprob_token_ids+bad_words_token_ids";
constexpr std::string_view kRust33 = "rust/extra_args+logprob_token_ids+bad_words_token_ids";
constexpr std::string_view kPython = "python/extra_args+logprob_token_ids+logit_bias";
constexpr std::string_view kBare = "python/";

std::vector<Wire> wires() {
  return {grpc_wire(vllm_grpc::Dialect::Generate),
          grpc_wire(vllm_grpc::Dialect::InferenceEarly),
          grpc_wire(vllm_grpc::Dialect::Inference),
          http_wire(kRust32),
          http_wire(kRust33),
          http_wire(kPython),
          http_wire(kBare)};
}

/// One option, with what each wire does with it where that is not `Sent`.
struct Option {
  std::string_view name;
  std::function<void(GenerateRequest&)> set;
  std::vector<std::pair<std::string_view, Fate>> exceptions = {};
};

const std::string_view kGenerate = vllm_grpc::dialect_name(vllm_grpc::Dialect::Generate);
const std::string_view kEarly = vllm_grpc::dialect_name(vllm_grpc::Dialect::InferenceEarly);
const std::string_view kInference = vllm_grpc::dialect_name(vllm_grpc::Dialect::Inference);

template <class Member>
std::function<void(GenerateRequest&)> structured(StructuredOutput::Kind kind, Member value) {
  return [=](GenerateRequest& request) {
    request.structured = StructuredOutput{kind, value, {"a", "b"}};
  };
}

std::vector<Option> options() {
  using R = GenerateRequest;
  using Kind = StructuredOutput::Kind;
  const json::Value object = *json::parse(R"({"a":1})");
  return {
      {"request_id", [](R& r) { r.request_id = "other"; }},
      {"prompt", [](R& r) { r.prompt = {9}; }},
      {"temperature", [](R& r) { r.sampling.temperature = 0; }},
      {"top_p", [](R& r) { r.sampling.top_p = 0.5F; }},
      {"top_k", [](R& r) { r.sampling.top_k = 5; }},
      {"min_p", [](R& r) { r.sampling.min_p = 0.5F; }},
      {"presence_penalty", [](R& r) { r.sampling.presence_penalty = 1; }},
      {"frequency_penalty", [](R& r) { r.sampling.frequency_penalty = 1; }},
      {"repetition_penalty", [](R& r) { r.sampling.repetition_penalty = 2; }},
      {"seed", [](R& r) { r.sampling.seed = 0; }},
      {"logit_bias",
       [](R& r) { r.sampling.logit_bias = {{5, 1.0F}}; },
       {{kRust32, Fate::Refused}, {kRust33, Fate::Refused}, {kBare, Fate::Refused}}},
      {"allowed_token_ids", [](R& r) { r.sampling.allowed_token_ids = {5}; }},
      {"bad_words",
       [](R& r) { r.sampling.bad_words = {{5, 6}}; },
       {{kGenerate, Fate::Refused},
        {kEarly, Fate::Refused},
        {kPython, Fate::Refused},
        {kBare, Fate::Refused}}},
      {"sampling.unset", [](R& r) { r.sampling.unset = true; }},
      {"max_tokens", [](R& r) { r.stop.max_tokens = 17; }},
      {"min_tokens", [](R& r) { r.stop.min_tokens = 1; }},
      {"stop_token_ids", [](R& r) { r.stop.stop_token_ids = {5}; }},
      {"ignore_eos", [](R& r) { r.stop.ignore_eos = true; }},
      {"thinking_token_budget",
       [](R& r) { r.stop.thinking_token_budget = 5; },
       {{kGenerate, Fate::Refused}, {kEarly, Fate::Refused}}},
      {"logprobs 0", [](R& r) { r.output.logprobs = 0; }},
      {"logprobs", [](R& r) { r.output.logprobs = 5; }},
      {"logprobs all", [](R& r) { r.output.logprobs = kAllCandidates; }},
      {"logprob_token_ids",
       [](R& r) { r.output.logprob_token_ids = {5}; },
       {{kBare, Fate::Refused}}},
      {"prompt_logprobs", [](R& r) { r.output.prompt_logprobs = 0; }},
      {"structured json", structured(Kind::JsonSchema, "{}")},
      {"structured object", structured(Kind::JsonObject, "")},
      {"structured regex", structured(Kind::Regex, "a")},
      {"structured choice", structured(Kind::Choice, "")},
      {"structured grammar", structured(Kind::Grammar, "root ::= \"a\"")},
      {"structured tag", structured(Kind::StructuralTag, "{}")},
      {"lora_name", [](R& r) { r.lora_name = "adapter"; }, {{kGenerate, Fate::Refused}}},
      {"cache_salt", [](R& r) { r.cache_salt = "salt"; }},
      {"bypass_prefix_cache", [](R& r) { r.bypass_prefix_cache = true; }},
      {"priority", [](R& r) { r.priority = -1; }},
      // A hint for placement only.
      {"session_id", [](R& r) { r.session_id = "s"; }, {{kGenerate, Fate::Dropped}}},
      {"data_parallel_rank", [](R& r) { r.data_parallel_rank = 1; }, {{kGenerate, Fate::Refused}}},
      {"kv_transfer_params", [object](R& r) { r.kv_transfer_params = object; }},
      {"ec_transfer_params",
       [object](R& r) { r.ec_transfer_params = object; },
       {{kGenerate, Fate::Refused}}},
      {"extra_args of the client",
       [object](R& r) {
         r.extra_args = object;
         r.extra_args_required = true;
       },
       {{kGenerate, Fate::Refused},
        {kEarly, Fate::Refused},
        {kInference, Fate::Refused},
        {kBare, Fate::Refused}}},
      {"extra_args by default",
       [object](R& r) { r.extra_args = object; },
       {{kGenerate, Fate::Dropped},
        {kEarly, Fate::Dropped},
        {kInference, Fate::Dropped},
        {kBare, Fate::Dropped}}},
  };
}

Fate expected_fate(const Option& option, std::string_view wire) {
  for (const auto& [name, fate] : option.exceptions) {
    if (name == wire) {
      return fate;
    }
  }
  return Fate::Sent;
}

TEST(OptionMatrix, EveryOptionIsSentOrRefusedOnEveryWire) {
  for (const Wire& wire : wires()) {
    const Result<std::string> plain = wire.write(plain_request());
    ASSERT_TRUE(plain) << wire.name;
    for (const Option& option : options()) {
      GenerateRequest request = plain_request();
      option.set(request);
      const Result<std::string> written = wire.write(request);
      const Fate fate = written ? (*written == *plain ? Fate::Dropped : Fate::Sent) : Fate::Refused;
      EXPECT_EQ(fate, expected_fate(option, wire.name)) << option.name << " on " << wire.name;
      if (!written) {
        EXPECT_EQ(written.error().code, ErrorCode::UnsupportedField) << option.name;
        EXPECT_FALSE(written.error().param.empty()) << option.name;
      }
    }
  }
}

// What a wire refuses is what the probe of its engine does not advertise, so that routing never
// leads there.
TEST(OptionMatrix, RefusalsOfCapabilitiesMatchWhatIsAdvertised) {
  const auto refuses = [](std::string_view dialect, const Option& option) {
    GenerateRequest request = plain_request();
    option.set(request);
    return !http_wire(dialect).write(request);
  };
  for (const Option& option : options()) {
    GenerateRequest request = plain_request();
    option.set(request);
    const CapabilitySet needed = required_capabilities(request);
    if (needed.empty()) {
      continue;
    }
    for (const std::string_view text : {kRust32, kRust33, kPython, kBare}) {
      const vllm_http::Dialect dialect = vllm_http::dialect_from_text(text);
      CapabilitySet has{Capability::PromptLogprobs, Capability::Lora};
      if (dialect.args_key != vllm_http::Dialect::ArgsKey::None) {
        has.add(Capability::VllmXargs);
      }
      if (dialect.logprob_token_ids) {
        has.add(Capability::LogprobTokenIds);
      }
      if (dialect.bad_words_token_ids) {
        has.add(Capability::BadWordsTokenIds);
      }
      EXPECT_EQ(refuses(text, option), !has.covers(needed)) << option.name << " on " << text;
    }
  }
}

}  // namespace
}  // namespace fairlead::engine
