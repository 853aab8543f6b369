#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "routing/kv_query.hpp"
#include "serving/choice.hpp"

// The part of a choice that takes what its engines say.

namespace fairlead::serving {

void Generation::Choice::PrefillSink::on_prompt(const engine::PromptInfo& info) {
  // The prompt of a continuation is not the client's; and of legs that run together the decode
  // engine may have been heard first, unless the prompt's log-probabilities are waited for.
  if (choice_.delivered_before_ > 0 || choice_.usage_.completion_tokens > 0) {
    return;
  }
  if (auto wrong = choice_.take_prompt(info)) {
    on_error(std::move(*wrong));
  }
}

void Generation::Choice::PrefillSink::on_error(Error error) {
  if (!choice_.prefill_error_ && !choice_.prefilled_) {
    choice_.prefill_error_ = std::move(error);
    choice_.event_.set();
  }
}

// The one token of a prefill leg means nothing, or comes again from the decode engine.
void Generation::Choice::PrefillSink::on_tokens(const engine::TokenChunk& chunk) {
  choice_.last_message_ = net::Reactor::current()->now();
  if (!chunk.finish) {
    return;
  }
  if (chunk.finish->reason == engine::FinishReason::Aborted) {
    on_error({ErrorCode::EngineCancelled, "the prefill engine aborted the request", {}});
    return;
  }
  choice_.on_prefilled(*chunk.finish);
}

void Generation::Choice::on_prefilled(const engine::Finish& finish) {
  if (wants_prompt_logprobs_ && !prompt_seen_ && request_.output.prompt_logprobs) {
    prefill_sink_.on_error(
        {ErrorCode::EngineProtocol, "the prompt's log-probabilities are missing", {}});
    return;
  }
  take_cached(finish, *prefill_);
  if (hand_off_ == HandOff::AfterPrefill) {
    Result<json::Value> held = take_over(finish);
    if (!held) {
      prefill_sink_.on_error(std::move(held.error()));
      return;
    }
    held_ = std::move(*held);
  }
  prefilled_ = true;
  if (main_ && !owner_.paused_) {
    main_->resume();
  }
  event_.set();
}

std::optional<Error> Generation::Choice::take_prompt(const engine::PromptInfo& info) {
  if (ended_) {
    return std::nullopt;
  }
  last_message_ = net::Reactor::current()->now();
  if (request_.output.prompt_logprobs) {
    if (info.logprobs.size() != request_.prompt.size()) {
      return Error{ErrorCode::EngineProtocol,
                   fmt::format("{} log-probabilities for {} prompt tokens", info.logprobs.size(),
                               request_.prompt.size()),
                   {}};
    }
    count_missing(info.logprobs);
    prompt_seen_ = true;
  }
  owner_.encoder_.on_prompt(index_, info);
  owner_.check_encoder();
  return std::nullopt;
}

// Of a pair the prefill engine speaks of the prompt; of a continuation its prompt is not the
// client's.
void Generation::Choice::on_prompt(const engine::PromptInfo& info) {
  if (in_pair_ || delivered_before_ > 0) {
    return;
  }
  if (auto wrong = take_prompt(info)) {
    on_error(std::move(*wrong));
  }
}

void Generation::Choice::on_tokens(const engine::TokenChunk& chunk) {
  if (ended_) {
    return;
  }
  last_message_ = owner_.last_output_ = net::Reactor::current()->now();
  if (chunk.finish && chunk.finish->reason == engine::FinishReason::Aborted) {
    on_error({ErrorCode::EngineCancelled, "the engine aborted the request", {}});
    return;
  }
  if (auto wrong = check_logprobs(chunk)) {
    on_error(std::move(*wrong));
    return;
  }
  if (!chunk.ids.empty()) {
    if (!held_.is_null()) {
      held_ = {};  // the decode engine has it
    }
    moved(observe::MigrationOutcome::Success);
  }
  if (owner_.spec_.prompt_only) {
    drop_output(chunk);
    return;
  }
  if (usage_.completion_tokens == 0 && !chunk.ids.empty() && !keeps_prompt_) {
    std::vector<engine::TokenId>().swap(request_.prompt);  // never sent again once output began
  }
  text_.clear();
  OutputProcessor::Step step = processor_.push(chunk.ids, chunk.finish, text_);
  usage_.completion_tokens += step.used;
  if (keeps_prompt_) {
    keep(chunk.ids.first(step.used));
  }
  if (chunk.finish && main_ && (!in_pair_ || !usage_.cached_known) && delivered_before_ == 0) {
    take_cached(*chunk.finish, *main_);
  }
  if (chunk.finish && in_pair_ && hand_off_ == HandOff::AfterPrefill) {
    note_remote_kv(*chunk.finish);
  }
  owner_.scope_.tokens(step.used, owner_.service_.seconds());
  if (step.used > 0 || !text_.empty()) {
    const auto logprobs = chunk.logprobs.first(std::min(step.used, chunk.logprobs.size()));
    count_missing(logprobs);
    owner_.encoder_.on_delta(
        index_, {text_, chunk.ids.first(step.used), logprobs, processor_.offsets()}, usage_);
    owner_.check_encoder();
  }
  if (step.end) {
    ended_ = true;
    owner_.encoder_.on_end(index_, *step.end, usage_);
    event_.set();
  }
  owner_.apply_pressure();
}

// Output that an engine which goes on from here would have to know.
void Generation::Choice::keep(std::span<const engine::TokenId> ids) {
  const std::uint32_t most = owner_.service_.options().migration_max_seq_len;
  const bool too_long = most > 0 && request_.prompt.size() + ids.size() > most;
  const std::size_t limit = owner_.spec_.assets->id_limit();
  if (too_long || std::ranges::any_of(ids, [limit](auto id) { return id >= limit; })) {
    keeps_prompt_ = false;
    owner_.shard_.migration_too_long.add(too_long ? 1 : 0);
    std::vector<engine::TokenId>().swap(request_.prompt);
    return;
  }
  request_.prompt.insert(request_.prompt.end(), ids.begin(), ids.end());
}

bool Generation::Choice::on_unfinished(std::size_t bytes) {
  if (ended_ || owner_.error_) {
    return false;
  }
  set_unfinished(bytes);
  owner_.check_encoder();
  return !owner_.error_;
}

void Generation::Choice::on_error(Error error) {
  if (!ended_) {
    ended_ = true;
    error_ = std::move(error);
    event_.set();
  }
}

// Whoever asked for log-probabilities gets one per token or an error, never fewer.
std::optional<Error> Generation::Choice::check_logprobs(const engine::TokenChunk& chunk) const {
  if (request_.output.prompt_logprobs && !prompt_seen_) {
    return Error{ErrorCode::EngineProtocol, "output before the prompt's log-probabilities", {}};
  }
  if (request_.output.wants_logprobs() && chunk.logprobs.size() != chunk.ids.size()) {
    return Error{
        ErrorCode::EngineProtocol,
        fmt::format("{} log-probabilities for {} tokens", chunk.logprobs.size(), chunk.ids.size()),
        {}};
  }
  return std::nullopt;
}

void Generation::Choice::set_unfinished(std::size_t bytes) {
  if (bytes != unfinished_) {
    owner_.unfinished_ += bytes - unfinished_;
    unfinished_ = bytes;
    owner_.encoder_.on_unfinished(owner_.unfinished_);
  }
}

void Generation::Choice::count_missing(std::span<const engine::TokenLogprob> logprobs) {
  if (const auto count = std::ranges::count(logprobs, true, &engine::TokenLogprob::missing)) {
    owner_.logprobs_missing(static_cast<std::size_t>(count));
  }
}

void Generation::Choice::note_remote_kv(const engine::Finish& finish) {
  // Less than a block is never handed on.
  if (!main_ || !finish.cached_prompt_tokens ||
      usage_.prompt_tokens <= main_->worker().info.kv_block_size) {
    return;
  }
  if (owner_.service_.remote_kv().note(owner_.shard_, *finish.cached_prompt_tokens > 0,
                                       last_message_)) {
    log::warn(
        "no decode engine has used a KV cache of a prefill engine for a minute: model={} "
        "decode_worker_id={}; look at the engines' KV transfer settings",
        owner_.spec_.model->name, main_->worker().id);
  }
}

void Generation::Choice::take_cached(const engine::Finish& finish, const Leg& leg) {
  if (!finish.cached_prompt_tokens) {
    return;
  }
  usage_.cached_tokens =
      std::min<std::uint64_t>(*finish.cached_prompt_tokens, usage_.prompt_tokens);
  usage_.cached_known = true;
  const BookedWorker& booked = leg.booked();
  if (booked.kv_view) {
    routing::note_truth(*booked.kv_view, *booked.reservation.decision(),
                        static_cast<std::uint32_t>(usage_.prompt_tokens),
                        static_cast<std::uint32_t>(usage_.cached_tokens));
  }
}

// Engines generate at least one token; when only the prompt is wanted, it was never there.
void Generation::Choice::drop_output(const engine::TokenChunk& chunk) {
  if (chunk.finish) {
    if (!in_pair_) {
      take_cached(*chunk.finish, *main_);
    }
    ended_ = true;
    owner_.encoder_.on_end(index_, {.reason = EndReason::Length, .matched = {}}, usage_);
    event_.set();
  }
}

}  // namespace fairlead::serving
