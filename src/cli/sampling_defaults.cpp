#include "cli/sampling_defaults.hpp"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string_view>

#include "base/log.hpp"
#include "engine/extra_args.hpp"
#include "engine/request.hpp"

namespace fairlead::cli {
namespace {

Result<> set_number(std::string_view key, const json::Value& value, double minimum, double maximum,
                    std::optional<double>& out) {
  double number = 0;
  if (!value.number(number) || number < minimum || number > maximum) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}` must be a number from {} to {}", key, minimum, maximum));
  }
  out = number;
  return {};
}

Result<> set_integer(std::string_view key, const json::Value& value, std::int64_t minimum,
                     std::int64_t& out) {
  const std::int64_t* integer = value.as_int();
  if (!integer || *integer < minimum || *integer > std::numeric_limits<std::int32_t>::max()) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`{}` must be a whole number of at least {}", key, minimum));
  }
  out = *integer;
  return {};
}

/// A count of candidates: up to 20, and in prompts any number or -1 for the whole vocabulary.
std::optional<std::uint32_t> logprob_count(std::string_view key, const json::Value& value) {
  constexpr std::int64_t kMost = 20;
  const bool prompt = key == "prompt_logprobs";
  const std::int64_t* count = value.as_int();
  if (!count || *count < (prompt ? -1 : 0) ||
      *count > (prompt ? std::numeric_limits<std::int32_t>::max() : kMost)) {
    return std::nullopt;
  }
  return *count < 0 ? engine::kAllCandidates : static_cast<std::uint32_t>(*count);
}

bool is_count(std::string_view key) { return key == "logprobs" || key == "prompt_logprobs"; }

Result<> set_member(std::string_view key, const json::Value& value,
                    chat::SamplingDefaults& defaults) {
  if (key == "temperature") {
    return set_number(key, value, 0, 2, defaults.temperature);
  }
  if (key == "top_p") {
    return set_number(key, value, 0, 1, defaults.top_p);
  }
  if (key == "min_p") {
    return set_number(key, value, 0, 1, defaults.min_p);
  }
  if (key == "repetition_penalty") {
    return set_number(key, value, 0, 100, defaults.repetition_penalty);
  }
  std::int64_t integer = 0;
  if (key == "top_k") {
    const Result<> set = set_integer(key, value, -1, integer);
    defaults.top_k = integer;
    return set;
  }
  if (key == "max_tokens" || key == "max_new_tokens") {
    const Result<> set = set_integer(key, value, 1, integer);
    defaults.max_new_tokens = static_cast<std::uint32_t>(integer);
    return set;
  }
  if (is_count(key)) {
    if (const auto count = logprob_count(key, value)) {
      (key == "logprobs" ? defaults.logprobs : defaults.prompt_logprobs) = count;
    }
    return {};
  }
  if (key == "extra_args") {
    const json::Object* object = value.as_object();
    if (!object) {
      return fail(ErrorCode::InvalidRequest, "`extra_args` must be an object");
    }
    engine::overlay_members(defaults.extra_args, *object);
    return {};
  }
  return fail(ErrorCode::InvalidRequest,
              fmt::format("unknown key `{}`; known are temperature, top_p, top_k, min_p, "
                          "repetition_penalty, max_tokens, logprobs, prompt_logprobs, extra_args",
                          key));
}

}  // namespace

Result<> overlay_sampling(const json::Value& params, chat::SamplingDefaults& defaults) {
  const json::Object* object = params.as_object();
  if (!object) {
    return {};
  }
  for (const json::Member& member : *object) {
    if (Result<> set = set_member(member.key, member.value, defaults); !set) {
      return set;
    }
  }
  return {};
}

void drop_wrong_counts(std::string_view origin, json::Value& params) {
  json::Object* object = params.as_object();
  if (!object) {
    return;
  }
  for (const std::string_view key : {"logprobs", "prompt_logprobs"}) {
    const json::Value* value = object->find(key);
    if (value && !logprob_count(key, *value)) {
      log::warn("{}: `{}` is no count of log-probabilities and is ignored", origin, key);
      object->erase(key);
    }
  }
}

}  // namespace fairlead::cli
