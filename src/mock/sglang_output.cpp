#include "mock/sglang_output.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/json.hpp"
#include "mock/request_checks.hpp"
#include "sglang/runtime.pb.h"

namespace fairlead::mock {
namespace {

using net::grpc::Status;
using net::grpc::StatusCode;

std::string quoted(std::string_view text) {
  std::string out;
  json::append_string(out, text);
  return out;
}

void append_entry(std::string& list, std::string_view entry) {
  if (!list.empty()) {
    list += ", ";
  }
  list += entry;
}

std::string entry_of(const Candidate& candidate) {
  return fmt::format("[{}, {}, null]", python_float(candidate.logprob), candidate.id);
}

std::string entries_of(const std::vector<Candidate>& candidates) {
  std::string list;
  for (const Candidate& candidate : candidates) {
    append_entry(list, entry_of(candidate));
  }
  return fmt::format("[{}]", list);
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

SglangAnswer::SglangAnswer(const SglangRequest& request, const MockOptions& options,
                           SglangCall& call, std::string id, std::uint32_t rank)
    : request_(request),
      options_(options),
      call_(call),
      id_(std::move(id)),
      rank_(rank),
      faults_(options.faults),
      vocabulary_(vocabulary_of(options)),
      prompt_scores_(request.spec, faults_, vocabulary_, true) {}

void SglangAnswer::add_prompt_position(const ScoredToken* scored) {
  const std::size_t position = prompt_position_++;
  if (position < request_.logprob_start) {
    return;
  }
  const TokenId token = request_.spec.prompt[position];
  // The first entry has nothing before it, as far as the list goes.
  if (position == request_.logprob_start || !scored) {
    append_entry(prompt_logprobs_, fmt::format("[null, {}, null]", token));
    append_entry(prompt_top_, "null");
    return;
  }
  append_entry(prompt_logprobs_, entry_of(scored->token));
  if (request_.top_n > 0) {
    append_entry(prompt_top_, entries_of(scored->candidates));
  }
}

bool SglangAnswer::prepare() {
  return prompt_scores_.next([this](const ScoredToken* scored) { add_prompt_position(scored); });
}

void SglangAnswer::begin(std::uint32_t cached) { cached_ = first_ ? first_->cached : cached; }

void SglangAnswer::add_scores(TokenId token) {
  if (first_ && generated_ == 0) {
    // Scores travel with the KV cache; without them, memory that was never written is reported.
    if (!first_->scored) {
      append_entry(logprobs_, "[0.0, 0, null]");
      append_entry(top_, "[[0.0, 0, null]]");
      return;
    }
  }
  ScoredToken scored = score(token, request_.spec.candidates, vocabulary_, true);
  faults_.apply(scored, generated_);
  append_entry(logprobs_, entry_of(scored.token));
  append_entry(top_, entries_of(scored.candidates));
}

void SglangAnswer::take(std::optional<TokenId> token, std::string_view text) {
  text_ += text;
  if (!token) {
    return;
  }
  if (generated_ == 0) {
    first_token_ = token;
  }
  ids_.push_back(*token);
  if (request_.spec.logprobs && !last_unscored_) {
    add_scores(*token);
  }
  if (request_.counts_reasoning && !reasoning_over_) {
    ++reasoning_;
    reasoning_over_ = options_.reasoning && *token == options_.reasoning->end_token;
  }
  ++generated_;
  ++unsent_;
}

void SglangAnswer::step(std::optional<TokenId> token, std::string_view text) {
  take(token, text);
  const bool first_alone = options_.role == Role::Decode && generated_ == 1;
  if (request_.streaming && (unsent_ >= options_.stream_interval || first_alone)) {
    send("null", false);
  }
}

std::string SglangAnswer::finish_json(const FinishFacts& facts) const {
  if (options_.role == Role::Prefill || request_.no_tokens) {
    return R"({"type": "length", "length": 0})";
  }
  if (facts.reason == FinishFacts::Reason::Length) {
    return fmt::format(R"({{"type": "length", "length": {}}})", facts.output_tokens);
  }
  if (facts.stop_string) {
    return fmt::format(R"({{"type": "stop", "matched": {}}})", quoted(*facts.stop_string));
  }
  if (const auto id = facts.eos_token ? facts.eos_token : facts.stop_token) {
    return fmt::format(R"({{"type": "stop", "matched": {}}})", *id);
  }
  return R"({"type": "stop"})";
}

void SglangAnswer::finish(std::optional<TokenId> token, std::string_view text,
                          const FinishFacts& facts) {
  if (facts.reason == FinishFacts::Reason::Aborted) {
    call_.call.finish({StatusCode::Cancelled,
                       fmt::format("Request aborted: {}", request_.spec.request_id),
                       Status::Origin::Server});
    return;
  }
  if (!request_.no_tokens) {
    last_unscored_ = faults_.shorter;
    take(token, text);
  }
  send(finish_json(facts), true);
}

void SglangAnswer::refuse(const SglangAbort& abort) {
  if (abort.bogus_token) {
    take(0, {});
  }
  send(fmt::format(R"({{"type": "abort", "message": {}, "status_code": {}, "err_type": {}}})",
                   quoted(abort.message), abort.status,
                   abort.bad_request_type ? "\"BadRequestError\"" : "null"),
       true);
}

void SglangAnswer::send(std::string_view finish_reason, bool last) {
  if (last) {
    --call_.open_choices;
  }
  const bool finished = last && call_.open_choices == 0;
  std::string out = message(finish_reason, last, finished);
  unsent_ = 0;
  sent_ = true;
  if (options_.incremental_output && request_.streaming) {
    ids_.clear();
    text_.clear();
    logprobs_.clear();
    top_.clear();
  }
  if (last && keep_last_) {
    kept_ = std::move(out);
    return;
  }
  call_.call.write(out);
  if (finished) {
    call_.call.finish({});
  }
}

void SglangAnswer::release() {
  if (!kept_.empty()) {
    call_.call.write(std::exchange(kept_, {}));
    call_.call.finish({});
  }
}

std::optional<FirstToken> SglangAnswer::computed() const {
  if (!first_token_) {
    return std::nullopt;
  }
  return FirstToken{*first_token_, cached_, request_.spec.logprobs};
}

std::string SglangAnswer::message(std::string_view finish_reason, bool last, bool finished) {
  ::sglang::runtime::v1::GenerateResponse response;
  response.mutable_output_ids()->Add(ids_.begin(), ids_.end());
  response.set_finished(finished);
  if (call_.wants_text) {
    response.set_text(text_);
  }
  auto& meta = *response.mutable_meta_info();
  // A grammar that does not compile leaves a request without a prompt.
  const bool ungrammatical = finish_reason.starts_with(R"({"type": "abort")") && generated_ > 0;
  meta["id"] = quoted(id_);
  meta["finish_reason"] = std::string(finish_reason);
  meta["prompt_tokens"] = ungrammatical ? "1" : fmt::to_string(request_.spec.prompt.size());
  meta["completion_tokens"] = fmt::to_string(generated_);
  meta["cached_tokens"] = fmt::to_string(cached_);
  meta["cached_tokens_details"] =
      cached_ == 0 ? "null" : fmt::format(R"({{"device": {}, "host": 0}})", cached_);
  meta["dp_rank"] = options_.data_parallel_size > 1 ? fmt::to_string(rank_) : "null";
  meta["reasoning_tokens"] = fmt::to_string(reasoning_);
  meta["num_retractions"] = "0";
  meta["weight_version"] = R"("default")";
  if (!sent_) {
    meta["response_sent_to_client_ts"] = fmt::format("{:.7f}", unix_time());
  }
  if (last) {
    // As measured: the end of a clock that was never started, so a large negative number.
    meta["e2e_latency"] = fmt::format("{:.7f}", -unix_time());
    meta["weight_versions"] =
        fmt::format(R"([{{"version": "default", "start": 0, "end": {}}}])", generated_);
  }
  if (request_.spec.logprobs) {
    const auto list = [&](std::string_view entries) {
      return faults_.null ? std::string("null")
                          : fmt::format("[{}]", faults_.empty ? std::string_view() : entries);
    };
    meta["output_token_logprobs"] = list(logprobs_);
    meta["output_token_logprobs_length"] = fmt::to_string(generated_);
    meta["input_token_logprobs"] = list(prompt_logprobs_);
    if (request_.top_n > 0) {
      meta["output_top_logprobs"] = list(top_);
      meta["input_top_logprobs"] = list(prompt_top_);
    }
  }
  return response.SerializeAsString();
}

void SglangAnswer::break_off(const Fault& fault) {
  call_.call.finish(fault.kind == FaultKind::ErrorAfter
                        ? Status{static_cast<StatusCode>(grpc_status(fault)), "injected fault",
                                 Status::Origin::Server}
                        : Status{});
}

}  // namespace fairlead::mock
