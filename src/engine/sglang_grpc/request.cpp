#include "engine/sglang_grpc/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "engine/packed_ids.hpp"
#include "engine/request_check.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::engine::sglang_grpc {
namespace {

/// Zero is an error to the engine.
constexpr std::int32_t kTopKOff = -1;

/// An object of any members.
constexpr std::string_view kAnyObject = R"({"type": "object"})";

/// Buffers above this size are given back after use.
constexpr std::size_t kKeptBytes = 256 * 1024;

constexpr std::uint32_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

std::unexpected<Error> unsupported(std::string_view field, std::string_view why) {
  return fail(ErrorCode::UnsupportedField, fmt::format("`{}` is not supported: {}", field, why),
              std::string(field));
}

/// A refusal of what the interface has no field for: the engine would never hear of it.
Result<> check_expressible(const GenerateRequest& request) {
  constexpr std::string_view kNoField = "SGLang's gRPC interface has no field for it";
  const std::pair<bool, std::string_view> absent[] = {
      {!request.sampling.logit_bias.empty(), "logit_bias"},
      {!request.sampling.allowed_token_ids.empty(), "allowed_token_ids"},
      {!request.sampling.bad_words.empty(), "bad_words"},
      {!request.output.logprob_token_ids.empty(), "logprob_token_ids"},
      // Dropping it would share cached blocks with those who have another salt.
      {!request.cache_salt.empty(), "cache_salt"},
      {request.bypass_prefix_cache, "bypass_prefix_cache"},
      {!request.kv_transfer_params.is_null(), "kv_transfer_params"},
      {!request.ec_transfer_params.is_null(), "ec_transfer_params"},
      {request.extra_args_required, "vllm_xargs"},
  };
  for (const auto& [given, field] : absent) {
    if (given) {
      return unsupported(field, kNoField);
    }
  }
  constexpr std::string_view kWholeVocabulary =
      "SGLang's gRPC interface takes no number of candidates for the whole vocabulary";
  if (request.output.logprobs == kAllCandidates) {
    return unsupported("logprobs", kWholeVocabulary);
  }
  if (request.output.prompt_logprobs == kAllCandidates) {
    return unsupported("prompt_logprobs", kWholeVocabulary);
  }
  return {};
}

/// Fields that came after the engine's release, which would drop them without a word, and those it
/// was not started for.
Result<> check_dialect(const GenerateRequest& request, const Dialect& dialect) {
  constexpr std::string_view kOld = "the engine is older than SGLang 0.5.17";
  const bool probed = dialect.output != Dialect::Output::Unknown;
  const bool thinking = request.stop.thinking_token_budget.value_or(-1) != -1;
  if (thinking && dialect.early) {
    return unsupported("thinking_token_budget", kOld);
  }
  if (thinking && probed && !dialect.strict_thinking) {
    return unsupported("thinking_token_budget",
                       "the engine was not started with --enable-strict-thinking");
  }
  if (!dialect.early) {
    return {};
  }
  if (request.sampling.seed && !request.sampling.unset) {
    return unsupported("seed", kOld);
  }
  if (request.structured) {
    switch (request.structured->kind) {
      case StructuredOutput::Kind::JsonSchema:
      case StructuredOutput::Kind::JsonObject:
      case StructuredOutput::Kind::Regex: break;  // by the older fields
      case StructuredOutput::Kind::Choice:
      case StructuredOutput::Kind::Grammar:
      case StructuredOutput::Kind::StructuralTag: return unsupported("structured_outputs", kOld);
    }
  }
  return {};
}

/// Ids are signed on this wire; a negative one ends the engine's process.
Result<> check_ids(std::span<const TokenId> ids, std::string_view field) {
  const auto found = std::ranges::find_if(ids, [](TokenId id) { return id > kMaxInt32; });
  if (found != ids.end()) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}`: token id {} is out of range", field, *found),
                std::string(field));
  }
  return {};
}

Result<> check_values(const GenerateRequest& request) {
  if (Result<> checked = check_ids(request.prompt, "prompt"); !checked) {
    return checked;
  }
  if (Result<> checked = check_ids(request.stop.stop_token_ids, "stop_token_ids"); !checked) {
    return checked;
  }
  const std::int64_t budget = request.stop.thinking_token_budget.value_or(-1);
  if (budget < -1 || budget > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::InvalidRequest, "`thinking_token_budget` is out of range",
                "thinking_token_budget");
  }
  return {};
}

std::int32_t to_int32(std::uint32_t value) {
  return static_cast<std::int32_t>(std::min(value, kMaxInt32));
}

void fill_sampling(const SamplingParams& sampling, ::sglang::runtime::v1::SamplingParams& out) {
  if (sampling.unset) {
    return;
  }
  out.set_temperature(sampling.temperature);
  out.set_top_p(sampling.top_p);
  out.set_top_k(sampling.top_k == 0 ? kTopKOff : to_int32(sampling.top_k));
  out.set_min_p(sampling.min_p);
  out.set_frequency_penalty(sampling.frequency_penalty);
  out.set_presence_penalty(sampling.presence_penalty);
  out.set_repetition_penalty(sampling.repetition_penalty);
  if (sampling.seed) {
    out.set_seed(*sampling.seed);
  }
}

/// The two constraints of every release.
void fill_early_constraint(const StructuredOutput& structured,
                           ::sglang::runtime::v1::SamplingParams& out) {
  if (structured.kind == StructuredOutput::Kind::Regex) {
    out.set_regex(structured.text);
  } else {
    const bool any = structured.kind == StructuredOutput::Kind::JsonObject;
    out.set_json_schema(any ? std::string(kAnyObject) : structured.text);
  }
}

void fill_constraint(const StructuredOutput& structured,
                     ::sglang::runtime::v1::GuidedDecoding& out) {
  switch (structured.kind) {
    case StructuredOutput::Kind::JsonSchema: out.set_json_schema(structured.text); break;
    case StructuredOutput::Kind::JsonObject: out.set_json_schema(std::string(kAnyObject)); break;
    case StructuredOutput::Kind::Regex: out.set_regex(structured.text); break;
    case StructuredOutput::Kind::Choice:
      out.mutable_choice()->mutable_values()->Add(structured.choices.begin(),
                                                  structured.choices.end());
      break;
    case StructuredOutput::Kind::Grammar: out.set_ebnf(structured.text); break;
    case StructuredOutput::Kind::StructuralTag: out.set_structural_tag(structured.text); break;
  }
}

void fill_stopping(const GenerateRequest& request, ::sglang::runtime::v1::SamplingParams& out) {
  out.set_max_new_tokens(to_int32(max_new_tokens(request)));
  if (request.leg != Leg::Prefill) {
    out.set_min_new_tokens(to_int32(request.stop.min_tokens));
  }
  out.mutable_stop_token_ids()->Add(request.stop.stop_token_ids.begin(),
                                    request.stop.stop_token_ids.end());
  out.set_ignore_eos(request.stop.ignore_eos);
}

/// Both legs of a handed-on generation ask for them: the first token's are made by the prefill.
void fill_logprobs(const GenerateRequest& request, ::sglang::runtime::v1::GenerateRequest& out) {
  const OutputOptions& output = request.output;
  const bool wanted = output.wants_logprobs() || output.prompt_logprobs.has_value();
  out.set_return_logprob(wanted);
  if (!wanted) {
    return;
  }
  out.set_top_logprobs_num(
      to_int32(std::max(output.logprobs.value_or(0), output.prompt_logprobs.value_or(0))));
  out.set_logprob_start_len(wants_prompt_logprobs(request) ? 0 : -1);
}

void fill_priority(std::int32_t priority, const Dialect& dialect,
                   ::sglang::runtime::v1::GenerateRequest& out) {
  switch (dialect.priority) {
    case Dialect::Priority::Ignored: break;
    case Dialect::Priority::LowerFirst: out.set_priority(priority); break;
    case Dialect::Priority::HigherFirst:
      // The lowest value has no opposite.
      out.set_priority(-std::max(priority, -std::numeric_limits<std::int32_t>::max()));
      break;
  }
}

}  // namespace

std::uint32_t max_new_tokens(const GenerateRequest& request) {
  return request.leg == Leg::Prefill ? 1 : request.stop.max_tokens;
}

bool wants_prompt_logprobs(const GenerateRequest& request) {
  return request.output.prompt_logprobs.has_value() && request.leg != Leg::Decode;
}

struct RequestWriter::Message {
  ::sglang::runtime::v1::GenerateRequest request;
};

RequestWriter::RequestWriter() : message_(std::make_unique<Message>()) {}
RequestWriter::~RequestWriter() = default;

Result<std::string_view> RequestWriter::write(const GenerateRequest& request,
                                              const Dialect& dialect) {
  Result<> checked = check_request(request);
  if (checked) {
    checked = check_expressible(request);
  }
  if (checked) {
    checked = check_dialect(request, dialect);
  }
  if (checked) {
    checked = check_values(request);
  }
  if (!checked) {
    return std::unexpected(std::move(checked.error()));
  }
  ::sglang::runtime::v1::GenerateRequest& out = message_->request;
  out.Clear();
  ::sglang::runtime::v1::SamplingParams& sampling = *out.mutable_sampling_params();
  fill_sampling(request.sampling, sampling);
  fill_stopping(request, sampling);
  if (request.structured) {
    if (dialect.early) {
      fill_early_constraint(*request.structured, sampling);
    } else {
      fill_constraint(*request.structured, *sampling.mutable_guided_decoding());
    }
  }
  out.set_stream(true);
  fill_logprobs(request, out);
  if (!request.request_id.empty()) {
    out.set_rid(request.request_id);
  }
  if (!request.lora_name.empty()) {
    out.set_lora_path(request.lora_name);
  }
  if (request.data_parallel_rank) {
    out.set_routed_dp_rank(to_int32(*request.data_parallel_rank));
  }
  // A hint for placement only: where it is not known, the answer is the same.
  if (!request.session_id.empty()) {
    out.set_session_id(request.session_id);
  }
  if (request.bootstrap) {
    ::sglang::runtime::v1::DisaggregatedParams& meeting = *out.mutable_disaggregated_params();
    meeting.set_bootstrap_host(request.bootstrap->host);
    meeting.set_bootstrap_port(request.bootstrap->port);
    meeting.set_bootstrap_room(request.bootstrap->room);
  }
  fill_priority(request.priority, dialect, out);
  if (request.stop.thinking_token_budget.value_or(-1) != -1) {
    out.set_max_thinking_tokens(static_cast<std::uint32_t>(*request.stop.thinking_token_budget));
  }
  bytes_.clear();
  if (!out.AppendToString(&bytes_)) {
    return fail(ErrorCode::Internal, "the request could not be serialized");
  }
  bytes_ += '\x0a';  // field 1, length-delimited: the prompt
  append_packed(bytes_, request.prompt, packed_size(request.prompt));
  return std::string_view(bytes_);
}

void RequestWriter::trim() {
  if (bytes_.capacity() > kKeptBytes) {
    std::string().swap(bytes_);
  }
}

}  // namespace fairlead::engine::sglang_grpc
