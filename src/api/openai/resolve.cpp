#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "api/openai/prepare.hpp"
#include "engine/extra_args.hpp"

namespace fairlead::api::openai {
namespace {

using Ids = std::vector<engine::TokenId>;

// Completions end here unless the client says otherwise.
constexpr std::uint32_t kCompletionTokens = 16;

/// The smaller of two limits of which 0 means unknown.
std::uint32_t smaller_known(std::uint32_t a, std::uint32_t b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

Result<> check_vocabulary(std::span<const engine::TokenId> ids, std::size_t size,
                          std::string_view field) {
  for (const engine::TokenId id : ids) {
    if (id >= size) {
      return fail(
          ErrorCode::InvalidRequest,
          fmt::format("`{}`: token id {} is out of vocabulary; its size is {}", field, id, size),
          std::string(field));
    }
  }
  return {};
}

/// An id without a row in the model's embedding ends the process of some engines. The tokenizer's
/// own ids are looked at only where it has more than there are rows.
Result<> check_vocabulary(const RequestBody& body, const std::vector<Ids>& prompts,
                          std::size_t size, std::size_t tokenizer_size) {
  const bool completions = body.endpoint == observe::Endpoint::Completions;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const bool own = completions && !std::holds_alternative<std::string>(body.prompts[i]);
    if (!own && tokenizer_size <= size) {
      continue;
    }
    if (Result<> checked = check_vocabulary(prompts[i], size, completions ? "prompt" : "messages");
        !checked) {
      return checked;
    }
  }
  if (Result<> checked = check_vocabulary(body.stop_token_ids, size, "stop_token_ids"); !checked) {
    return checked;
  }
  if (Result<> checked = check_vocabulary(body.allowed_token_ids, size, "allowed_token_ids");
      !checked) {
    return checked;
  }
  if (Result<> checked = check_vocabulary(body.logprob_token_ids, size, "logprob_token_ids");
      !checked) {
    return checked;
  }
  for (const Ids& word : body.bad_words_token_ids) {
    if (Result<> checked = check_vocabulary(word, size, "bad_words_token_ids"); !checked) {
      return checked;
    }
  }
  for (const auto& [id, bias] : body.logit_bias) {
    if (Result<> checked = check_vocabulary({&id, 1}, size, "logit_bias"); !checked) {
      return checked;
    }
  }
  return {};
}

/// Shortens the prompts as asked; `room` is what fits beside the output.
Result<> truncate(const RequestBody& body, std::uint32_t context, std::vector<Ids>& prompts) {
  if (!body.truncate_prompt_tokens) {
    return {};
  }
  const std::int64_t reserved = std::max(body.max_tokens.value_or(1), 1U);
  const std::int64_t room = std::int64_t{context} - reserved;
  std::int64_t keep = *body.truncate_prompt_tokens;
  if (context > 0 && (keep > room || (keep == -1 && room < 1))) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`truncate_prompt_tokens` ({}) cannot be greater than the context "
                            "length ({}) less the tokens to generate ({})",
                            keep, context, reserved),
                "truncate_prompt_tokens");
  }
  if (keep == -1) {
    keep = context > 0 ? room : std::numeric_limits<std::int64_t>::max();
  }
  for (Ids& prompt : prompts) {
    const auto size = static_cast<std::int64_t>(prompt.size());
    if (size <= keep) {
      continue;
    }
    if (!body.truncate_right) {
      prompt.erase(prompt.begin(), prompt.begin() + (size - keep));
    } else {
      prompt.resize(static_cast<std::size_t>(keep));
    }
  }
  return {};
}

/// How many tokens may be generated, with the context check that clients know the words of.
Result<std::uint32_t> output_limit(const RequestBody& body, const chat::SamplingDefaults& defaults,
                                   std::uint32_t context, std::size_t longest) {
  const bool chat = body.endpoint == observe::Endpoint::ChatCompletions;
  const std::uint32_t wanted = body.max_tokens.value_or(
      chat ? defaults.max_new_tokens.value_or(std::numeric_limits<std::int32_t>::max())
           : kCompletionTokens);
  if (context == 0) {
    return std::max<std::uint32_t>(wanted, 1);
  }
  if (longest >= context) {
    return std::unexpected(context_exceeded(body, context, longest, false));
  }
  const auto room = static_cast<std::uint32_t>(context - longest);
  if (body.max_tokens && *body.max_tokens > room) {
    return fail(ErrorCode::ContextLengthExceeded,
                fmt::format("`max_tokens` is too large: {}. This model's maximum context length "
                            "is {} tokens and your request has {} input tokens ({} > {} - {}).",
                            *body.max_tokens, context, longest, *body.max_tokens, context, longest),
                "max_tokens");
  }
  return std::clamp<std::uint32_t>(wanted, 1, room);
}

engine::SamplingParams sampling_of(const RequestBody& body,
                                   const chat::SamplingDefaults& defaults) {
  const auto pick = [](const std::optional<float>& asked, const std::optional<double>& of_model,
                       float otherwise) {
    return asked ? *asked : static_cast<float>(of_model.value_or(otherwise));
  };
  engine::SamplingParams out;
  out.temperature = pick(body.temperature, defaults.temperature, 1.0F);
  out.top_p = pick(body.top_p, defaults.top_p, 1.0F);
  out.min_p = pick(body.min_p, defaults.min_p, 0.0F);
  out.repetition_penalty = pick(body.repetition_penalty, defaults.repetition_penalty, 1.0F);
  out.top_k =
      body.top_k
          ? *body.top_k
          : static_cast<std::uint32_t>(std::max<std::int64_t>(defaults.top_k.value_or(0), 0));
  out.presence_penalty = body.presence_penalty.value_or(0.0F);
  out.frequency_penalty = body.frequency_penalty.value_or(0.0F);
  out.seed = body.seed;
  if (!body.logit_bias.empty()) {
    // A repeated id takes its last value, like any repeated key.
    std::map<engine::TokenId, float> bias;
    for (const auto& [id, value] : body.logit_bias) {
      bias[id] = value;
    }
    out.logit_bias.assign(bias.begin(), bias.end());
  }
  out.allowed_token_ids = body.allowed_token_ids;
  out.bad_words = body.bad_words_token_ids;
  return out;
}

/// Adds the tokens of each word as it stands and behind a blank, as vLLM derives them.
/// `size` is the model's vocabulary, beyond which a tokenizer may have ids.
Result<> add_bad_words(const RequestBody& body, const tokenizer::Tokenizer& tokenizer,
                       std::size_t size, engine::SamplingParams& sampling) {
  for (const std::string& word : body.bad_words) {
    const std::string bare = word.substr(word.find_first_not_of(" \t\r\n"));
    Ids first;
    Ids second;
    Result<> encoded = tokenizer.encode(bare, false, first);
    if (encoded) {
      encoded = tokenizer.encode(" " + bare, false, second);
    }
    if (!encoded) {
      return fail(ErrorCode::InvalidRequest, "`bad_words`: " + encoded.error().message,
                  "bad_words");
    }
    for (const Ids* ids : {&first, &second}) {
      if (Result<> checked = check_vocabulary(*ids, size, "bad_words"); !checked) {
        return checked;
      }
    }
    if (!second.empty() && second.size() == first.size() && second.front() != first.front()) {
      sampling.bad_words.push_back(std::move(second));
    }
    if (!first.empty()) {
      sampling.bad_words.push_back(std::move(first));
    }
  }
  return {};
}

engine::StopConditions stops_of(const RequestBody& body, const serving::ModelContext& assets) {
  engine::StopConditions out;
  out.min_tokens = body.min_tokens;
  out.ignore_eos = body.ignore_eos;
  out.stop_token_ids = body.stop_token_ids;
  if (!body.ignore_eos) {
    out.stop_token_ids.insert(out.stop_token_ids.end(), assets.eos_token_ids.begin(),
                              assets.eos_token_ids.end());
  }
  std::ranges::sort(out.stop_token_ids);
  const auto repeated = std::ranges::unique(out.stop_token_ids);
  out.stop_token_ids.erase(repeated.begin(), repeated.end());
  return out;
}

}  // namespace

std::uint32_t context_length(const ServedModel& served) {
  return smaller_known(served.model->context_length, served.assets->context_length);
}

Error context_exceeded(const RequestBody& body, std::uint32_t context, std::size_t tokens,
                       bool at_least) {
  const char* field = body.endpoint == observe::Endpoint::ChatCompletions ? "messages" : "prompt";
  return {ErrorCode::ContextLengthExceeded,
          fmt::format(
              "This model's maximum context length is {} tokens. However, your request has {}{} "
              "input tokens. Please reduce the length of the {}.",
              context, at_least ? "at least " : "", tokens, field),
          field};
}

Result<serving::GenerationSpec> resolve(const RequestBody& body, const ServedModel& served,
                                        std::vector<std::vector<engine::TokenId>> prompts) {
  const serving::ModelContext& assets = *served.assets;
  if (Result<> checked =
          check_vocabulary(body, prompts, assets.id_limit(), assets.tokenizer->vocab_size());
      !checked) {
    return std::unexpected(checked.error());
  }
  const std::uint32_t context = context_length(served);
  if (Result<> cut = truncate(body, context, prompts); !cut) {
    return std::unexpected(cut.error());
  }
  std::size_t longest = 0;
  for (const Ids& prompt : prompts) {
    if (prompt.empty()) {
      const char* field =
          body.endpoint == observe::Endpoint::ChatCompletions ? "messages" : "prompt";
      return fail(ErrorCode::InvalidRequest, fmt::format("`{}` gives no tokens at all", field),
                  field);
    }
    longest = std::max(longest, prompt.size());
  }
  const Result<std::uint32_t> limit = output_limit(body, assets.defaults, context, longest);
  if (!limit) {
    return std::unexpected(limit.error());
  }
  if (body.min_tokens > *limit) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("`min_tokens` ({}) must not exceed the tokens to generate ({})",
                            body.min_tokens, *limit),
                "min_tokens");
  }
  serving::GenerationSpec spec;
  spec.model = served.model;
  spec.assets = served.assets;
  spec.prompts = std::move(prompts);
  spec.n = body.n;
  spec.user_stop_token_ids = body.stop_token_ids;
  spec.stop_strings = body.stop;
  spec.include_stop = body.include_stop;
  spec.skip_special_tokens = body.skip_special_tokens;
  spec.worker_id = body.worker_id;
  spec.prefill_worker_id = body.prefill_worker_id;
  spec.prefill_rank = body.prefill_rank;
  spec.constraints = body.constraints;
  spec.queue = body.queue;
  spec.expected_output = body.expected_output;
  spec.session = body.routing_session.empty() ? body.session_id : body.routing_session;
  spec.request.sampling = sampling_of(body, assets.defaults);
  if (Result<> added =
          add_bad_words(body, *assets.tokenizer, assets.id_limit(), spec.request.sampling);
      !added) {
    return std::unexpected(added.error());
  }
  spec.request.extra_args = engine::merge_extra_args(assets.defaults.extra_args, body.vllm_xargs);
  spec.request.extra_args_required = !body.vllm_xargs.empty();
  spec.request.stop = stops_of(body, assets);
  spec.request.stop.max_tokens = *limit;
  spec.request.lora_name = served.model->lora_name;
  spec.request.cache_salt = body.cache_salt;
  spec.request.session_id = body.session_id;
  spec.request.priority = body.priority;
  spec.request.data_parallel_rank = body.data_parallel_rank;
  return spec;
}

}  // namespace fairlead::api::openai
