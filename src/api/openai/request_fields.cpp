#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "api/openai/request_parser.hpp"

namespace fairlead::api::openai {

/// Every request field that OpenAI or vLLM documents, and those of the extension lists.
struct FieldTable {
  using P = RequestParser;
  static constexpr std::uint8_t kChat = P::kChat;
  static constexpr std::uint8_t kCompletions = P::kCompletions;
  static constexpr std::uint8_t kBoth = P::kBoth;
  static constexpr std::uint8_t kPrompt = P::kPrompt;

  // Sorted by name for the binary search; checked below.
  static constexpr auto kFields = std::to_array<P::Field>({
      {"add_generation_prompt", kChat | kPrompt, &P::read_add_generation_prompt},
      {"add_special_tokens", kBoth | kPrompt, &P::read_add_special_tokens},
      {"allowed_token_ids", kBoth, &P::read_allowed_token_ids},
      {"audio", kChat, &P::only_null},
      {"bad_words", kBoth, &P::read_bad_words},
      {"bad_words_token_ids", kBoth, &P::read_bad_words_token_ids},
      {"best_of", kCompletions, &P::read_best_of},
      {"cache_salt", kBoth, &P::read_cache_salt},
      {"chat_template", kChat | kPrompt, &P::only_null},
      {"chat_template_args", kChat | kPrompt, &P::read_template_kwargs},
      {"chat_template_kwargs", kChat | kPrompt, &P::read_template_kwargs},
      {"continue_final_message", kChat | kPrompt, &P::read_continue_final_message},
      {"detokenize", kBoth, &P::only_true},
      {"documents", kChat | kPrompt, &P::read_documents},
      {"ec_transfer_params", kBoth, &P::only_null},
      {"echo", kBoth, &P::read_echo},
      {"frequency_penalty", kBoth, &P::read_frequency_penalty},
      {"function_call", kChat, &P::only_null},
      {"functions", kChat | kPrompt, &P::only_empty},
      {"guided_choice", kBoth, &P::only_null},
      {"guided_decoding_backend", kBoth, &P::only_null},
      {"guided_grammar", kBoth, &P::only_null},
      {"guided_json", kBoth, &P::only_null},
      {"guided_regex", kBoth, &P::only_null},
      {"guided_whitespace_pattern", kBoth, &P::only_null},
      {"ignore_eos", kBoth, &P::read_ignore_eos},
      {"include_reasoning", kChat, &P::only_true},
      {"include_stop_str_in_output", kBoth, &P::read_include_stop},
      {"kv_transfer_params", kBoth, &P::only_null},
      {"length_penalty", kBoth, &P::accept_number},
      {"logit_bias", kBoth, &P::read_logit_bias},
      {"logprob_token_ids", kBoth, &P::read_logprob_token_ids},
      {"logprobs", kBoth, &P::read_logprobs},
      {"max_completion_tokens", kChat, &P::read_max_completion_tokens},
      {"max_tokens", kBoth, &P::read_max_tokens},
      {"media_io_kwargs", kBoth | kPrompt, &P::only_empty},
      {"messages", kChat | kPrompt, &P::read_messages},
      {"metadata", kBoth, &P::accept_any},
      {"min_p", kBoth, &P::read_min_p},
      {"min_tokens", kBoth, &P::read_min_tokens},
      {"mm_processor_kwargs", kBoth | kPrompt, &P::only_empty},
      {"modalities", kChat, &P::read_modalities},
      {"model", kBoth | kPrompt, &P::read_model},
      {"n", kBoth, &P::read_n},
      {"nvext", kBoth, &P::read_nvext},
      {"parallel_tool_calls", kChat, &P::accept_bool},
      {"prediction", kChat, &P::accept_any},
      {"presence_penalty", kBoth, &P::read_presence_penalty},
      {"priority", kBoth, &P::read_priority},
      {"prompt", kCompletions | kPrompt, &P::read_prompt},
      {"prompt_cache_key", kBoth, &P::accept_string},
      {"prompt_cache_retention", kBoth, &P::accept_string},
      {"prompt_embeds", kCompletions | kPrompt, &P::only_null},
      {"prompt_logprobs", kBoth, &P::read_prompt_logprobs},
      {"reasoning_effort", kChat | kPrompt, &P::only_null},
      {"repetition_detection", kBoth, &P::only_null},
      {"repetition_penalty", kBoth, &P::read_repetition_penalty},
      {"request_id", kBoth, &P::read_request_id},
      {"response_format", kBoth, &P::read_response_format},
      {"return_assistant_tokens_mask", kChat, &P::only_false},
      {"return_prompt_text", kChat, &P::only_false},
      {"return_token_ids", kBoth, &P::read_return_token_ids},
      {"return_token_offsets", kBoth, &P::only_false},
      {"return_token_strs", P::kTokenize, &P::read_return_token_strs},
      {"return_tokens_as_token_ids", kBoth, &P::read_tokens_as_ids},
      {"routed_experts_prompt_start", kBoth, &P::only_zero},
      {"safety_identifier", kBoth, &P::accept_string},
      {"seed", kBoth, &P::read_seed},
      {"service_tier", kBoth, &P::accept_string},
      {"session_id", kBoth, &P::read_session_id},
      {"skip_special_tokens", kBoth, &P::read_skip_special_tokens},
      {"spaces_between_special_tokens", kBoth, &P::only_true},
      {"stop", kBoth, &P::read_stop},
      {"stop_token_ids", kBoth, &P::read_stop_token_ids},
      {"store", kChat, &P::accept_bool},
      {"stream", kBoth, &P::read_stream},
      {"stream_interval", kBoth, &P::accept_stream_interval},
      {"stream_options", kBoth, &P::read_stream_options},
      {"structured_outputs", kBoth, &P::only_null},
      {"suffix", kCompletions | kPrompt, &P::read_suffix},
      {"temperature", kBoth, &P::read_temperature},
      {"thinking", kChat | kPrompt, &P::only_null},
      {"thinking_token_budget", kBoth, &P::only_null},
      {"tool_choice", kChat, &P::read_tool_choice},
      {"tools", kChat | kPrompt, &P::read_tools},
      {"top_k", kBoth, &P::read_top_k},
      {"top_logprobs", kChat, &P::read_top_logprobs},
      {"top_p", kBoth, &P::read_top_p},
      {"truncate_prompt_tokens", kBoth | kPrompt, &P::read_truncate_prompt_tokens},
      {"truncation_side", kBoth, &P::read_truncation_side},
      {"use_beam_search", kBoth, &P::only_false},
      {"user", kBoth, &P::accept_string},
      {"verbosity", kChat | kPrompt, &P::only_null},
      {"vllm_xargs", kBoth, &P::read_vllm_xargs},
      {"watermarking", kBoth, &P::only_true},
      {"web_search_options", kChat, &P::only_null},
  });
  static_assert(std::ranges::is_sorted(kFields, {}, &P::Field::name));
};

std::span<const RequestParser::Field> RequestParser::fields() { return FieldTable::kFields; }

const RequestParser::Field* RequestParser::find_field(std::string_view name, std::uint8_t where) {
  const auto found =
      std::ranges::lower_bound(FieldTable::kFields, name, {}, &RequestParser::Field::name);
  return found != FieldTable::kFields.end() && found->name == name && (found->where & where) != 0
             ? &*found
             : nullptr;
}

void RequestParser::read_tools(std::string_view name) {
  body_.tools = {};
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  if (tokenizes()) {  // only the template sees them
    body_.tools = reader_.value();
    if (const Result<> checked = reader_.failed() ? Result<>() : check_tools(body_.tools);
        !checked) {
      reader_.fail(checked.error());
    }
    return;
  }
  reader_.array([&](std::size_t) { unsupported(name, "tool calls are not parsed yet"); });
}

void RequestParser::read_return_token_strs(std::string_view name) {
  take_bool_into(name, body_.return_token_strs, false);
}

void RequestParser::read_tool_choice(std::string_view name) {
  if (take_null()) {
    return;
  }
  if (reader_.type() == JsonType::String) {
    const std::string_view choice = reader_.string();
    if (choice == "none" || choice == "auto") {
      return;
    }
    if (choice != "required") {
      return invalid(name, "`tool_choice` must be `none`, `auto`, `required` or a named tool");
    }
  } else if (!expect(name, JsonType::Object)) {
    return;
  }
  unsupported(name, "tool calls are not parsed yet");
}

void RequestParser::read_response_format(std::string_view name) {
  if (take_null() || !expect(name, JsonType::Object)) {
    return;
  }
  const json::Value format = reader_.value();
  const json::Value* type = format.find("type");
  const std::string* text = type ? type->as_string() : nullptr;
  if (!text) {
    return invalid(name, "`response_format.type` must be a string");
  }
  if (*text == "json_object" || *text == "json_schema" || *text == "structural_tag") {
    return unsupported(name, fmt::format("type `{}`", *text));
  }
  if (*text != "text") {
    invalid(name, "`response_format.type` must be `text`, `json_object` or `json_schema`");
  }
}

void RequestParser::read_best_of(std::string_view name) {
  best_of_ = take_integer(name, 1, kMaxChoices);
}

void RequestParser::read_modalities(std::string_view name) {
  if (take_null() || !expect(name, JsonType::Array)) {
    return;
  }
  reader_.array([&](std::size_t) {
    if (expect(name, JsonType::String) && reader_.string() != "text") {
      unsupported(name, "only `text` is");
    }
  });
}

void RequestParser::read_suffix(std::string_view name) {
  if (const auto suffix = take_string(name); suffix && !suffix->empty()) {
    unsupported(name);
  }
}

void RequestParser::only_null(std::string_view name) {
  if (!take_null()) {
    unsupported(name);
  }
}

void RequestParser::only_false(std::string_view name) {
  if (take_bool(name).value_or(false)) {
    unsupported(name);
  }
}

void RequestParser::only_true(std::string_view name) {
  if (!take_bool(name).value_or(true)) {
    unsupported(name, "only true is");
  }
}

void RequestParser::only_zero(std::string_view name) {
  const auto value = take_integer(name, 0, std::numeric_limits<std::int32_t>::max());
  if (value.value_or(0) != 0) {
    unsupported(name);
  }
}

void RequestParser::only_empty(std::string_view name) {
  if (take_null()) {
    return;
  }
  if (reader_.type() == JsonType::Array) {
    return reader_.array([&](std::size_t) { unsupported(name); });
  }
  if (expect(name, JsonType::Object)) {
    reader_.object([&](std::string_view) { unsupported(name); });
  }
}

void RequestParser::accept_bool(std::string_view name) { take_bool(name); }

void RequestParser::accept_string(std::string_view name) { take_string(name); }

void RequestParser::accept_number(std::string_view name) {
  constexpr double kAny = std::numeric_limits<double>::max();
  take_number(name, -kAny, kAny);
}

void RequestParser::accept_any(std::string_view) { reader_.skip(); }

// How many tokens the engine puts into a message changes no content.
void RequestParser::accept_stream_interval(std::string_view name) {
  take_integer(name, 1, std::numeric_limits<std::int32_t>::max());
}

}  // namespace fairlead::api::openai
