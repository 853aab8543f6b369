#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "api/openai/request.hpp"
#include "base/json.hpp"

namespace fairlead::fuzz {

// Fuzzer bytes as a body, with the room behind it that parsing needs.
inline std::string padded_body(const std::uint8_t* data, std::size_t size) {
  std::string body;
  body.reserve(size + net::http::kBodyPadding);
  body.assign(reinterpret_cast<const char*>(data), size);
  return body;
}

// Whether a refusal says that the client made a mistake.
inline bool blames_client(const Error& error) {
  return error.code == ErrorCode::InvalidRequest || error.code == ErrorCode::UnsupportedField;
}

// The request that fuzzer bytes parse to, or nothing when they were refused. Aborts when the
// refusal is not the client's mistake, and when what was accepted is no JSON by the other parser's
// judgement.
inline std::optional<api::openai::RequestBody> parse_body(observe::Endpoint endpoint,
                                                          const std::uint8_t* data,
                                                          std::size_t size) {
  static api::JsonReader reader;
  api::ApiOptions options;
  options.ignore_unsupported_fields = size % 2 == 0;
  std::string body = padded_body(data, size);
  auto parsed = api::openai::parse_request(endpoint, reader, body, options);
  if (!parsed) {
    if (!blames_client(parsed.error())) {
      std::abort();
    }
    return std::nullopt;
  }
  if (!json::parse(body)) {
    std::abort();
  }
  return *std::move(parsed);
}

// Whether what a request asks to be told about tokens obeys the rules.
inline bool obeys_token_rules(const api::openai::RequestBody& body) {
  namespace openai = api::openai;
  const bool chat = body.endpoint == observe::Endpoint::ChatCompletions;
  const bool logprobs = body.logprobs.value_or(false);
  if (body.top_logprobs.value_or(0) > openai::kMaxLogprobs ||
      (!logprobs && body.top_logprobs.value_or(0) > 0) ||
      (!chat && logprobs && !body.top_logprobs)) {
    return false;
  }
  if (!body.logprob_token_ids.empty() &&
      (!logprobs || body.logprob_token_ids.size() > openai::kMaxLogprobIds ||
       (!chat && body.echo))) {
    return false;
  }
  if (body.stream && body.prompt_logprobs.value_or(0) != 0) {
    return false;
  }
  const std::size_t prompts = chat ? 1 : body.prompts.size();
  return !body.nvext_fields.completion_token_ids || prompts * body.n == 1;
}

}  // namespace fairlead::fuzz
