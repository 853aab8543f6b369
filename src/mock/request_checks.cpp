#include "mock/request_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <utility>

namespace fairlead::mock {
namespace {

constexpr std::size_t kMaxLogprobIds = 128;

Refusal invalid(std::string message) { return {Refusal::Kind::Invalid, std::move(message), {}}; }

Check check_range(std::string_view name, std::optional<float> value, float low, bool open,
                  float high) {
  if (!value || ((open ? *value > low : *value >= low) && *value <= high)) {
    return std::nullopt;
  }
  return invalid(
      fmt::format("{} must be in {}{}, {}], got {}", name, open ? '(' : '[', low, high, *value));
}

}  // namespace

std::uint64_t vocabulary_of(const MockOptions& options) {
  return options.vocab_size == 0 ? TokenFormula::kFirst + TokenFormula::kSpan : options.vocab_size;
}

std::string make_uuid() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  const std::uint64_t high = (random() & ~0xF000ULL) | 0x4000;
  const std::uint64_t low = (random() & ~(3ULL << 62)) | (1ULL << 63);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF,
                     high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFFULL);
}

Check check_ranges(const SamplingValues& values) {
  Check failed = check_range("temperature", values.temperature, 0, false, 2);
  if (!failed) {
    failed = check_range("top_p", values.top_p, 0, true, 1);
  }
  if (!failed) {
    failed = check_range("min_p", values.min_p, 0, false, 1);
  }
  if (!failed) {
    failed = check_range("presence_penalty", values.presence_penalty, -2, false, 2);
  }
  if (!failed) {
    failed = check_range("frequency_penalty", values.frequency_penalty, -2, false, 2);
  }
  if (!failed && values.repetition_penalty && !(*values.repetition_penalty > 0)) {
    failed = invalid(fmt::format("repetition_penalty must be greater than zero, got {}",
                                 *values.repetition_penalty));
  }
  return failed;
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

Check check_bad_words(const std::vector<std::vector<TokenId>>& sequences,
                      const MockOptions& options) {
  std::vector<TokenId> all;
  for (const std::vector<TokenId>& sequence : sequences) {
    if (sequence.empty()) {
      return invalid("bad_words_token_ids must not contain empty sequences");
    }
    all.insert(all.end(), sequence.begin(), sequence.end());
  }
  return check_vocabulary("bad_words", std::move(all), options);
}

Check check_top_n(std::int64_t top_n, const MockOptions& options, CandidateChoice& choice) {
  const auto vocabulary = static_cast<std::int64_t>(vocabulary_of(options));
  const std::int64_t limit = options.max_logprobs < 0 ? vocabulary : options.max_logprobs;
  if (top_n < 0) {
    return invalid(fmt::format("requested logprobs of {}, which is negative", top_n));
  }
  if (top_n > limit) {
    return invalid(fmt::format("requested logprobs of {}, which is greater than max allowed: {}",
                               top_n, limit));
  }
  choice.top_n = static_cast<std::uint32_t>(top_n);
  return std::nullopt;
}

Check check_candidate_ids(const MockOptions& options, const CandidateChoice& choice) {
  if (choice.token_ids.size() > kMaxLogprobIds) {
    return invalid(
        fmt::format("requested {} logprob_token_ids, which is greater than max "
                    "allowed: {}",
                    choice.token_ids.size(), kMaxLogprobIds));
  }
  return check_vocabulary("logprob_token_ids", choice.token_ids, options);
}

Check check_length(const MockOptions& options, std::size_t prompt) {
  if (prompt < options.max_model_len) {
    return std::nullopt;
  }
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

Check set_limits(std::uint32_t max_tokens, std::uint32_t min_tokens, const MockOptions& options,
                 GenerateSpec& spec) {
  const auto room = static_cast<std::uint32_t>(options.max_model_len - spec.prompt.size());
  const std::uint32_t most = max_tokens == 0 ? room : max_tokens;
  if (min_tokens > most) {
    return invalid(
        fmt::format("`min_tokens` must be less than or equal to `max_tokens`, got "
                    "min_tokens={}, max_tokens={}",
                    min_tokens, most));
  }
  spec.stop.max_new_tokens = std::min(most, room);
  spec.stop.min_new_tokens = min_tokens;
  return std::nullopt;
}

Check set_stop_ids(std::vector<TokenId> ids, bool ignore_eos, const MockOptions& options,
                   GenerateSpec& spec) {
  spec.stop.ignore_eos = ignore_eos;
  spec.stop.stop_ids = std::move(ids);
  if (auto failed = check_vocabulary("stop_token_ids", spec.stop.stop_ids, options)) {
    return failed;
  }
  if (!options.eos_token_ids.empty()) {
    spec.stop.eos = options.eos_token_ids.front();
    if (!ignore_eos) {
      spec.stop.stop_ids.insert(spec.stop.stop_ids.end(), options.eos_token_ids.begin() + 1,
                                options.eos_token_ids.end());
    }
  }
  std::ranges::sort(spec.stop.stop_ids);
  return std::nullopt;
}

Check check_rank_exists(const MockOptions& options, const GenerateSpec& spec) {
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

}  // namespace fairlead::mock
