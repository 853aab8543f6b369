#include "mock/sglang_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::mock {
namespace {

namespace pb = ::sglang::runtime::v1;

using net::grpc::Status;
using net::grpc::StatusCode;
using Text = std::optional<std::string>;

constexpr std::int64_t kDefaultNewTokens = 128;
constexpr std::uint32_t kReservedInput = 6;
constexpr std::uint32_t kMaxChoices = 128;

// An exception of the engine's Python part: client errors and faults alike.
Status raised(std::string message) {
  return {StatusCode::Internal, std::move(message), Status::Origin::Server};
}

Status refused(std::string message) {
  return {StatusCode::InvalidArgument, std::move(message), Status::Origin::Server};
}

bool in_range(bool present, float value, double low, double high) {
  return !present || (value >= low && value <= high);
}

Text check_penalties(const pb::SamplingParams& sampling) {
  if (!in_range(sampling.has_frequency_penalty(), sampling.frequency_penalty(), -2, 2)) {
    return fmt::format("frequency_penalty must be in [-2, 2], got {}.",
                       python_float(sampling.frequency_penalty()));
  }
  if (!in_range(sampling.has_presence_penalty(), sampling.presence_penalty(), -2, 2)) {
    return fmt::format("presence_penalty must be in [-2, 2], got {}.",
                       python_float(sampling.presence_penalty()));
  }
  const float repetition = sampling.repetition_penalty();
  if (sampling.has_repetition_penalty() && !(repetition > 0 && repetition <= 2)) {
    return fmt::format("repetition_penalty must be in (0, 2] (1.0 = no penalty), got {}.",
                       python_float(repetition));
  }
  return std::nullopt;
}

Text check_limits(const pb::SamplingParams& sampling) {
  const int least = sampling.min_new_tokens();
  const std::int64_t most =
      sampling.has_max_new_tokens() ? sampling.max_new_tokens() : kDefaultNewTokens;
  if (least < 0) {
    return fmt::format("min_new_tokens must be in [0, max_new_tokens], got {}.", least);
  }
  if (most < 0) {
    return fmt::format("max_new_tokens must be at least 0, got {}.", most);
  }
  if (least > most) {
    return fmt::format("min_new_tokens must be in [0, max_new_tokens({})], got {}.", most, least);
  }
  return std::nullopt;
}

Text check_sampling(const pb::SamplingParams& sampling) {
  const float temperature = sampling.temperature();
  if (sampling.has_temperature() && !(std::isfinite(temperature) && temperature >= 0)) {
    return fmt::format("temperature must be a non-negative finite number, got {}.",
                       python_float(temperature));
  }
  if (sampling.has_top_p() && !(sampling.top_p() > 0 && sampling.top_p() <= 1)) {
    return fmt::format("top_p must be in (0, 1], got {}.", python_float(sampling.top_p()));
  }
  if (!in_range(sampling.has_min_p(), sampling.min_p(), 0, 1)) {
    return fmt::format("min_p must be in [0, 1], got {}.", python_float(sampling.min_p()));
  }
  if (sampling.has_top_k() && sampling.top_k() != -1 && sampling.top_k() < 1) {
    return fmt::format("top_k must be -1 (disable) or at least 1, got {}.", sampling.top_k());
  }
  if (Text wrong = check_penalties(sampling)) {
    return wrong;
  }
  return check_limits(sampling);
}

Text check_lengths(const pb::GenerateRequest& request, const MockOptions& options) {
  const std::int64_t prompt = request.input_ids_size();
  const std::int64_t context = options.max_model_len;
  if (prompt == 0) {
    return "input_ids cannot be empty.";
  }
  if (prompt >= context) {
    return fmt::format(
        "The input ({} tokens) is longer than the model's context length ({} tokens).", prompt,
        context);
  }
  const std::int64_t wanted = request.sampling_params().max_new_tokens();
  if (request.sampling_params().has_max_new_tokens() && prompt + wanted >= context) {
    return fmt::format(
        "Requested token count exceeds the model's maximum context length of {} tokens. You "
        "requested a total of {} tokens: {} tokens from the input messages and {} tokens for the "
        "completion. Please reduce the number of tokens in the input messages or the completion "
        "to fit within the limit.",
        context, prompt + wanted, prompt, wanted);
  }
  return std::nullopt;
}

Text check_adapter(const std::string& name, const MockOptions& options) {
  if (name.empty() || options.lora_id(name) > 0) {
    return std::nullopt;
  }
  if (options.loras.empty() || !options.has(Capability::Lora)) {
    return fmt::format(
        "LoRA adapter '{}' was requested, but LoRA is not enabled. Please launch the server with "
        "--enable-lora flag and preload adapters using --lora-paths or /load_lora_adapter "
        "endpoint.",
        name);
  }
  std::string loaded;
  for (const std::string& lora : options.loras) {
    loaded += fmt::format("{}'{}'", loaded.empty() ? "" : ", ", lora);
  }
  return fmt::format(
      "The following requested LoRA adapters are not loaded: {{'{}'}}\nLoaded adapters: "
      "dict_keys([{}]).",
      name, loaded);
}

// With one prefill rank, or when the room leads there anyway, any wish is granted.
Text check_rank(const pb::GenerateRequest& request, const MockOptions& options,
                SglangRequest& out) {
  const std::uint32_t ranks = options.data_parallel_size;
  if (request.has_routed_dp_rank()) {
    const std::int32_t wanted = request.routed_dp_rank();
    if (wanted < 0 || static_cast<std::uint32_t>(wanted) >= ranks) {
      return fmt::format("routed_dp_rank={} out of range [0, {})", wanted, ranks);
    }
    out.spec.rank = static_cast<std::uint32_t>(wanted);
    out.spec.any_rank = false;
  }
  if (options.resolved_balance() != LoadBalance::FollowRoom || ranks == 1 || !out.room) {
    return std::nullopt;
  }
  const auto followed =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(out.room->room) % std::uint64_t{ranks});
  if (!out.spec.any_rank && out.spec.rank != followed) {
    return fmt::format(
        "follow_bootstrap_room conflict: routed_dp_rank={} but bootstrap_room={} leads to rank {}",
        out.spec.rank, out.room->room, followed);
  }
  out.spec.rank = followed;
  out.spec.any_rank = false;
  return std::nullopt;
}

void set_stop_rules(const pb::GenerateRequest& request, const MockOptions& options,
                    SglangRequest& out) {
  const pb::SamplingParams& sampling = request.sampling_params();
  StopRules& stop = out.spec.stop;
  const std::int64_t room =
      std::int64_t{options.max_model_len} - 1 - static_cast<std::int64_t>(request.input_ids_size());
  const std::int64_t wanted =
      sampling.has_max_new_tokens() ? sampling.max_new_tokens() : kDefaultNewTokens;
  out.no_tokens = wanted == 0;
  stop.max_new_tokens = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(room, 1)));
  stop.min_new_tokens = static_cast<std::uint32_t>(sampling.min_new_tokens());
  stop.ignore_eos = sampling.ignore_eos();
  for (const std::int32_t id : sampling.stop_token_ids()) {
    if (id >= 0) {
      stop.stop_ids.push_back(static_cast<TokenId>(id));
    }
  }
  if (!options.eos_token_ids.empty()) {
    stop.eos = options.eos_token_ids.front();
    if (!stop.ignore_eos) {
      stop.stop_ids.insert(stop.stop_ids.end(), options.eos_token_ids.begin() + 1,
                           options.eos_token_ids.end());
    }
  }
  std::ranges::sort(stop.stop_ids);
  for (const std::string& text : sampling.stop()) {
    if (!text.empty()) {
      out.spec.stop_strings.push_back(text);
    }
  }
}

void set_logprobs(const pb::GenerateRequest& request, SglangRequest& out) {
  out.spec.logprobs = request.return_logprob();
  if (!out.spec.logprobs) {
    return;
  }
  out.top_n = static_cast<std::uint32_t>(std::max(request.top_logprobs_num(), 0));
  out.spec.candidates.top_n = out.top_n;
  const std::int64_t start = request.has_logprob_start_len() ? request.logprob_start_len() : -1;
  if (start < 0 || start >= request.input_ids_size()) {
    return;
  }
  out.logprob_start = static_cast<std::size_t>(start);
  out.spec.prompt_logprobs = true;
  out.spec.prompt_candidates.top_n = out.top_n;
  out.spec.skip_cache_read = true;
}

Text bad_grammar(const pb::SamplingParams& sampling) {
  const std::string& schema = sampling.has_guided_decoding()
                                  ? sampling.guided_decoding().json_schema()
                                  : sampling.json_schema();
  if (schema.empty()) {
    return std::nullopt;
  }
  const auto parsed = json::parse(schema);
  return parsed ? Text()
                : fmt::format("Failed to compile json grammar: {}", parsed.error().message);
}

bool is_empty(const pb::GuidedDecoding& guided) {
  switch (guided.constraint_case()) {
    case pb::GuidedDecoding::kJsonSchema: return guided.json_schema().empty();
    case pb::GuidedDecoding::kRegex: return guided.regex().empty();
    case pb::GuidedDecoding::kEbnf: return guided.ebnf().empty();
    case pb::GuidedDecoding::kStructuralTag: return guided.structural_tag().empty();
    case pb::GuidedDecoding::kChoice:
      return guided.choice().values().empty() ||
             std::ranges::any_of(guided.choice().values(), &std::string::empty);
    case pb::GuidedDecoding::CONSTRAINT_NOT_SET: return true;
  }
  return true;
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::uint32_t max_request_input(const MockOptions& options) {
  return std::max(options.max_model_len, kReservedInput + 1) - kReservedInput;
}

std::optional<Status> check_sglang_fields(const pb::GenerateRequest& request,
                                          const MockOptions& options) {
  const pb::SamplingParams& sampling = request.sampling_params();
  if (!options.has(Capability::SamplingExtras) || !sampling.has_guided_decoding()) {
    return std::nullopt;
  }
  if (sampling.has_json_schema() || sampling.has_regex()) {
    return refused("legacy json_schema/regex cannot be combined with guided_decoding");
  }
  if (is_empty(sampling.guided_decoding())) {
    return refused("guided decoding constraint must not be empty");
  }
  return std::nullopt;
}

SglangOutcome check_sglang_request(const pb::GenerateRequest& request, std::string rid,
                                   const MockOptions& options) {
  SglangRequest out;
  out.streaming = request.stream();
  out.spec.request_id = std::move(rid);
  if (options.role != Role::Aggregated && request.has_disaggregated_params()) {
    const auto& params = request.disaggregated_params();
    out.room =
        BootstrapRoom{params.bootstrap_host(), static_cast<std::uint16_t>(params.bootstrap_port()),
                      params.bootstrap_room()};
  }
  Text wrong = check_rank(request, options, out);
  if (!wrong) {
    wrong = check_lengths(request, options);
  }
  if (!wrong && options.has(Capability::SamplingExtras) && request.has_max_thinking_tokens()) {
    wrong = "max_thinking_tokens requires the server to be launched with --enable-strict-thinking";
  }
  if (!wrong) {
    wrong = check_adapter(request.lora_path(), options);
  }
  if (!wrong) {
    wrong = check_sampling(request.sampling_params());
  }
  if (wrong) {
    return raised(std::move(*wrong));
  }
  for (const std::int32_t id : request.input_ids()) {
    if (id < 0 ||
        (options.vocab_size > 0 && static_cast<std::uint64_t>(id) >= options.vocab_size)) {
      return SglangDeath{id};
    }
    out.spec.prompt.push_back(static_cast<TokenId>(id));
  }
  if (auto grammar = bad_grammar(request.sampling_params())) {
    return SglangAbort{std::move(*grammar), 400, true, true};
  }
  if (out.spec.prompt.size() >= max_request_input(options)) {
    return SglangAbort{
        fmt::format("Input length ({} tokens) exceeds the maximum allowed length ({} tokens). Use "
                    "a shorter input or enable --allow-auto-truncate.",
                    out.spec.prompt.size(), max_request_input(options)),
        400, true, false};
  }
  if (options.role != Role::Aggregated && !out.room) {
    return SglangAbort{
        fmt::format("Invalid request: Disaggregated request received without bootstrap room id. "
                    "req.rid='{}'",
                    out.spec.request_id),
        400, false, false};
  }
  out.choices = static_cast<std::uint32_t>(std::clamp<std::int32_t>(
      request.sampling_params().n(), 1, static_cast<std::int32_t>(kMaxChoices)));
  set_stop_rules(request, options, out);
  set_logprobs(request, out);
  out.counts_reasoning = options.has(Capability::SamplingExtras) && request.require_reasoning() &&
                         !options.reasoning_parser.empty();
  if (options.role != Role::Aggregated) {
    // Each half is one sequence, and the first one ends with its first token.
    const bool transfers = out.room->host != kNoTransferHost;
    out.choices = 1;
    out.spec.awaits_peer = options.role == Role::Prefill && transfers;
    out.spec.keep_blocks = options.role == Role::Prefill;
    out.spec.prompt_arrives = out.spec.awaits_kv = options.role == Role::Decode;
    if (options.role == Role::Prefill) {
      out.spec.stop.max_new_tokens = 1;
      out.spec.stop.min_new_tokens = 0;
      out.no_tokens = false;
    }
  }
  out.spec.text = options.has(Capability::ReturnText) && request.return_text();
  out.spec.text = out.spec.text || !out.spec.stop_strings.empty();
  out.spec.token_ids = true;
  out.spec.cache_key.lora = request.lora_path();
  out.spec.cache_key.lora_id = options.lora_id(request.lora_path());
  out.spec.cache_key.session_id = request.session_id();
  return out;
}

}  // namespace fairlead::mock
