#include "api/openai/token_details.hpp"

#include <algorithm>
#include <utility>

namespace fairlead::api::openai {
namespace {

/// `count` candidates and the token itself.
std::uint32_t with_the_token(std::uint32_t count) {
  return count == engine::kAllCandidates ? count : count + 1;
}

/// The number of candidates per token, or nothing when no log-probabilities are wanted.
std::optional<std::uint32_t> candidates(const RequestBody& body,
                                        const chat::SamplingDefaults& defaults) {
  if (!body.logprobs.value_or(defaults.logprobs.has_value())) {
    return std::nullopt;
  }
  return body.top_logprobs.value_or(defaults.logprobs.value_or(0));
}

/// The text of a prompt as its answer repeats it: the client's own unless it was cut.
std::string echo_of(const RequestBody& body, const serving::GenerationSpec& spec, std::size_t i) {
  const auto* text = std::get_if<std::string>(&body.prompts[i]);
  if (text && !body.truncate_prompt_tokens) {
    return *text;
  }
  return spec.assets->tokenizer->decode(spec.prompts[i], text != nullptr);
}

}  // namespace

std::shared_ptr<const TokenDetails> resolve_details(const RequestBody& body,
                                                    const chat::SamplingDefaults& defaults,
                                                    const std::string& chat_echo,
                                                    serving::GenerationSpec& spec) {
  const bool chat = body.endpoint == observe::Endpoint::ChatCompletions;
  const auto count = candidates(body, defaults);
  TokenDetails out;
  out.logprobs = count.has_value();
  out.alternatives = chat ? count.value_or(0) : with_the_token(count.value_or(0));
  out.tokens_as_ids = body.tokens_as_ids;
  out.token_ids = body.return_token_ids;
  out.echo = body.echo;
  out.nvext = body.nvext_fields;
  engine::OutputOptions& asked = spec.request.output;
  if (count && !body.logprob_token_ids.empty()) {
    asked.logprob_token_ids = body.logprob_token_ids;
    out.alternatives = engine::kAllCandidates;
  } else {
    asked.logprobs = count;
  }
  // A stream has no place for them but `nvext`.
  if (!body.stream || (body.prompt_logprobs && body.nvext_fields.prompt_logprobs)) {
    asked.prompt_logprobs = body.prompt_logprobs ? body.prompt_logprobs : defaults.prompt_logprobs;
  }
  if (asked.prompt_logprobs) {
    out.prompt_alternatives = with_the_token(*asked.prompt_logprobs);
  }
  const bool echoed = !chat && out.echo && count;
  if (echoed) {
    asked.prompt_logprobs = std::max(*count, asked.prompt_logprobs.value_or(0));
  }
  // In a stream no choice waits for another one, and echoed entries are each choice's own.
  out.prompt_once = spec.prompt_logprobs_once = !body.stream && !echoed;
  spec.prompt_only = body.max_tokens == 0;
  spec.offsets = out.logprobs || out.token_ids || out.nvext.completion_token_ids;
  if (!spec.offsets && !out.echo && !out.prompt_alternatives && out.nvext == NvextFields()) {
    return nullptr;
  }
  out.tokenizer = spec.assets->tokenizer;
  const bool ids = out.token_ids || asked.prompt_logprobs;
  for (std::size_t i = 0; i < spec.prompts.size(); ++i) {
    PromptDetails& prompt = out.prompts.emplace_back();
    if (ids) {
      prompt.ids = spec.prompts[i];
    }
    if (out.echo) {
      prompt.echo = chat ? chat_echo : echo_of(body, spec, i);
    }
  }
  return std::make_shared<const TokenDetails>(std::move(out));
}

}  // namespace fairlead::api::openai
