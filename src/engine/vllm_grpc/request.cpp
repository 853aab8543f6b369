#include "engine/vllm_grpc/request.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "engine/packed_ids.hpp"
#include "engine/request_check.hpp"
#include "engine/vllm_grpc/json_struct.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

/// Before 0.32.0 zero means the model's default; a value above every vocabulary means off to all.
constexpr std::uint32_t kTopKOff = std::numeric_limits<std::int32_t>::max();

/// Buffers above this size are given back after use.
constexpr std::size_t kKeptBytes = 256 * 1024;

std::unexpected<Error> unsupported(std::string_view field, std::string_view why) {
  return fail(ErrorCode::UnsupportedField, fmt::format("`{}` is not supported: {}", field, why),
              std::string(field));
}

/// Fields that came after the dialect: an older server would drop them without a word.
Result<> check_dialect(const GenerateRequest& request, Dialect dialect) {
  if (request.extra_args_required) {
    return unsupported("vllm_xargs", "the gRPC interface has no place for extra arguments");
  }
  constexpr std::string_view kOld = "the engine's version is too old for it";
  const bool single_service = dialect == Dialect::Generate;
  const bool early = single_service || dialect == Dialect::InferenceEarly;
  if (!takes_bad_words(dialect) && !request.sampling.bad_words.empty()) {
    return unsupported("bad_words", kOld);
  }
  if (early && request.stop.thinking_token_budget.value_or(-1) != -1) {
    return unsupported("thinking_token_budget", kOld);
  }
  if (single_service && !request.lora_name.empty()) {
    return unsupported("lora_name", kOld);
  }
  if (single_service && !request.ec_transfer_params.is_null()) {
    return unsupported("ec_transfer_params", kOld);
  }
  if (single_service && request.data_parallel_rank.value_or(0) != 0) {
    return unsupported("data_parallel_rank", kOld);
  }
  return {};
}

void fill_sampling(const SamplingParams& sampling, Dialect dialect, ::vllm::GenerateRequest& out) {
  out.mutable_sampling()->set_num_sequences(1);
  if (sampling.unset) {
    return;
  }
  out.set_temperature(sampling.temperature);
  ::vllm::RandomSampling& random = *out.mutable_sampling();
  const bool off = sampling.top_k == 0 && !zeros_are_explicit(dialect);
  random.set_top_k(off ? kTopKOff : sampling.top_k);
  random.set_top_p(sampling.top_p);
  random.set_min_p(sampling.min_p);
  if (sampling.seed) {
    random.set_seed(*sampling.seed);
  }
  ::vllm::DecodingParameters& decoding = *out.mutable_decoding();
  decoding.set_presence_penalty(sampling.presence_penalty);
  decoding.set_frequency_penalty(sampling.frequency_penalty);
  decoding.set_repetition_penalty(sampling.repetition_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) {
    (*decoding.mutable_logit_bias())[id] = bias;
  }
  decoding.mutable_allowed_token_ids()->Add(sampling.allowed_token_ids.begin(),
                                            sampling.allowed_token_ids.end());
  for (const std::vector<TokenId>& sequence : sampling.bad_words) {
    decoding.add_bad_words_token_ids()->mutable_ids()->Add(sequence.begin(), sequence.end());
  }
}

void fill_structured(const StructuredOutput& structured, ::vllm::DecodingParameters& out) {
  switch (structured.kind) {
    case StructuredOutput::Kind::JsonSchema: out.set_json(structured.text); break;
    case StructuredOutput::Kind::JsonObject: out.set_json_object(true); break;
    case StructuredOutput::Kind::Regex: out.set_regex(structured.text); break;
    case StructuredOutput::Kind::Choice:
      out.mutable_choice()->mutable_choices()->Add(structured.choices.begin(),
                                                   structured.choices.end());
      break;
    case StructuredOutput::Kind::Grammar: out.set_grammar(structured.text); break;
    case StructuredOutput::Kind::StructuralTag: out.set_structural_tag(structured.text); break;
  }
}

void fill_stopping(const StopConditions& stop, ::vllm::StoppingCriteria& out) {
  out.set_max_new_tokens(stop.max_tokens);
  out.set_min_new_tokens(stop.min_tokens);
  out.mutable_stop_token_ids()->Add(stop.stop_token_ids.begin(), stop.stop_token_ids.end());
  out.set_ignore_eos(stop.ignore_eos);
  if (stop.thinking_token_budget.value_or(-1) != -1) {
    out.set_thinking_token_budget(*stop.thinking_token_budget);
  }
}

void fill_top_n(std::uint32_t count, ::vllm::CandidateTokens& out) {
  if (count == kAllCandidates) {
    out.set_all(true);
  } else {
    out.set_top_n(count);
  }
}

void fill_response(const OutputOptions& output, ::vllm::ResponseOptions& out) {
  out.set_output_text(false);
  out.set_output_token_ids(true);
  out.set_output_logprobs(output.wants_logprobs());
  if (!output.logprob_token_ids.empty()) {
    out.mutable_output_candidates()->mutable_token_ids()->mutable_ids()->Add(
        output.logprob_token_ids.begin(), output.logprob_token_ids.end());
  } else if (output.logprobs.value_or(0) > 0) {
    fill_top_n(*output.logprobs, *out.mutable_output_candidates());
  }
  out.set_prompt_logprobs(output.prompt_logprobs.has_value());
  if (output.prompt_logprobs.value_or(0) > 0) {
    fill_top_n(*output.prompt_logprobs, *out.mutable_prompt_candidates());
  }
}

Result<> fill_kv(const GenerateRequest& request, ::vllm::GenerateRequest& out) {
  if (request.bypass_prefix_cache) {
    out.mutable_kv()->set_bypass_prefix_cache(true);
  }
  if (!request.cache_salt.empty()) {
    out.mutable_kv()->set_cache_salt(request.cache_salt);
  }
  if (!request.kv_transfer_params.is_null()) {
    google::protobuf::Struct& params = *out.mutable_kv()->mutable_kv_transfer_params();
    if (Result<> done = to_struct(request.kv_transfer_params, "kv_transfer_params", params);
        !done) {
      return done;
    }
    fix_remote_port(params);
  }
  if (!request.ec_transfer_params.is_null()) {
    return to_struct(request.ec_transfer_params, "ec_transfer_params",
                     *out.mutable_kv()->mutable_ec_transfer_params());
  }
  return {};
}

/// Appends field 4, `token_ids { ids: [...] }`.
void append_prompt(std::string& out, const std::vector<TokenId>& ids) {
  const std::uint32_t size = packed_size(ids);
  out += '\x22';  // field 4, length-delimited
  append_varint(out, static_cast<std::uint32_t>(1 + varint_size(size) + size));
  out += '\x0a';  // field 1, length-delimited
  append_packed(out, ids, size);
}

}  // namespace

struct RequestWriter::Message {
  ::vllm::GenerateRequest request;
};

RequestWriter::RequestWriter() : message_(std::make_unique<Message>()) {}
RequestWriter::~RequestWriter() = default;

Result<std::string_view> RequestWriter::write(const GenerateRequest& request, Dialect dialect,
                                              std::string_view model) {
  Result<> checked = check_request(request);
  if (checked) {
    checked = check_dialect(request, dialect);
  }
  if (!checked) {
    return std::unexpected(std::move(checked.error()));
  }
  ::vllm::GenerateRequest& out = message_->request;
  out.Clear();
  out.set_request_id(request.request_id);
  out.set_model(std::string(model));
  fill_sampling(request.sampling, dialect, out);
  if (request.structured) {
    fill_structured(*request.structured, *out.mutable_decoding());
  }
  fill_stopping(request.stop, *out.mutable_stopping());
  fill_response(request.output, *out.mutable_response());
  if (Result<> kv = fill_kv(request, out); !kv) {
    return std::unexpected(std::move(kv.error()));
  }
  out.set_priority(request.priority);
  // A hint for placement only: where it is left out, the answer is the same.
  if (!request.session_id.empty() && dialect != Dialect::Generate) {
    out.set_session_id(request.session_id);
  }
  out.set_lora_name(request.lora_name);

  bytes_.clear();
  if (!out.AppendToString(&bytes_)) {
    return fail(ErrorCode::Internal, "the request could not be serialized");
  }
  append_prompt(bytes_, request.prompt);
  return std::string_view(bytes_);
}

void RequestWriter::trim() {
  if (bytes_.capacity() > kKeptBytes) {
    std::string().swap(bytes_);
  }
}

net::grpc::Metadata request_metadata(const GenerateRequest& request) {
  if (!request.data_parallel_rank) {
    return {};
  }
  return {{"x-data-parallel-rank", fmt::format("{}", *request.data_parallel_rank)}};
}

}  // namespace fairlead::engine::vllm_grpc
