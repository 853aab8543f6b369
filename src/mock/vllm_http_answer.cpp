#include "mock/vllm_http_answer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "mock/vllm_handoff.hpp"
#include "mock/vllm_http_error.hpp"

namespace fairlead::mock {
namespace {

constexpr std::string_view kDone = "[DONE]";

std::int64_t unix_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string_view reason_name(FinishFacts::Reason reason) {
  switch (reason) {
    case FinishFacts::Reason::Length: return "length";
    case FinishFacts::Reason::Stop: return "stop";
    case FinishFacts::Reason::Aborted: return "abort";
  }
  return "error";
}

}  // namespace

HttpAnswer::HttpAnswer(const HttpRequest& request, const MockOptions& options,
                       net::http::Exchange& exchange)
    : request_(request),
      spec_(request.spec),
      options_(options),
      exchange_(exchange),
      faults_(options.faults),
      python_(is_python(options.flavor)),
      vocabulary_(vocabulary_of(options)),
      prompt_scores_(spec_, faults_, vocabulary_, true) {}

void HttpAnswer::open() {
  if (!request_.stream || opened_) {
    return;
  }
  opened_ = true;
  net::http::HeaderList headers{
      {"content-type", python_ ? "text/event-stream; charset=utf-8" : "text/event-stream"},
      {"cache-control", "no-cache"}};
  if (python_) {
    headers.add("server", "uvicorn");
  }
  exchange_.start(200, headers);
}

void HttpAnswer::send_event(std::string_view data) {
  exchange_.out() += "data: ";
  exchange_.out() += data;
  exchange_.out() += "\n\n";
  exchange_.commit();
}

// Single precision in Rust; Python widens it first.
std::string HttpAnswer::number(float value) const {
  if (!std::isfinite(value)) {
    return "null";
  }
  std::string text =
      python_ ? fmt::format("{}", static_cast<double>(value)) : fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}

void HttpAnswer::write_candidate(json::Writer& json, const Candidate& candidate) const {
  json.key("token_id").unsigned_integer(candidate.id);
  json.key("logprob").raw(number(candidate.logprob));
  json.key("rank").unsigned_integer(candidate.rank);
}

// Behind `logprob-unsampled` the entry tells of another token.
std::string HttpAnswer::entry(TokenId token) const {
  ScoredToken scored = score(token, spec_.candidates, vocabulary_, true);
  faults_.apply(scored, generated_);
  if (scored.unsampled) {
    const auto other = static_cast<TokenId>((std::uint64_t{token} + 1) % vocabulary_);
    scored.token = scored.candidates.empty()
                       ? Candidate{other, candidate_logprob(token, other, vocabulary_), 2}
                       : scored.candidates.front();
  }
  std::string out;
  json::Writer json(out);
  json.begin_object();
  write_candidate(json, scored.token);
  json.key("top_logprobs").begin_array();
  for (const Candidate& candidate : scored.candidates) {
    json.begin_object();
    write_candidate(json, candidate);
    json.end_object();
  }
  json.end_array().end_object();
  return out;
}

void HttpAnswer::take(std::optional<TokenId> token, std::string_view text, bool last) {
  text_ += text;
  if (!token) {
    return;
  }
  tokens_.push_back(*token);
  if (spec_.logprobs && !(faults_.shorter && last)) {
    entries_ += entries_.empty() ? "" : ",";
    entries_ += entry(*token);
  }
  ++generated_;
}

void HttpAnswer::step(std::optional<TokenId> token, std::string_view text) {
  take(token, text, false);
  if (request_.stream) {
    write_event(nullptr);
  }
}

void HttpAnswer::finish(std::optional<TokenId> token, std::string_view text,
                        const FinishFacts& facts) {
  take(token, text, true);
  if (!request_.stream) {
    write_body(&facts);
    return;
  }
  write_event(&facts);
  if (request_.include_usage) {
    line_.clear();
    json::Writer json(line_);
    json.begin_object().key("request_id").string(request_.public_id);
    if (python_) {
      json.key("usage");
      write_usage(json, true);
      json.key("output_mode").string(request_.output_text ? "text" : "tokens");
    }
    json.key("choices").begin_array().end_array();
    if (!python_) {
      json.key("usage");
      write_usage(json, true);
    }
    json.end_object();
    send_event(line_);
  }
  send_event(kDone);
  exchange_.finish();
}

void HttpAnswer::break_off(const Fault& fault) {
  const bool failed = fault.kind == FaultKind::ErrorAfter;
  const int status = http_status(fault);
  const std::string error = http_error_body(options_.flavor, status, "injected fault");
  if (!request_.stream || (failed && !opened_)) {
    failed ? exchange_.respond(status, {{"content-type", "application/json"}}, error)
           : write_body(nullptr);
    return;
  }
  open();
  if (failed) {
    send_event(error);
    send_event(kDone);
  }
  exchange_.finish();
}

void HttpAnswer::write_logprobs(json::Writer& json) const {
  if (!spec_.logprobs || faults_.null) {
    json.null();
    return;
  }
  json.begin_object().key("content").begin_array();
  if (!entries_.empty() && !faults_.empty) {
    json.raw(entries_);
  }
  json.end_array().end_object();
}

void HttpAnswer::write_finish(json::Writer& json, const FinishFacts* facts) const {
  json.key("finish_reason");
  facts ? json.string(reason_name(facts->reason)) : json.null();
  json.key("stop_reason");
  if (facts && facts->stop_string) {
    json.string(*facts->stop_string);
  } else if (facts && facts->stop_token) {
    json.unsigned_integer(*facts->stop_token);
  } else {
    json.null();
  }
}

void HttpAnswer::write_versions(json::Writer& json, const FinishFacts* facts) const {
  json.key("weight_versions");
  if (!facts) {
    json.null();
    return;
  }
  json.begin_array().begin_object().key("version").string("default");
  json.key("start").integer(0).key("end").unsigned_integer(facts->output_tokens);
  json.end_object().end_array();
}

// The one choice with every member, as all but the Rust server's events have it.
void HttpAnswer::write_choice(json::Writer& json, const FinishFacts* facts) const {
  json.begin_object().key("index").integer(0);
  if (!python_) {
    json.key("logprobs");
    write_logprobs(json);
  }
  write_finish(json, facts);
  json.key("token_ids").begin_array();
  for (const TokenId token : tokens_) {
    json.unsigned_integer(token);
  }
  json.end_array();
  if (options_.flavor != HttpFlavor::Rust032) {
    json.key("routed_experts").null();
  }
  json.key("sampling_mask").null();
  write_versions(json, facts);
  if (request_.output_text) {
    json.key("text").string(text_);
  }
  if (python_) {
    json.key("logprobs");
    write_logprobs(json);
  }
  json.end_object();
}

void HttpAnswer::write_usage(json::Writer& json, bool in_event) const {
  json.begin_object().key("prompt_tokens").unsigned_integer(spec_.prompt.size());
  json.key("total_tokens").unsigned_integer(spec_.prompt.size() + generated_);
  json.key("completion_tokens").unsigned_integer(generated_);
  if (!python_) {
    json.key("prompt_tokens_details").null();
    json.key("completion_tokens_details").begin_object().key("reasoning_tokens").integer(0);
    json.end_object();
  } else if (!in_event) {
    json.key("prompt_tokens_details").null().key("completion_tokens_details").null();
  }
  json.end_object();
}

// Python's events have every member, Rust's only those that say something.
void HttpAnswer::write_event(const FinishFacts* facts) {
  const bool prompt_ids = spec_.prompt_token_ids && !std::exchange(prompt_ids_written_, true);
  line_.clear();
  json::Writer json(line_);
  json.begin_object().key("request_id").string(request_.public_id);
  if (python_) {
    json.key("usage");
    request_.continuous_usage ? write_usage(json, true) : static_cast<void>(json.null());
    if (prompt_ids) {
      json.key("prompt_token_ids");
      write_prompt_ids(json);
    }
    json.key("output_mode").string(request_.output_text ? "text" : "tokens");
    json.key("choices").begin_array();
    write_choice(json, facts);
    json.end_array();
  } else {
    json.key("choices").begin_array().begin_object().key("index").integer(0);
    if (spec_.logprobs && !faults_.null) {
      json.key("logprobs");
      write_logprobs(json);
    }
    if (facts) {
      json.key("finish_reason").string(reason_name(facts->reason));
      if (facts->stop_token) {
        json.key("stop_reason").unsigned_integer(*facts->stop_token);
      }
    }
    json.key("token_ids").begin_array();
    for (const TokenId token : tokens_) {
      json.unsigned_integer(token);
    }
    json.end_array();
    if (facts) {
      write_versions(json, facts);
    }
    json.end_object().end_array();
    if (request_.continuous_usage) {
      json.key("usage");
      write_usage(json, true);
    }
    if (prompt_ids) {
      json.key("prompt_token_ids");
      write_prompt_ids(json);
    }
  }
  json.end_object();
  send_event(line_);
  if (!faults_.cumulative) {
    tokens_.clear();
    entries_.clear();
    text_.clear();
  }
}

void HttpAnswer::write_body(const FinishFacts* facts) {
  line_.clear();
  json::Writer json(line_);
  json.begin_object().key("request_id").string(request_.public_id);
  const auto write_choices = [&] {
    json.key("choices").begin_array();
    write_choice(json, facts);
    json.end_array();
  };
  if (python_) {
    json.key("model").string(request_.model).key("created").integer(unix_time());
    json.key("usage");
    write_usage(json, false);
  } else {
    write_choices();
  }
  json.key("prompt_logprobs");
  write_prompt_logprobs(json);
  json.key("prompt_token_id_logprobs").null().key("prompt_token_ids");
  spec_.prompt_token_ids ? write_prompt_ids(json) : static_cast<void>(json.null());
  json.key("mm_placeholders").null();
  if (python_) {
    json.key("metrics").null();
  }
  json.key("kv_transfer_params");
  if (facts && !facts->hand_off_engine.empty()) {
    json.raw(handoff_json({facts->hand_off_engine, spec_.request_id, facts->hand_off_blocks,
                           facts->hand_off_host, facts->hand_off_port}));
  } else {
    json.null();
  }
  json.key("ec_transfer_params").null();
  if (python_) {
    json.key("output_mode").string(request_.output_text ? "text" : "tokens");
    write_choices();
  } else {
    json.key("metrics").null();
  }
  json.end_object();
  net::http::HeaderList headers{{"content-type", "application/json"}};
  if (python_) {
    headers.add("server", "uvicorn");
  }
  exchange_.respond(200, headers, line_);
}

}  // namespace fairlead::mock
