#include "engine/vllm_http/response.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "engine/vllm_http/answer_json.hpp"
#include "engine/vllm_http/answer_split.hpp"
#include "engine/vllm_http/logprobs.hpp"
#include "engine/vllm_http/status.hpp"
#include "engine/vllm_http/token_event.hpp"

namespace fairlead::engine::vllm_http {
namespace {

constexpr std::string_view kCall = "generate";
constexpr std::string_view kDone = "[DONE]";

/// Messages above this size (log-probabilities over the vocabulary) do not leave their memory
/// behind.
constexpr std::size_t kKeptBytes = 256 * 1024;

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, fmt::format("{}: {}", kCall, message));
}

std::optional<std::uint32_t> to_count(const json::Value* value) {
  const std::int64_t* number = value ? value->as_int() : nullptr;
  if (!number || *number < 0 || *number > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<std::uint32_t>(*number);
}

const json::Value* find_given(const json::Value& object, std::string_view key) {
  const json::Value* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

Result<> read_ids(const json::Value* value, std::vector<TokenId>& out) {
  const json::Array* array = value->as_array();
  if (!array) {
    return protocol_error("token_ids is no list");
  }
  out.clear();
  out.reserve(array->size());
  for (const json::Value& element : *array) {
    const std::optional<std::uint32_t> id = to_count(&element);
    if (!id) {
      return protocol_error("token_ids has something that is no token id");
    }
    out.push_back(*id);
  }
  return {};
}

/// The only choice of a message; null when it has none.
Result<const json::Value*> only_choice(const json::Value& message) {
  const json::Value* value = message.find("choices");
  const json::Array* choices = value ? value->as_array() : nullptr;
  if (!choices) {
    return protocol_error("a message without choices");
  }
  if (choices->empty()) {
    return nullptr;
  }
  const json::Value& choice = choices->front();
  const json::Value* index = find_given(choice, "index");
  if (choices->size() > 1 || (index && to_count(index) != 0U)) {
    return protocol_error("another choice where one sequence was asked for");
  }
  return &choice;
}

json::Value object_or_null(const json::Value& message, std::string_view key) {
  const json::Value* value = message.find(key);
  return value && value->as_object() ? *value : json::Value();
}

}  // namespace

ResponseTranslator::ResponseTranslator(const GenerateRequest& request)
    : output_(request.output), max_tokens_(request.stop.max_tokens) {
  if (output_.prompt_logprobs) {
    prompt_ = request.prompt;
  }
}

Result<> ResponseTranslator::feed_event(ResponseScratch& scratch, std::string_view data,
                                        TokenSink& sink) {
  if (finished_) {
    return {};
  }
  if (!held_ && !output_.wants_logprobs()) [[likely]] {
    std::optional<std::uint32_t> total;
    if (decode_token_event(data, scratch.ids, total)) [[likely]] {
      return feed_tokens(scratch, total, sink);
    }
  }
  if (data == kDone) {
    return end(sink);
  }
  const auto message = parse_answer(data);
  if (!message) {
    return held_ ? release(sink) : Result<>(protocol_error("an event is not JSON"));
  }
  Result<> done = feed_parsed(scratch, *message, sink);
  if (data.size() > kKeptBytes) {
    scratch = {};
  }
  return done;
}

/// New ids and nothing else.
Result<> ResponseTranslator::feed_tokens(ResponseScratch& scratch,
                                         std::optional<std::uint32_t> total, TokenSink& sink) {
  started_ = true;
  const Result<std::size_t> from = first_new(scratch, total);
  if (!from) {
    return std::unexpected(from.error());
  }
  const auto ids = std::span<const TokenId>(scratch.ids).subspan(*from);
  if (Result<> counted = count_tokens(ids.size()); !counted) {
    return counted;
  }
  if (!ids.empty()) {
    sink.on_tokens({.ids = ids, .logprobs = {}, .finish = nullptr});
  }
  return {};
}

Result<> ResponseTranslator::feed_parsed(ResponseScratch& scratch, const json::Value& message,
                                         TokenSink& sink) {
  const json::Value* error = find_given(message, "error");
  if (held_) {
    if (!error) {
      usage_ = read_usage(message);
    }
    return release(sink);
  }
  if (error) {
    return std::unexpected(stream_error(kCall, *error));
  }
  const Result<const json::Value*> choice = only_choice(message);
  if (!choice) {
    return std::unexpected(choice.error());
  }
  started_ = true;
  return *choice ? feed_choice(scratch, **choice, nullptr, read_usage(message), sink) : Result<>();
}

/// `whole` is null for an event.
Result<> ResponseTranslator::feed_choice(ResponseScratch& scratch, const json::Value& choice,
                                         const SplitAnswer* whole, const Usage& usage,
                                         TokenSink& sink) {
  const json::Value* reason = find_given(choice, "finish_reason");
  const json::Value* ids = find_given(choice, "token_ids");
  scratch.ids.clear();
  if (ids) {
    if (Result<> read = read_ids(ids, scratch.ids); !read) {
      return read;
    }
  } else if (!reason) {
    return protocol_error("a choice without token_ids");
  }
  const Result<std::size_t> from = first_new(scratch, usage.completion_tokens);
  if (!from) {
    return std::unexpected(from.error());
  }
  const std::size_t count = scratch.ids.size() - *from;
  std::span<const TokenLogprob> logprobs;
  if (output_.wants_logprobs() && count > 0) {
    // Nothing comes before a whole answer: all of its ids are new.
    Result<> read =
        whole ? read_answer_logprobs(whole->token_logprobs, scratch.ids, output_, scratch.logprobs)
              : read_token_logprobs(choice.find("logprobs"), scratch.ids, *from, output_,
                                    scratch.logprobs);
    if (!read) {
      return read;
    }
    logprobs = std::span(scratch.logprobs).first(count);
  }
  if (Result<> counted = count_tokens(count); !counted) {
    return counted;
  }
  const auto fresh = std::span<const TokenId>(scratch.ids).subspan(*from);
  if (!reason) {
    if (!fresh.empty()) {
      sink.on_tokens({.ids = fresh, .logprobs = logprobs, .finish = nullptr});
    }
    return {};
  }
  const std::string* text = reason->as_string();
  Result<Finish> finish = make_finish(choice, text ? *text : "not a text", scratch.ids);
  if (!finish) {
    return std::unexpected(std::move(finish.error()));
  }
  usage_ = usage;
  held_.emplace(
      Held{{fresh.begin(), fresh.end()}, {logprobs.begin(), logprobs.end()}, std::move(*finish)});
  return {};
}

Result<> ResponseTranslator::feed_answer(ResponseScratch& scratch, std::string body,
                                         TokenSink& sink) {
  std::optional<SplitAnswer> split = split_answer(body);
  const auto message = split ? parse_answer(split->rest) : fail(ErrorCode::EngineProtocol, {});
  if (!message) {
    return protocol_error("the answer is not JSON");
  }
  if (const json::Value* error = find_given(*message, "error")) {
    return std::unexpected(stream_error(kCall, *error));
  }
  const Result<const json::Value*> choice = only_choice(*message);
  if (!choice || !*choice) {
    return choice ? protocol_error("an answer without a choice") : std::unexpected(choice.error());
  }
  if (!find_given(**choice, "finish_reason")) {
    return protocol_error("an answer without a finish reason");
  }
  started_ = true;
  if (Result<> taken = feed_choice(scratch, **choice, &*split, read_usage(*message), sink);
      !taken) {
    return taken;
  }
  held_->finish.kv_transfer_params = object_or_null(*message, "kv_transfer_params");
  held_->finish.ec_transfer_params = object_or_null(*message, "ec_transfer_params");
  if (output_.prompt_logprobs) {
    if (Result<> read = read_prompt_logprobs(split->prompt_logprobs, prompt_,
                                             *output_.prompt_logprobs, scratch.logprobs);
        !read) {
      return read;
    }
  }
  const bool large = body.size() > kKeptBytes;
  std::string().swap(body);  // before the receiver makes its own of it
  sink.on_unfinished(0);
  if (output_.prompt_logprobs) {
    sink.on_prompt({.prompt_tokens = static_cast<std::uint32_t>(prompt_.size()),
                    .logprobs = std::span(scratch.logprobs).first(prompt_.size())});
  }
  Result<> done = release(sink);
  if (large) {
    scratch = {};
  }
  return done;
}

void ResponseTranslator::release_tokens(TokenSink& sink) {
  if (!held_) {
    return;
  }
  const std::size_t kept = held_->finish.reason == FinishReason::Stop ? 1 : 0;
  if (held_->ids.size() <= kept) {
    return;
  }
  const std::size_t count = held_->ids.size() - kept;
  const std::size_t scored = std::min(count, held_->logprobs.size());
  sink.on_tokens({.ids = std::span(held_->ids).first(count),
                  .logprobs = std::span(held_->logprobs).first(scored),
                  .finish = nullptr});
  const auto drop = [](auto& list, std::size_t n) {
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(n));
  };
  drop(held_->ids, count);
  drop(held_->logprobs, scored);
}

Result<> ResponseTranslator::end(TokenSink& sink) {
  if (finished_) {
    return {};
  }
  if (held_) {
    return release(sink);
  }
  return fail(ErrorCode::EngineDisconnected,
              fmt::format("{}: the stream ended before its finish reason", kCall));
}

/// Where the new ids of a message begin; see the class.
Result<std::size_t> ResponseTranslator::first_new(const ResponseScratch& scratch,
                                                  std::optional<std::uint32_t> total) {
  const std::vector<TokenId>& ids = scratch.ids;
  if (total && *total != std::uint64_t{output_tokens_} + ids.size()) {
    const bool repeats = shape_ != Shape::Deltas && *total == ids.size() &&
                         ids.size() >= history_.size() &&
                         std::ranges::equal(history_, std::span(ids).first(history_.size()));
    if (!repeats) {
      return protocol_error(fmt::format("the engine counts {} output tokens where {} arrived",
                                        *total, output_tokens_ + ids.size()));
    }
    shape_ = Shape::Cumulative;
    const std::size_t from = history_.size();
    history_ = ids;
    return from;
  }
  if (shape_ == Shape::Cumulative && !ids.empty() && output_tokens_ > 0) {
    return protocol_error("messages that repeat everything alternate with others");
  }
  if (shape_ == Shape::Unknown) {
    if (total && output_tokens_ > 0 && !ids.empty()) {
      shape_ = Shape::Deltas;
      std::vector<TokenId>().swap(history_);
    } else {
      history_.insert(history_.end(), ids.begin(), ids.end());
    }
  }
  return 0;
}

Result<> ResponseTranslator::count_tokens(std::size_t tokens) {
  if (tokens > max_tokens_ - output_tokens_) [[unlikely]] {
    return protocol_error(fmt::format("more than the {} tokens that were asked for", max_tokens_));
  }
  output_tokens_ += static_cast<std::uint32_t>(tokens);
  return {};
}

Result<Finish> ResponseTranslator::make_finish(const json::Value& choice, std::string_view reason,
                                               const std::vector<TokenId>& ids) const {
  Finish finish;
  finish.output_tokens = output_tokens_;
  if (reason == "stop") {
    finish.reason = FinishReason::Stop;
    const json::Value* stop = find_given(choice, "stop_reason");
    finish.stop_token_id = to_count(stop);
    if (!stop && !ids.empty()) {
      finish.eos_token_id = ids.back();  // the one end that has no stop_reason
    }
  } else if (reason == "length") {
    finish.reason = FinishReason::Length;
  } else if (reason == "abort") {
    finish.reason = FinishReason::Aborted;
  } else if (reason == "error") {
    return fail(ErrorCode::EngineUnknown,
                fmt::format("{}: the engine failed during generation", kCall));
  } else {
    return protocol_error(fmt::format("finish_reason `{}`", reason));
  }
  return finish;
}

ResponseTranslator::Usage ResponseTranslator::read_usage(const json::Value& message) {
  Usage out;
  const json::Value* usage = find_given(message, "usage");
  if (usage) {
    out.completion_tokens = to_count(usage->find("completion_tokens"));
    const json::Value* details = find_given(*usage, "prompt_tokens_details");
    out.cached_tokens = details ? to_count(details->find("cached_tokens")) : std::nullopt;
  }
  return out;
}

/// Hands the terminal chunk on.
Result<> ResponseTranslator::release(TokenSink& sink) {
  Held held = std::move(*held_);
  held_.reset();
  if (usage_.completion_tokens && *usage_.completion_tokens != output_tokens_) {
    return protocol_error(fmt::format("the engine counts {} output tokens where {} arrived",
                                      *usage_.completion_tokens, output_tokens_));
  }
  finished_ = true;
  held.finish.cached_prompt_tokens = usage_.cached_tokens;
  sink.on_tokens({.ids = held.ids, .logprobs = held.logprobs, .finish = &held.finish});
  return {};
}

}  // namespace fairlead::engine::vllm_http
