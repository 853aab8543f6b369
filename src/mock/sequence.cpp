#include "mock/sequence.hpp"

#include <algorithm>

namespace fairlead::mock {
namespace {

bool is_stop(const StopRules& rules, TokenId token) {
  return std::ranges::binary_search(rules.stop_ids, token);
}

bool ends(const StopRules& rules, TokenId token) {
  return is_stop(rules, token) || (token == rules.eos && !rules.ignore_eos);
}

// The nearest id that ends nothing, downwards first: special tokens are the last of a vocabulary.
TokenId unmasked(const StopRules& rules, TokenId token) {
  TokenId candidate = token;
  while (candidate > 0 && ends(rules, candidate)) {
    --candidate;
  }
  while (ends(rules, candidate)) {
    ++candidate;
  }
  return candidate;
}

}  // namespace

StepOutput draw(const Sequence& sequence) {
  const StopRules& rules = sequence.stop;
  const std::size_t position = sequence.generated();
  const bool masked = position < rules.min_new_tokens;
  StepOutput output;
  output.token = sequence.reply.at(position, sequence.prompt(), sequence.tokens.back());
  if (!output.token && !rules.canvas) {
    if (masked || rules.ignore_eos) {
      output.token =
          sequence.reply.repeated_at(position, sequence.prompt(), sequence.tokens.back());
    } else {
      output.token = rules.eos;
    }
  }
  if (!output.token) {
    output.finish = FinishReason::Stop;
    return output;
  }
  if (masked) {
    output.token = unmasked(rules, *output.token);
  } else if (output.token == rules.eos && !rules.ignore_eos) {
    output.finish = FinishReason::Stop;
    output.eos = true;
    return output;
  } else if (is_stop(rules, *output.token)) {
    output.finish = FinishReason::Stop;
    output.stop_token = output.token;
    return output;
  }
  if (position + 1 >= rules.max_new_tokens) {
    output.finish = FinishReason::Length;
  }
  return output;
}

}  // namespace fairlead::mock
