#include "engine/vllm_http/request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "base/json.hpp"
#include "engine/request_check.hpp"

namespace fairlead::engine::vllm_http {
namespace {

std::unexpected<Error> unsupported(std::string_view field, std::string_view why) {
  return fail(ErrorCode::UnsupportedField, fmt::format("`{}` is not supported: {}", field, why),
              std::string(field));
}

/// vLLM's default for `--max-logprobs`: more may be refused.
constexpr std::uint32_t kUsualMaxLogprobs = 20;

/// What the server would drop without a word, or cannot read.
Result<> check_dialect(const GenerateRequest& request, const Dialect& dialect) {
  constexpr std::string_view kUnknown = "the engine's token route does not know it";
  if (request.extra_args_required && dialect.args_key == Dialect::ArgsKey::None) {
    return unsupported("vllm_xargs", "the engine's token route has no key for extra arguments");
  }
  if (!request.output.logprob_token_ids.empty()) {
    if (!dialect.logprob_token_ids) {
      return unsupported("logprob_token_ids", kUnknown);
    }
    if (request.output.logprob_token_ids.size() > kMaxLogprobTokenIds) {
      return unsupported("logprob_token_ids",
                         fmt::format("more than {} ids do not fit", kMaxLogprobTokenIds));
    }
  }
  if (request.sampling.unset) {
    return {};
  }
  if (!request.sampling.bad_words.empty() && !dialect.bad_words_token_ids) {
    return unsupported("bad_words", kUnknown);
  }
  if (!request.sampling.logit_bias.empty() && !dialect.logit_bias) {
    return unsupported("logit_bias", "the engine's token route cannot read it");
  }
  return {};
}

void append_ids(std::string& out, std::span<const TokenId> ids) {
  constexpr std::size_t kDigits = 11;  // of the largest id, and a comma
  const std::size_t start = out.size();
  out.resize_and_overwrite(start + ids.size() * kDigits + 2, [&](char* data, std::size_t size) {
    char* at = data + start;
    char* const end = data + size;
    *at++ = '[';
    for (const TokenId id : ids) {
      at = std::to_chars(at, end, id).ptr;
      *at++ = ',';
    }
    at -= ids.empty() ? 0 : 1;
    *at++ = ']';
    return static_cast<std::size_t>(at - data);
  });
}

/// The shortest text that reads back as the same float.
void append_float(std::string& out, float value) {
  char buffer[32];
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void append_count(std::string& out, std::uint32_t count) {
  if (count == kAllCandidates) {
    out += "-1";
  } else {
    json::append_number(out, std::uint64_t{count});
  }
}

/// Writes members of one object; the values are appended by the caller.
class Members {
 public:
  explicit Members(std::string& out) : out_(out) { out_ += '{'; }
  ~Members() { out_ += '}'; }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  std::string& key(std::string_view name) {
    if (out_.back() != '{') {
      out_ += ',';
    }
    return out_.append("\"").append(name).append("\":");
  }

 private:
  std::string& out_;
};

void append_flag(std::string& out, bool value) { out += value ? "true" : "false"; }

void write_bias(std::string& out, const std::vector<std::pair<TokenId, float>>& biases) {
  Members members(out);
  for (const auto& [id, bias] : biases) {
    append_float(members.key(fmt::format_int(id).c_str()), bias);
  }
}

void write_sampling(Members& members, const SamplingParams& sampling) {
  append_float(members.key("temperature"), sampling.temperature);
  append_float(members.key("top_p"), sampling.top_p);
  json::append_number(members.key("top_k"), std::uint64_t{sampling.top_k});
  append_float(members.key("min_p"), sampling.min_p);
  append_float(members.key("presence_penalty"), sampling.presence_penalty);
  append_float(members.key("frequency_penalty"), sampling.frequency_penalty);
  append_float(members.key("repetition_penalty"), sampling.repetition_penalty);
  if (sampling.seed) {
    json::append_number(members.key("seed"), *sampling.seed);
  }
  if (!sampling.logit_bias.empty()) {
    write_bias(members.key("logit_bias"), sampling.logit_bias);
  }
  if (!sampling.allowed_token_ids.empty()) {
    append_ids(members.key("allowed_token_ids"), sampling.allowed_token_ids);
  }
  if (!sampling.bad_words.empty()) {
    std::string& out = members.key("bad_words_token_ids");
    char separator = '[';
    for (const std::vector<TokenId>& sequence : sampling.bad_words) {
      out += separator;
      append_ids(out, sequence);
      separator = ',';
    }
    out += ']';
  }
}

void write_stopping(Members& members, const StopConditions& stop) {
  json::append_number(members.key("max_tokens"), std::uint64_t{stop.max_tokens});
  json::append_number(members.key("min_tokens"), std::uint64_t{stop.min_tokens});
  append_ids(members.key("stop_token_ids"), stop.stop_token_ids);
  append_flag(members.key("ignore_eos"), stop.ignore_eos);
  if (stop.thinking_token_budget.value_or(-1) != -1) {
    json::append_number(members.key("thinking_token_budget"), *stop.thinking_token_budget);
  }
}

void write_output(Members& members, const OutputOptions& output) {
  if (!output.logprob_token_ids.empty()) {
    std::vector<TokenId> ids = output.logprob_token_ids;
    ids.push_back(ids.back());
    append_ids(members.key("logprob_token_ids"), ids);
    json::append_number(members.key("logprobs"), std::uint64_t{ids.size()});
  } else if (output.logprobs) {
    const std::uint32_t count = *output.logprobs;
    append_count(members.key("logprobs"),
                 count > 0 && count < kUsualMaxLogprobs ? count + 1 : count);
  }
  if (output.prompt_logprobs) {
    append_count(members.key("prompt_logprobs"), *output.prompt_logprobs);
  }
}

void write_structured(std::string& out, const StructuredOutput& structured) {
  Members members(out);
  switch (structured.kind) {
    case StructuredOutput::Kind::JsonSchema:
      json::append_string(members.key("json"), structured.text);
      break;
    case StructuredOutput::Kind::JsonObject: append_flag(members.key("json_object"), true); break;
    case StructuredOutput::Kind::Regex:
      json::append_string(members.key("regex"), structured.text);
      break;
    case StructuredOutput::Kind::Choice: {
      json::Writer writer(members.key("choice"));
      writer.begin_array();
      for (const std::string& choice : structured.choices) {
        writer.string(choice);
      }
      writer.end_array();
      break;
    }
    case StructuredOutput::Kind::Grammar:
      json::append_string(members.key("grammar"), structured.text);
      break;
    case StructuredOutput::Kind::StructuralTag:
      json::append_string(members.key("structural_tag"), structured.text);
      break;
  }
}

void write_sampling_params(std::string& out, const GenerateRequest& request,
                           const Dialect& dialect) {
  Members members(out);
  if (!request.sampling.unset) {
    write_sampling(members, request.sampling);
  }
  write_stopping(members, request.stop);
  write_output(members, request.output);
  if (request.structured) {
    write_structured(members.key("structured_outputs"), *request.structured);
  }
  // Left to the engine otherwise, which also skips the cache when it has to score the prompt.
  if (request.bypass_prefix_cache) {
    append_flag(members.key("skip_reading_prefix_cache"), true);
  }
  // The Python server makes text by default, which nobody reads.
  if (dialect.frontend == Dialect::Frontend::Python) {
    append_flag(members.key("detokenize"), false);
  }
  if (!request.extra_args.is_null() && dialect.args_key != Dialect::ArgsKey::None) {
    json::append(members.key(args_key_name(dialect.args_key)), request.extra_args);
  }
}

/// With running totals, which tell deltas from events that repeat everything.
void write_stream_options(Members& members) {
  append_flag(members.key("stream"), true);
  Members options(members.key("stream_options"));
  append_flag(options.key("include_usage"), true);
  append_flag(options.key("continuous_usage_stats"), true);
}

}  // namespace

bool is_streamed(const GenerateRequest& request) {
  return !request.output.prompt_logprobs && request.kv_transfer_params.is_null() &&
         request.ec_transfer_params.is_null();
}

Result<std::string> write_request(const GenerateRequest& request, const Dialect& dialect,
                                  std::string_view model) {
  Result<> checked = check_request(request);
  if (checked) {
    checked = check_dialect(request, dialect);
  }
  if (!checked) {
    return std::unexpected(std::move(checked.error()));
  }
  std::string body;
  {
    Members members(body);
    append_ids(members.key("token_ids"), request.prompt);
    if (!request.request_id.empty()) {
      json::append_string(members.key("request_id"), request.request_id);
    }
    if (!request.lora_name.empty() || !model.empty()) {
      json::append_string(members.key("model"),
                          request.lora_name.empty() ? model : std::string_view(request.lora_name));
    }
    write_sampling_params(members.key("sampling_params"), request, dialect);
    if (is_streamed(request)) {
      write_stream_options(members);
    }
    if (!request.cache_salt.empty()) {
      json::append_string(members.key("cache_salt"), request.cache_salt);
    }
    if (request.priority != 0) {
      json::append_number(members.key("priority"), std::int64_t{request.priority});
    }
    if (!request.kv_transfer_params.is_null()) {
      json::append(members.key("kv_transfer_params"), request.kv_transfer_params);
    }
    if (!request.ec_transfer_params.is_null()) {
      json::append(members.key("ec_transfer_params"), request.ec_transfer_params);
    }
  }
  return body;
}

net::http::HeaderList request_headers(const GenerateRequest& request) {
  net::http::HeaderList headers{{"content-type", "application/json"}};
  if (request.data_parallel_rank) {
    headers.add("x-data-parallel-rank", fmt::format("{}", *request.data_parallel_rank));
  }
  // A hint for placement; servers that do not know it ignore it.
  if (!request.session_id.empty()) {
    headers.add("x-session-id", request.session_id);
  }
  return headers;
}

}  // namespace fairlead::engine::vllm_http
