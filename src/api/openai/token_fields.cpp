#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "api/openai/request_parser.hpp"

// Fields that ask for log-probabilities and token ids.

namespace fairlead::api::openai {

void RequestParser::read_logprobs(std::string_view name) {
  body_.logprobs.reset();
  if (where_ == kChat) {
    body_.logprobs = take_bool(name);
    return;
  }
  body_.top_logprobs.reset();
  if (reader_.type() == JsonType::Bool) {  // false is what chat calls off
    if (reader_.boolean()) {
      invalid(name, "`logprobs` must be a number, not a boolean");
    }
    body_.logprobs = false;
    return;
  }
  body_.top_logprobs = take_integer(name, 0, kMaxLogprobs);
  if (body_.top_logprobs) {
    body_.logprobs = true;
  }
}

void RequestParser::read_top_logprobs(std::string_view name) {
  body_.top_logprobs = take_integer(name, 0, kMaxLogprobs);
}

void RequestParser::read_prompt_logprobs(std::string_view name) {
  const auto count = take_integer(name, -1, std::numeric_limits<std::int32_t>::max());
  body_.prompt_logprobs.reset();
  if (count) {
    body_.prompt_logprobs =
        *count < 0 ? engine::kAllCandidates : static_cast<std::uint32_t>(*count);
  }
}

void RequestParser::read_logprob_token_ids(std::string_view name) {
  const bool given = reader_.type() == JsonType::Array;
  token_ids(name, body_.logprob_token_ids);
  if (given &&
      (body_.logprob_token_ids.empty() || body_.logprob_token_ids.size() > kMaxLogprobIds)) {
    invalid(name, fmt::format("`logprob_token_ids` must hold 1 to {} ids", kMaxLogprobIds));
  }
}

void RequestParser::read_echo(std::string_view name) { take_bool_into(name, body_.echo, false); }

void RequestParser::read_tokens_as_ids(std::string_view name) {
  take_bool_into(name, body_.tokens_as_ids, false);
}

void RequestParser::read_return_token_ids(std::string_view name) {
  take_bool_into(name, body_.return_token_ids, false);
}

Result<> RequestParser::check_token_fields() const {
  const auto bad = [](std::string message, std::string param) {
    return fairlead::fail(ErrorCode::InvalidRequest, std::move(message), std::move(param));
  };
  const bool chat = where_ == kChat;
  const bool logprobs = body_.logprobs.value_or(false);
  if (chat && !logprobs && body_.top_logprobs.value_or(0) > 0) {
    return bad("`top_logprobs` needs `logprobs` to be true", "top_logprobs");
  }
  if (body_.stream && body_.prompt_logprobs.value_or(0) != 0) {
    return bad("`prompt_logprobs` are not available in streams", "prompt_logprobs");
  }
  if (!body_.logprob_token_ids.empty()) {
    if (!logprobs) {
      return bad("`logprob_token_ids` needs `logprobs`", "logprob_token_ids");
    }
    if (!chat && body_.echo) {
      return bad("`logprob_token_ids` cannot be given for the prompt that `echo` asks for",
                 "logprob_token_ids");
    }
  }
  if (body_.max_tokens == 0 && !body_.echo) {
    return bad("`max_tokens` must be at least 1 unless `echo` is true", "max_tokens");
  }
  const std::size_t choices = std::max<std::size_t>(body_.prompts.size(), 1) * body_.n;
  if (!options_.disable_nvext && body_.nvext_fields.completion_token_ids && choices != 1) {
    return bad(fmt::format("`completion_token_ids` needs exactly one choice, not {}", choices),
               "nvext.extra_fields");
  }
  return {};
}

}  // namespace fairlead::api::openai
