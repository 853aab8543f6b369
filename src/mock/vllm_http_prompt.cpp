#include <fmt/format.h>

#include "mock/vllm_http_answer.hpp"

// What an answer says of its prompt.

namespace fairlead::mock {

void HttpAnswer::write_prompt_ids(json::Writer& json) const {
  json.begin_array();
  for (const TokenId token : spec_.prompt) {
    json.unsigned_integer(token);
  }
  json.end_array();
}

// The first place has nothing before it; the token itself comes first at the others.
void HttpAnswer::write_position(const ScoredToken* scored) {
  if (!scored) {
    prompt_json_.null();
    return;
  }
  const auto write = [&](const Candidate& candidate) {
    prompt_json_.key(fmt::format("{}", candidate.id)).begin_object();
    prompt_json_.key("logprob").raw(number(candidate.logprob));
    prompt_json_.key("rank").unsigned_integer(candidate.rank);
    prompt_json_.key("decoded_token");
    prompt_json_.string(
        fmt::format(fmt::runtime(python_ ? "<token:{}>" : "token_id:{}"), candidate.id));
    prompt_json_.end_object();
  };
  prompt_json_.begin_object();
  write(scored->token);
  for (const Candidate& candidate : scored->candidates) {
    if (candidate.id != scored->token.id) {
      write(candidate);
    }
  }
  prompt_json_.end_object();
}

// Only a whole body has them.
bool HttpAnswer::prepare() {
  return !request_.stream &&
         prompt_scores_.next([this](const ScoredToken* scored) { write_position(scored); });
}

void HttpAnswer::write_prompt_logprobs(json::Writer& json) const {
  if (!spec_.prompt_logprobs || faults_.null || !prompt_scores_.complete()) {
    json.null();
    return;
  }
  json.begin_array();
  if (!prompt_logprobs_.empty()) {
    json.raw(prompt_logprobs_);
  }
  json.end_array();
}

}  // namespace fairlead::mock
