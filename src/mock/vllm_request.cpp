#include "mock/vllm_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.hpp"
#include "mock/request_checks.hpp"
#include "mock/vllm_handoff.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

Refusal invalid(std::string message) { return {Refusal::Kind::Invalid, std::move(message), {}}; }

StatusCode code_of(Refusal::Kind kind) {
  switch (kind) {
    case Refusal::Kind::Malformed:
    case Refusal::Kind::Invalid: return StatusCode::InvalidArgument;
    case Refusal::Kind::NotFound: return StatusCode::NotFound;
    case Refusal::Kind::Precondition: return StatusCode::FailedPrecondition;
    case Refusal::Kind::Unimplemented: return StatusCode::Unimplemented;
    case Refusal::Kind::Exhausted: return StatusCode::ResourceExhausted;
    case Refusal::Kind::Unavailable: return StatusCode::Unavailable;
  }
  return StatusCode::Unknown;
}

Check check_adapter(const std::string& lora, const MockOptions& options) {
  if (lora.empty() || options.lora_id(lora) > 0) {
    return std::nullopt;
  }
  if (!options.has(Capability::Lora) || options.loras.empty()) {
    return Refusal{Refusal::Kind::Precondition,
                   "LoRA is not enabled on this engine; start it with --enable-lora",
                   {}};
  }
  return Refusal{Refusal::Kind::NotFound, fmt::format("LoRA adapter `{}` not found", lora), {}};
}

Check check_envelope(const ::vllm::GenerateRequest& request, const MockOptions& options) {
  const auto& model = request.model();
  if (!model.empty() && model != options.model &&
      std::ranges::find(options.aliases, model) == options.aliases.end()) {
    return Refusal{Refusal::Kind::NotFound, fmt::format("model `{}` not found", model), {}};
  }
  if (request.prompt_case() == ::vllm::GenerateRequest::PROMPT_NOT_SET) {
    return invalid("prompt is required");
  }
  if (request.sampling().num_sequences() > 1) {
    return invalid("num_sequences > 1 is not supported");
  }
  if (Check failed = check_adapter(request.lora_name(), options)) {
    return failed;
  }
  if (request.media_size() > 0) {
    return Refusal{Refusal::Kind::Unimplemented, "media is not simulated", {}};
  }
  if (request.has_text()) {
    if (request.text().empty()) {
      return invalid(
          fmt::format("generate request `{}` has an empty prompt_token_ids", request.request_id()));
    }
    return Refusal{
        Refusal::Kind::Unimplemented, "text prompts are not simulated: send token_ids", {}};
  }
  return std::nullopt;
}

Check check_sampling(const ::vllm::GenerateRequest& request, const MockOptions& options) {
  if (options.refuse_temperature && request.has_temperature()) {
    return invalid(std::string(kNoTemperature));
  }
  const auto& sampling = request.sampling();
  const auto& decoding = request.decoding();
  SamplingValues values;
  if (request.has_temperature()) {
    values.temperature = request.temperature();
  }
  if (sampling.has_top_p()) {
    values.top_p = sampling.top_p();
  }
  if (sampling.has_min_p()) {
    values.min_p = sampling.min_p();
  }
  values.presence_penalty = decoding.presence_penalty();
  values.frequency_penalty = decoding.frequency_penalty();
  if (decoding.repetition_penalty() != 0) {
    values.repetition_penalty = decoding.repetition_penalty();
  }
  return check_ranges(values);
}

Check check_structured(const ::vllm::DecodingParameters& decoding) {
  if (decoding.has_json()) {
    if (const auto schema = json::parse(decoding.json()); !schema) {
      return invalid(fmt::format("invalid json schema: {}", schema.error().message));
    }
  }
  if (decoding.has_grammar() &&
      decoding.grammar().find_first_not_of(" \t\r\n") == std::string::npos) {
    return invalid("structured output grammar must not be blank");
  }
  return std::nullopt;
}

Check check_candidates(const ::vllm::CandidateTokens& wanted, const MockOptions& options,
                       CandidateChoice& choice) {
  std::int64_t top_n = 0;
  if (wanted.has_top_n()) {
    top_n = static_cast<std::int32_t>(wanted.top_n());
  } else if (wanted.has_all() && wanted.all()) {
    top_n = static_cast<std::int64_t>(vocabulary_of(options));
  } else if (wanted.has_token_ids() && options.has(Capability::LogprobTokenIds)) {
    const auto& ids = wanted.token_ids().ids();
    choice.token_ids.assign(ids.begin(), ids.end());
  }
  Check failed = check_top_n(top_n, options, choice);
  return failed ? failed : check_candidate_ids(options, choice);
}

Check check_response(const ::vllm::GenerateRequest& request, const MockOptions& options,
                     GenerateSpec& spec) {
  const auto& response = request.response();
  spec.prompt_token_ids = response.prompt_token_ids();
  spec.prompt_logprobs = response.prompt_logprobs();
  spec.text = !response.has_output_text() || response.output_text();
  spec.token_ids = response.output_token_ids();
  spec.logprobs = response.output_logprobs();
  if (spec.prompt_logprobs && response.has_prompt_candidates()) {
    if (response.prompt_candidates().has_token_ids()) {
      return invalid("prompt_candidates with token_ids is not supported");
    }
    if (auto failed =
            check_candidates(response.prompt_candidates(), options, spec.prompt_candidates)) {
      return failed;
    }
  }
  if (spec.logprobs && response.has_output_candidates()) {
    return check_candidates(response.output_candidates(), options, spec.candidates);
  }
  return std::nullopt;
}

Check check_prompt(const ::vllm::GenerateRequest& request, const MockOptions& options,
                   GenerateSpec& spec) {
  const auto& ids = request.token_ids().ids();
  if (ids.empty()) {
    return invalid(fmt::format("text request `{}` must contain at least one prompt token ID",
                               spec.request_id));
  }
  const std::uint32_t wanted = request.stopping().max_new_tokens();
  std::size_t keep = static_cast<std::size_t>(ids.size());
  if (const std::uint32_t truncate = request.truncate_prompt_tokens(); truncate > 0) {
    const std::int64_t most = std::int64_t{options.max_model_len} - std::int64_t{wanted};
    if (std::int64_t{truncate} > most) {
      return invalid(
          fmt::format("truncate_prompt_tokens={} cannot be greater than max_model_len - "
                      "max_tokens = {}. Please request a smaller truncation size.",
                      truncate, most));
    }
    keep = std::min<std::size_t>(keep, truncate);
  }
  spec.prompt.assign(ids.end() - static_cast<std::ptrdiff_t>(keep), ids.end());
  if (auto failed = check_vocabulary("prompt", spec.prompt, options)) {
    return failed;
  }
  return check_length(options, spec.prompt.size());
}

Check check_stopping(const ::vllm::GenerateRequest& request, const MockOptions& options,
                     GenerateSpec& spec) {
  const auto& stopping = request.stopping();
  Check failed = set_limits(stopping.max_new_tokens(), stopping.min_new_tokens(), options, spec);
  if (!failed) {
    failed = set_stop_ids({stopping.stop_token_ids().begin(), stopping.stop_token_ids().end()},
                          stopping.ignore_eos(), options, spec);
  }
  if (failed) {
    return failed;
  }
  for (const std::string& text : stopping.stop_strings()) {
    if (text.empty()) {
      return invalid("stop strings must not be empty");
    }
    spec.stop_strings.push_back(text);
  }
  spec.include_stop_string = stopping.include_stop_strings();
  return std::nullopt;
}

Check check_decoding(const ::vllm::DecodingParameters& decoding, const MockOptions& options,
                     GenerateSpec& spec) {
  std::vector<TokenId> biased;
  for (const auto& [id, bias] : decoding.logit_bias()) {
    biased.push_back(id);
  }
  std::ranges::sort(biased);
  if (auto failed = check_vocabulary("logit_bias", std::move(biased), options)) {
    return failed;
  }
  spec.allowed.assign(decoding.allowed_token_ids().begin(), decoding.allowed_token_ids().end());
  return check_vocabulary("allowed_token_ids", spec.allowed, options);
}

Check check_rank(const std::string_view* metadata, const MockOptions& options, GenerateSpec& spec) {
  if (!metadata || !options.has(Capability::DataParallelRank)) {
    return std::nullopt;
  }
  const std::size_t first = metadata->find_first_not_of(' ');
  const std::size_t last = metadata->find_last_not_of(' ');
  const std::string_view text = first == std::string_view::npos
                                    ? std::string_view()
                                    : metadata->substr(first, last - first + 1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), spec.rank);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return invalid("x-data-parallel-rank metadata must be an unsigned 32-bit integer");
  }
  spec.any_rank = false;
  return std::nullopt;
}

// The part that the first servers reported as INTERNAL.
Check check_text_layer(const ::vllm::GenerateRequest& request, const MockOptions& options,
                       GenerateSpec& spec) {
  Check failed = check_sampling(request, options);
  if (!failed) {
    failed = check_structured(request.decoding());
  }
  if (!failed) {
    failed = check_response(request, options, spec);
  }
  if (!failed) {
    failed = check_prompt(request, options, spec);
  }
  if (!failed) {
    failed = check_stopping(request, options, spec);
  }
  if (!failed) {
    failed = check_decoding(request.decoding(), options, spec);
  }
  return failed;
}

}  // namespace

Status to_status(Refusal refusal) {
  return {code_of(refusal.kind), std::move(refusal.message), Status::Origin::Server};
}

std::expected<GenerateSpec, Status> check_request(const ::vllm::GenerateRequest& request,
                                                  const std::string_view* rank_metadata,
                                                  const MockOptions& options) {
  GenerateSpec spec;
  spec.request_id = request.request_id().empty() ? make_uuid() : request.request_id();
  spec.cache_key.salt = request.kv().cache_salt();
  spec.cache_key.session_id = request.session_id();
  spec.cache_key.lora = request.lora_name();
  spec.cache_key.lora_id = options.lora_id(request.lora_name());
  Check failed = check_rank(rank_metadata, options, spec);
  if (!failed) {
    failed = check_envelope(request, options);
  }
  if (!failed) {
    failed = check_text_layer(request, options, spec);
    if (failed && !options.has(Capability::TypedErrors)) {
      return std::unexpected(
          Status{StatusCode::Internal, std::move(failed->message), Status::Origin::Server});
    }
  }
  if (!failed) {
    failed = check_rank_exists(options, spec);
  }
  if (!failed) {
    failed = check_handoff(request.kv().kv_transfer_params(), options.role);
  }
  if (failed) {
    return std::unexpected(to_status(std::move(*failed)));
  }
  spec.skip_cache_read = request.kv().bypass_prefix_cache() || spec.prompt_logprobs;
  spec.hand_off = options.role == Role::Prefill;
  spec.prompt_arrives = options.role == Role::Decode;
  if (spec.prompt_arrives) {
    spec.remote = remote_of(request.kv().kv_transfer_params());
  }
  return spec;
}

}  // namespace fairlead::mock
