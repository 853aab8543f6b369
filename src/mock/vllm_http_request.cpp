#include "mock/vllm_http_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "mock/checked_fields.hpp"
#include "mock/vllm_handoff.hpp"
#include "mock/vllm_http_error.hpp"
#include "mock/vllm_http_fields.hpp"

namespace fairlead::mock {
namespace {

using json::Value;

constexpr std::uint32_t kPythonMaxTokens = 16;

Refusal invalid(std::string message, std::string param = {}) {
  return {Refusal::Kind::Invalid, std::move(message), std::move(param)};
}

std::string random_hex(std::size_t digits) {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}", random()).substr(0, digits);
}

// Python's repr of a value that came as JSON.
std::string repr(const Value& value) {
  if (const std::string* text = value.as_string()) {
    return fmt::format("'{}'", *text);
  }
  if (const bool* flag = value.as_bool()) {
    return *flag ? "True" : "False";
  }
  return json::dump(value);
}

class Reader {
 public:
  Reader(const Value& body, std::optional<std::string_view> rank, const MockOptions& options)
      : options_(options),
        python_(is_python(options.flavor)),
        rank_(rank),
        body_(&body),
        sampling_(body.find("sampling_params")) {}

  HttpOutcome read() {
    read_envelope();
    Check failed = python_ ? check_python_form() : check_rust_form();
    if (!failed) {
      failed = check_model();
    }
    if (!failed) {
      failed = take_extra_args();
    }
    if (!failed) {
      failed = check_values();
    }
    HttpOutcome outcome;
    if (failed) {
      outcome.refusal = std::move(failed);
      outcome.as_event = as_event_ && request_.stream;
    } else {
      outcome.request = std::move(request_);
    }
    return outcome;
  }

 private:
  GenerateSpec& spec() { return request_.spec; }

  void read_envelope() {
    std::string id = body_.text("request_id");
    if (id.empty()) {
      id = random_hex(python_ ? 16 : 8);
    }
    request_.public_id = python_ ? "generate-tokens-" + id : id;
    spec().request_id = std::move(id);
    request_.stream = body_.flag("stream");
    const CheckedFields stream_options(body_.find("stream_options"));
    request_.include_usage = stream_options.flag("include_usage");
    request_.continuous_usage =
        request_.include_usage && stream_options.flag("continuous_usage_stats");
    spec().prompt = body_.ids("token_ids");
    spec().prompt_token_ids = body_.flag("return_token_ids");
    spec().cache_key.salt = body_.text("cache_salt");
    spec().token_ids = true;
  }

  Check check_rust_form() {
    if (const auto n = sampling_.integer("n"); n && *n != 1) {
      return invalid("Only n=1 is supported.", "n");
    }
    if (options_.flavor == HttpFlavor::Rust033) {
      if (sampling_.find("stop")) {
        return invalid("stop is not supported.", "stop");
      }
      const Value* mode = body_.find("output_mode");
      if (mode && !(mode->as_string() && *mode->as_string() == "tokens")) {
        return invalid(R"(Only output_mode="tokens" is supported.)", "output_mode");
      }
    }
    if (spec().prompt.empty()) {
      return invalid("token_ids must contain at least one token ID.", "token_ids");
    }
    spec().text = false;
    return std::nullopt;
  }

  Check check_python_form() {
    const std::string mode = body_.text("output_mode");
    if (!mode.empty() && mode != "tokens" && mode != "text") {
      return Refusal{Refusal::Kind::Malformed,
                     fmt::format("1 validation error:\n  {{'type': 'literal_error', 'loc': "
                                 "'body.output_mode', 'msg': \"Input should be 'tokens' or "
                                 "'text'\", 'input': '{}'}}",
                                 mode),
                     "body.output_mode"};
    }
    request_.output_text = mode == "text";
    if (const Value* stop = sampling_.find("stop")) {
      if (const std::string* one = stop->as_string()) {
        spec().stop_strings.push_back(*one);
      } else {
        for (const Value& item : *stop->as_array()) {
          spec().stop_strings.push_back(*item.as_string());
        }
      }
      if (std::ranges::any_of(spec().stop_strings, &std::string::empty)) {
        return invalid("stop cannot contain an empty string.");
      }
    }
    spec().include_stop_string = sampling_.flag("include_stop_str_in_output");
    spec().text = request_.output_text || !spec().stop_strings.empty();
    return check_python_sampling();
  }

  Check check_python_sampling() {
    const auto n = sampling_.integer("n").value_or(1);
    const auto temperature = sampling_.real("temperature");
    if (n < 1) {
      return invalid(fmt::format("n must be at least 1, got {}.", n));
    }
    if (temperature && !(*temperature >= 0)) {
      return invalid(fmt::format("temperature must be non-negative, got {}.", *temperature),
                     "temperature");
    }
    if (n > 1) {
      return temperature == 0.0F
                 ? invalid(fmt::format("n must be 1 when using greedy sampling, got {}.", n))
                 : invalid("n above 1 is not simulated.", "n");
    }
    if (const auto tokens = sampling_.integer("max_tokens"); tokens && *tokens < 1) {
      return invalid(fmt::format("max_tokens must be at least 1, got {}.", *tokens), "max_tokens");
    }
    if (const auto tokens = sampling_.integer("min_tokens"); tokens && *tokens < 0) {
      return invalid(
          fmt::format("min_tokens must be greater than or equal to 0, got {}.", *tokens));
    }
    return std::nullopt;
  }

  Check check_model() {
    const std::string model = body_.text("model");
    if (model.empty() || options_.is_base_model(model)) {
      request_.model = model.empty() ? options_.model : model;
      return std::nullopt;
    }
    if (const std::uint32_t id = options_.lora_id(model)) {
      request_.model = model;
      spec().cache_key.lora = model;
      spec().cache_key.lora_id = id;
      return std::nullopt;
    }
    std::string message = fmt::format("The model `{}` does not exist.", model);
    if (python_) {
      message += fmt::format(" Valid aliases: {}", options_.model);
      for (const std::string& alias : options_.aliases) {
        message += fmt::format(", {}", alias);
      }
      message += '.';
    }
    return Refusal{Refusal::Kind::NotFound, std::move(message), "model"};
  }

  // What the documented processor makes of `target_token`: a whole number forces every token, zero
  // counts as unset. Only the Python server looks at it before the engine does.
  Check take_extra_args() {
    for (const std::string_view key : extra_args_keys(options_)) {
      if (const Value* given = sampling_.find(key)) {
        request_.extra_args = *given;
      }
    }
    const Value* target = request_.extra_args.find("target_token");
    if (!target || target->is_null()) {
      return std::nullopt;
    }
    const std::int64_t* id = target->as_int();
    const bool usable =
        id && *id >= 0 && *id <= std::int64_t{std::numeric_limits<TokenId>::max()} &&
        (options_.vocab_size == 0 || static_cast<std::uint64_t>(*id) < options_.vocab_size);
    if (usable && *id > 0) {
      spec().forced = static_cast<TokenId>(*id);
    }
    if (python_ && (!id || *id < 0)) {
      return invalid(
          fmt::format("target_token must be a non-negative integer, got {}", repr(*target)));
    }
    return std::nullopt;
  }

  Check check_values() {
    Check failed = check_temperature();
    if (!failed) {
      failed = check_logprobs();
    }
    if (!failed) {
      failed = check_rank();
    }
    as_event_ = python_;
    if (!failed) {
      failed = check_prompt();
    }
    if (!failed) {
      failed = check_stopping();
    }
    if (!failed) {
      failed = check_decoding();
    }
    if (!failed) {
      const Value* params = body_.find("kv_transfer_params");
      failed = check_handoff(params ? *params : Value(), options_.role);
    }
    if (!failed) {
      spec().skip_cache_read =
          sampling_.flag("skip_reading_prefix_cache") || spec().prompt_logprobs;
      spec().hand_off = options_.role == Role::Prefill;
      spec().prompt_arrives = options_.role == Role::Decode;
      if (const Value* params = body_.find("kv_transfer_params"); params && spec().prompt_arrives) {
        spec().remote = remote_of(*params);
      }
    }
    return failed;
  }

  Check check_temperature() {
    if (options_.refuse_temperature && sampling_.find("temperature")) {
      return invalid(std::string(kNoTemperature), "temperature");
    }
    SamplingValues values;
    values.temperature = python_ ? std::nullopt : sampling_.real("temperature");
    values.top_p = sampling_.real("top_p");
    values.min_p = sampling_.real("min_p");
    values.presence_penalty = sampling_.real("presence_penalty");
    values.frequency_penalty = sampling_.real("frequency_penalty");
    values.repetition_penalty = sampling_.real("repetition_penalty");
    return check_ranges(values);
  }

  Check check_logprobs() {
    const auto all = static_cast<std::int64_t>(vocabulary_of(options_));
    if (const auto wanted = sampling_.integer("prompt_logprobs")) {
      spec().prompt_logprobs = true;
      if (auto failed =
              check_top_n(*wanted == -1 ? all : *wanted, options_, spec().prompt_candidates)) {
        return failed;
      }
    }
    if (options_.has(Capability::LogprobTokenIds)) {
      spec().candidates.token_ids = sampling_.ids("logprob_token_ids");
      spec().logprobs = !spec().candidates.token_ids.empty();
    }
    if (const auto wanted = sampling_.integer("logprobs"); wanted && !spec().logprobs) {
      spec().logprobs = true;
      return check_top_n(*wanted == -1 ? all : *wanted, options_, spec().candidates);
    }
    return check_candidate_ids(options_, spec().candidates);
  }

  Check check_rank() {
    if (!rank_ || !options_.has(Capability::DataParallelRank)) {
      return std::nullopt;
    }
    const auto [end, error] =
        std::from_chars(rank_->data(), rank_->data() + rank_->size(), spec().rank);
    if (rank_->empty() || error != std::errc() || end != rank_->data() + rank_->size()) {
      spec().rank = 0;
      return python_ ? Check() : invalid("X-data-parallel-rank must be an unsigned 32-bit integer");
    }
    spec().any_rank = false;
    if (!check_rank_exists(options_, spec())) {
      return std::nullopt;
    }
    return invalid(python_ ? fmt::format("data_parallel_rank {} is out of range [0, {}).",
                                         spec().rank, options_.data_parallel_size)
                           : "engine-core error");
  }

  Check check_prompt() {
    if (Check failed = check_vocabulary("prompt", spec().prompt, options_)) {
      if (python_) {
        const auto bad = std::ranges::find_if(
            spec().prompt, [&](TokenId id) { return id >= options_.vocab_size; });
        return invalid(fmt::format("Token id {} is out of vocabulary", *bad));
      }
      return failed;
    }
    return check_length(options_, spec().prompt.size());
  }

  Check check_stopping() {
    const auto wanted = sampling_.integer("max_tokens");
    if (python_ && wanted && *wanted > std::int64_t{options_.max_model_len}) {
      return invalid(fmt::format("max_tokens={0} cannot be greater than max_model_len={1}. Please "
                                 "request fewer output tokens. (parameter=max_tokens, value={0})",
                                 *wanted, options_.max_model_len),
                     "max_tokens");
    }
    if (wanted == 0) {
      return invalid("max_tokens must be at least 1, got 0", "max_tokens");
    }
    const std::int64_t most = wanted.value_or(python_ ? kPythonMaxTokens : 0);
    const std::int64_t least = sampling_.integer("min_tokens").value_or(0);
    constexpr std::int64_t kLargest = std::numeric_limits<std::uint32_t>::max();
    Check failed =
        set_limits(static_cast<std::uint32_t>(std::min(most, kLargest)),
                   static_cast<std::uint32_t>(std::min(least, kLargest)), options_, spec());
    return failed ? failed
                  : set_stop_ids(sampling_.ids("stop_token_ids"), sampling_.flag("ignore_eos"),
                                 options_, spec());
  }

  Check check_decoding() {
    const Value* biases = sampling_.find("logit_bias");
    std::vector<TokenId> biased;
    if (biases && biases->as_object()) {
      for (const json::Member& member : *biases->as_object()) {
        TokenId id = 0;
        std::from_chars(member.key.data(), member.key.data() + member.key.size(), id);
        biased.push_back(id);
      }
    }
    std::ranges::sort(biased);
    if (auto failed = check_vocabulary("logit_bias", std::move(biased), options_)) {
      return failed;
    }
    spec().allowed = sampling_.ids("allowed_token_ids");
    if (auto failed = check_vocabulary("allowed_token_ids", spec().allowed, options_)) {
      return failed;
    }
    const bool known = !python_ && options_.has(Capability::BadWordsTokenIds);
    return known ? check_bad_words(sampling_.id_lists("bad_words_token_ids"), options_)
                 : std::nullopt;
  }

  const MockOptions& options_;
  bool python_;
  std::optional<std::string_view> rank_;
  CheckedFields body_;
  CheckedFields sampling_;
  HttpRequest request_;
  bool as_event_ = false;
};

}  // namespace

HttpOutcome check_http_request(std::string_view text, std::optional<std::string_view> rank,
                               const MockOptions& options) {
  HttpOutcome outcome;
  const auto body = json::parse(text);
  if (!body) {
    outcome.refusal = not_json(options.flavor, text, body.error().message);
    return outcome;
  }
  outcome.refusal = check_types(options, text, *body);
  if (!outcome.refusal) {
    outcome = Reader(*body, rank, options).read();
  }
  const CheckedFields fields(&*body);
  outcome.request_id =
      outcome.request ? outcome.request->spec.request_id : fields.text("request_id");
  outcome.model = fields.text("model");
  if (const Value* sampling = fields.find("sampling_params")) {
    outcome.sampling = *sampling;
  }
  return outcome;
}

}  // namespace fairlead::mock
