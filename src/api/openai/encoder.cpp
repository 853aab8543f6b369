#include "api/openai/encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "api/error_response.hpp"
#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

constexpr std::string_view kKeepAlive = ": keep-alive\n\n";
constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string_view reason_text(serving::EndReason reason) {
  return reason == serving::EndReason::Length ? "\"length\"" : "\"stop\"";
}

/// The user's stop that ended a choice: its text, its token id, or null.
void append_matched(std::string& out, const serving::ChoiceEnd& end) {
  if (const auto* id = std::get_if<engine::TokenId>(&end.matched)) {
    json::append_number(out, std::uint64_t{*id});
  } else if (const auto* text = std::get_if<std::string>(&end.matched)) {
    json::append_string(out, *text);
  } else {
    out += "null";
  }
}

/// `{"id":…,"object":…,"created":…,"model":…,"choices":[`
std::string answer_head(const AnswerInfo& info, std::string_view object) {
  std::string out = "{\"id\":";
  json::append_string(out, info.id);
  fmt::format_to(std::back_inserter(out), R"(,"object":"{}","created":{},"model":)", object,
                 info.created);
  json::append_string(out, info.model);
  out += ",\"choices\":[";
  return out;
}

}  // namespace

void append_usage(std::string& out, const serving::Usage& usage) {
  out += "{\"prompt_tokens\":";
  json::append_number(out, usage.prompt_tokens);
  out += ",\"total_tokens\":";
  json::append_number(out, usage.prompt_tokens + usage.completion_tokens);
  out += ",\"completion_tokens\":";
  json::append_number(out, usage.completion_tokens);
  if (usage.cached_known) {
    out += ",\"prompt_tokens_details\":{\"cached_tokens\":";
    json::append_number(out, usage.cached_tokens);
    out += "}";
  }
  out += "}";
}

StreamEncoder::StreamEncoder(net::http::Exchange& exchange, const ApiOptions& options,
                             const AnswerInfo& info)
    : exchange_(exchange),
      options_(options),
      chat_(info.endpoint == observe::Endpoint::ChatCompletions),
      include_usage_(info.include_usage),
      continuous_usage_(info.include_usage && info.continuous_usage),
      annotated_request_id_(info.annotated_request_id),
      opened_(info.choices, false) {
  head_ = "data: " + answer_head(info, chat_ ? "chat.completion.chunk" : "text_completion");
  prefixes_.reserve(info.choices);
  for (std::uint32_t i = 0; i < info.choices; ++i) {
    prefixes_.push_back(fmt::format(R"({}{{"index":{},{})", head_, i,
                                    chat_ ? "\"delta\":{\"content\":" : "\"text\":"));
  }
  exchange_.set_on_drain([this] {
    if (on_resume_) {
      on_resume_();
    }
  });
}

StreamEncoder::~StreamEncoder() { exchange_.set_on_drain({}); }

void StreamEncoder::ensure_started() {
  if (exchange_.started()) {
    return;
  }
  net::http::HeaderList headers{{"content-type", "text/event-stream"},
                                {"cache-control", "no-cache"},
                                {"x-accel-buffering", "no"}};
  add_request_id(exchange_, headers);
  exchange_.start(200, headers);
  if (!annotated_request_id_.empty()) {
    exchange_.out() += "event: request_id\n: ";
    json::append_string(exchange_.out(), annotated_request_id_);
    exchange_.out() += "\n\n";
  }
}

// Starts the response and, in chat, the choice with its role.
std::string& StreamEncoder::open_choice(std::uint32_t choice) {
  ensure_started();
  kept_alive_at_ = 0;
  std::string& out = exchange_.out();
  if (chat_ && !opened_[choice]) {
    opened_[choice] = true;
    fmt::format_to(std::back_inserter(out),
                   R"({}{{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,)"
                   R"("finish_reason":null}}]{}}})"
                   "\n\n",
                   head_, choice, include_usage_ && !continuous_usage_ ? ",\"usage\":null" : "");
  }
  return out;
}

// `tail` closes the choice's object.
void StreamEncoder::append_tail(std::string& out, std::string_view tail,
                                const serving::Usage& usage) const {
  out += tail;
  if (continuous_usage_) {
    out += "],\"usage\":";
    append_usage(out, usage);
    out += "}\n\n";
  } else {
    out += include_usage_ ? "],\"usage\":null}\n\n" : "]}\n\n";
  }
}

void StreamEncoder::on_delta(std::uint32_t choice, const serving::Delta& delta,
                             const serving::Usage& usage) {
  if (delta.text.empty() || closed_) {
    return;
  }
  std::string& out = open_choice(choice);
  out += prefixes_[choice];
  json::append_string(out, delta.text);
  append_tail(out,
              chat_ ? R"(},"logprobs":null,"finish_reason":null})"
                    : R"(,"logprobs":null,"finish_reason":null})",
              usage);
  exchange_.commit();
}

void StreamEncoder::on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
                           const serving::Usage& usage) {
  if (closed_) {
    return;
  }
  std::string& out = open_choice(choice);
  fmt::format_to(std::back_inserter(out),
                 R"({}{{"index":{},{},"logprobs":null,"finish_reason":{},)", head_, choice,
                 chat_ ? "\"delta\":{}" : "\"text\":\"\"", reason_text(end.reason));
  out += "\"stop_reason\":";
  append_matched(out, end);
  append_tail(out, "}", usage);
  exchange_.commit();
}

void StreamEncoder::on_tick(double seconds_since_output) {
  const double interval = std::chrono::duration<double>(options_.keep_alive).count();
  kept_alive_at_ = std::min(kept_alive_at_, seconds_since_output);
  if (interval <= 0 || closed_ || seconds_since_output - kept_alive_at_ < interval) {
    return;
  }
  kept_alive_at_ = seconds_since_output;
  ensure_started();
  exchange_.out() += kKeepAlive;
  exchange_.commit();
}

bool StreamEncoder::congested() const { return exchange_.unsent() > options_.high_mark_bytes; }

void StreamEncoder::finish(const serving::Usage& usage) {
  if (closed_) {
    return;
  }
  ensure_started();
  std::string& out = exchange_.out();
  if (include_usage_) {
    out += head_;
    out += "],\"usage\":";
    append_usage(out, usage);
    out += "}\n\n";
  }
  append_done(out);
}

void StreamEncoder::fail(const Error& error) {
  if (closed_) {
    return;
  }
  std::string& out = exchange_.out();
  out += "data: ";
  append_error(out, error);
  out += "\n\n";
  append_done(out);
}

void StreamEncoder::append_done(std::string& out) {
  out += kDone;
  closed_ = true;
  exchange_.finish();
}

UnaryEncoder::UnaryEncoder(net::http::Exchange& exchange, AnswerInfo info)
    : exchange_(exchange), info_(std::move(info)), choices_(info_.choices) {}

void UnaryEncoder::on_delta(std::uint32_t choice, const serving::Delta& delta,
                            const serving::Usage& usage) {
  static_cast<void>(usage);
  choices_[choice].text += delta.text;
}

void UnaryEncoder::on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
                          const serving::Usage& usage) {
  static_cast<void>(usage);
  choices_[choice].end = end;
}

void UnaryEncoder::finish(const serving::Usage& usage) {
  if (exchange_.started()) {
    return;
  }
  const bool chat = info_.endpoint == observe::Endpoint::ChatCompletions;
  std::string out = answer_head(info_, chat ? "chat.completion" : "text_completion");
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    fmt::format_to(std::back_inserter(out), R"({}{{"index":{},)", i == 0 ? "" : ",", i);
    out += chat ? R"("message":{"role":"assistant","content":)" : R"("text":)";
    json::append_string(out, choice.text);
    fmt::format_to(std::back_inserter(out), R"({},"logprobs":null,"finish_reason":{},)",
                   chat ? "}" : "", reason_text(choice.end.reason));
    out += "\"stop_reason\":";
    append_matched(out, choice.end);
    out += "}";
  }
  out += "],\"usage\":";
  append_usage(out, usage);
  out += "}";
  respond_json(exchange_, 200, out);
}

}  // namespace fairlead::api::openai
