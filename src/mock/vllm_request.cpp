#include "mock/vllm_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <random>
#include <span>

#include "base/json.hpp"
#include "mock/vllm_handoff.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;
using Check = std::optional<Status>;

constexpr std::size_t kMaxLogprobIds = 128;

Status invalid(std::string message) {
  return {StatusCode::InvalidArgument, std::move(message), Status::Origin::Server};
}

std::string make_uuid() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  const std::uint64_t high = (random() & ~0xF000ULL) | 0x4000;
  const std::uint64_t low = (random() & ~(3ULL << 62)) | (1ULL << 63);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF,
                     high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFFULL);
}

Check check_envelope(const ::vllm::GenerateRequest& request, const MockOptions& options) {
  const auto& model = request.model();
  if (!model.empty() && model != options.model &&
      std::ranges::find(options.aliases, model) == options.aliases.end()) {
    return Status{StatusCode::NotFound, fmt::format("model `{}` not found", model),
                  Status::Origin::Server};
  }
  if (request.prompt_case() == ::vllm::GenerateRequest::PROMPT_NOT_SET) {
    return invalid("prompt is required");
  }
  if (request.sampling().num_sequences() > 1) {
    return invalid("num_sequences > 1 is not supported");
  }
  if (!request.lora_name().empty()) {
    return Status{StatusCode::FailedPrecondition,
                  "LoRA is not enabled on this engine; start it with --enable-lora",
                  Status::Origin::Server};
  }
  if (request.media_size() > 0) {
    return Status{StatusCode::Unimplemented, "media is not simulated", Status::Origin::Server};
  }
  if (request.has_text()) {
    if (request.text().empty()) {
      return invalid(
          fmt::format("generate request `{}` has an empty prompt_token_ids", request.request_id()));
    }
    return Status{StatusCode::Unimplemented, "text prompts are not simulated: send token_ids",
                  Status::Origin::Server};
  }
  return std::nullopt;
}

Check check_range(std::string_view name, float value, float low, bool open, float high) {
  if ((open ? value > low : value >= low) && value <= high) {
    return std::nullopt;
  }
  return invalid(
      fmt::format("{} must be in {}{}, {}], got {}", name, open ? '(' : '[', low, high, value));
}

Check check_sampling(const ::vllm::GenerateRequest& request) {
  const auto& sampling = request.sampling();
  const auto& decoding = request.decoding();
  Check failed = check_range("temperature", request.temperature(), 0, false, 2);
  if (!failed && sampling.has_top_p()) {
    failed = check_range("top_p", sampling.top_p(), 0, true, 1);
  }
  if (!failed && sampling.has_min_p()) {
    failed = check_range("min_p", sampling.min_p(), 0, false, 1);
  }
  if (!failed) {
    failed = check_range("presence_penalty", decoding.presence_penalty(), -2, false, 2);
  }
  if (!failed) {
    failed = check_range("frequency_penalty", decoding.frequency_penalty(), -2, false, 2);
  }
  if (!failed && !(decoding.repetition_penalty() >= 0)) {
    failed = invalid(fmt::format("repetition_penalty must be greater than zero, got {}",
                                 decoding.repetition_penalty()));
  }
  return failed;
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

Check check_vocabulary(std::string_view name, std::vector<TokenId> ids,
                       const MockOptions& options) {
  if (options.vocab_size == 0) {
    return std::nullopt;
  }
  std::erase_if(ids, [&](TokenId id) { return id < options.vocab_size; });
  if (ids.empty()) {
    return std::nullopt;
  }
  return invalid(fmt::format("token_id(s) {} in {} are out of vocabulary. Vocabulary size: {}", ids,
                             name, options.vocab_size));
}

Check check_candidates(const ::vllm::CandidateTokens& wanted, const MockOptions& options,
                       CandidateChoice& choice) {
  const std::int64_t limit = options.max_logprobs < 0
                                 ? static_cast<std::int64_t>(vocabulary_of(options))
                                 : options.max_logprobs;
  std::int64_t top_n = 0;
  if (wanted.has_top_n()) {
    top_n = static_cast<std::int32_t>(wanted.top_n());
  } else if (wanted.has_all() && wanted.all()) {
    top_n = static_cast<std::int64_t>(vocabulary_of(options));
  } else if (wanted.has_token_ids()) {
    const auto& ids = wanted.token_ids().ids();
    choice.token_ids.assign(ids.begin(), ids.end());
  }
  if (top_n < 0) {
    return invalid(fmt::format("requested logprobs of {}, which is negative", top_n));
  }
  if (top_n > limit) {
    return invalid(fmt::format("requested logprobs of {}, which is greater than max allowed: {}",
                               top_n, limit));
  }
  if (choice.token_ids.size() > kMaxLogprobIds) {
    return invalid(
        fmt::format("requested {} logprob_token_ids, which is greater than max "
                    "allowed: {}",
                    choice.token_ids.size(), kMaxLogprobIds));
  }
  choice.top_n = static_cast<std::uint32_t>(top_n);
  return check_vocabulary("logprob_token_ids", choice.token_ids, options);
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

Status too_long(const MockOptions& options, std::size_t prompt) {
  return invalid(
      options.has(Capability::ProtoVersion)
          ? fmt::format("This model's maximum context length is {} tokens. However, your "
                        "prompt fills it with {} input tokens, leaving no room for "
                        "output tokens. Please reduce the length of the input prompt.",
                        options.max_model_len, prompt)
          : fmt::format("this model's maximum context length is {} tokens, but the "
                        "prompt contains {} input tokens",
                        options.max_model_len, prompt));
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
  if (spec.prompt.size() >= options.max_model_len) {
    return too_long(options, spec.prompt.size());
  }
  return std::nullopt;
}

Check check_stopping(const ::vllm::GenerateRequest& request, const MockOptions& options,
                     GenerateSpec& spec) {
  const auto& stopping = request.stopping();
  const auto room = static_cast<std::uint32_t>(options.max_model_len - spec.prompt.size());
  const std::uint32_t wanted = stopping.max_new_tokens();
  const std::uint32_t most = wanted == 0 ? room : wanted;
  if (stopping.min_new_tokens() > most) {
    return invalid(
        fmt::format("`min_tokens` must be less than or equal to `max_tokens`, got "
                    "min_tokens={}, max_tokens={}",
                    stopping.min_new_tokens(), most));
  }
  spec.stop.max_new_tokens = std::min(most, room);
  spec.stop.min_new_tokens = stopping.min_new_tokens();
  spec.stop.ignore_eos = stopping.ignore_eos();
  spec.stop.stop_ids.assign(stopping.stop_token_ids().begin(), stopping.stop_token_ids().end());
  if (auto failed = check_vocabulary("stop_token_ids", spec.stop.stop_ids, options)) {
    return failed;
  }
  if (!options.eos_token_ids.empty()) {
    spec.stop.eos = options.eos_token_ids.front();
    if (!spec.stop.ignore_eos) {
      spec.stop.stop_ids.insert(spec.stop.stop_ids.end(), options.eos_token_ids.begin() + 1,
                                options.eos_token_ids.end());
    }
  }
  std::ranges::sort(spec.stop.stop_ids);
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

Check check_connected(const MockOptions& options, const GenerateSpec& spec) {
  if (spec.any_rank || spec.rank < options.data_parallel_size) {
    return std::nullopt;
  }
  std::vector<std::uint32_t> ranks(options.data_parallel_size);
  std::ranges::generate(ranks, [next = 0U]() mutable { return next++; });
  return invalid(
      fmt::format("engine-core error: data parallel rank {} is not connected to this "
                  "frontend; connected ranks: {}",
                  spec.rank, ranks));
}

// The part that the first servers reported as INTERNAL.
Check check_text_layer(const ::vllm::GenerateRequest& request, const MockOptions& options,
                       GenerateSpec& spec) {
  Check failed = check_sampling(request);
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
  if (failed && !options.has(Capability::TypedErrors)) {
    failed->code = StatusCode::Internal;
  }
  return failed;
}

}  // namespace

std::uint64_t vocabulary_of(const MockOptions& options) {
  return options.vocab_size == 0 ? TokenFormula::kFirst + TokenFormula::kSpan : options.vocab_size;
}

std::expected<GenerateSpec, Status> check_request(const ::vllm::GenerateRequest& request,
                                                  const std::string_view* rank_metadata,
                                                  const MockOptions& options) {
  GenerateSpec spec;
  spec.request_id = request.request_id().empty() ? make_uuid() : request.request_id();
  spec.cache_key.salt = request.kv().cache_salt();
  spec.cache_key.session_id = request.session_id();
  Check failed = check_rank(rank_metadata, options, spec);
  if (!failed) {
    failed = check_envelope(request, options);
  }
  if (!failed) {
    failed = check_text_layer(request, options, spec);
  }
  if (!failed) {
    failed = check_connected(options, spec);
  }
  if (!failed) {
    failed = check_handoff(request, options.role);
  }
  if (failed) {
    return std::unexpected(*failed);
  }
  spec.skip_cache_read = request.kv().bypass_prefix_cache() || spec.prompt_logprobs;
  spec.hand_off = options.role == Role::Prefill;
  spec.prompt_arrives = options.role == Role::Decode;
  return spec;
}

}  // namespace fairlead::mock
