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

}  // namespace

StreamEncoder::StreamEncoder(net::http::Exchange& exchange, const ApiOptions& options,
                             const AnswerInfo& info, const serving::ServiceOptions& bounds)
    : exchange_(exchange),
      options_(options),
      chat_(info.endpoint == observe::Endpoint::ChatCompletions),
      include_usage_(info.include_usage),
      continuous_usage_(info.include_usage && info.continuous_usage),
      annotated_request_id_(info.annotated_request_id),
      opened_(info.choices, false),
      report_(make_report(info)),
      hold_(bounds, AnswerKind::Stream) {
  if (report_) {
    report_->set_limit(hold_.limit());
  }
  head_ = "data: " + answer_head(info, chat_ ? "chat.completion.chunk" : "text_completion");
  prefixes_.reserve(info.choices);
  for (std::uint32_t i = 0; i < info.choices; ++i) {
    prefixes_.push_back(fmt::format(R"({}{{"index":{},{})", head_, i,
                                    chat_ ? "\"delta\":{\"content\":" : "\"text\":"));
  }
  exchange_.set_on_drain([this] {
    count();  // gives back
    if (on_resume_) {
      on_resume_();
    }
  });
}

StreamEncoder::~StreamEncoder() { exchange_.set_on_drain({}); }

/// What the client has not taken is its connection's affair up to the high mark, where the engines
/// pause.
std::optional<Error> StreamEncoder::count() {
  if (!report_) {
    return hold_.hold(unfinished_);
  }
  const std::size_t unsent = exchange_.unsent();
  return hold_.hold(report_->bytes() + unfinished_,
                    unsent - std::min(unsent, options_.high_mark_bytes));
}

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
    write_role(out, choice);
  }
  return out;
}

void StreamEncoder::write_role(std::string& out, std::uint32_t choice) const {
  fmt::format_to(std::back_inserter(out),
                 R"({}{{"index":{},"delta":{{"role":"assistant","content":)", head_, choice);
  json::append_string(out, report_ ? std::string_view(report_->echo(choice)) : "");
  out += "},\"logprobs\":null,\"finish_reason\":null}]";
  if (report_) {
    report_->write_prompt_token_ids(out, choice);
  }
  out += include_usage_ && !continuous_usage_ ? ",\"usage\":null}\n\n" : "}\n\n";
}

// `tail` closes the choice's object.
void StreamEncoder::append_tail(std::string& out, std::string_view tail,
                                const serving::Usage& usage) const {
  out += tail;
  out += ']';
  append_usage_tail(out, usage);
}

// Behind the array of choices.
void StreamEncoder::append_usage_tail(std::string& out, const serving::Usage& usage) const {
  if (continuous_usage_) {
    out += ",\"usage\":";
    append_usage(out, usage);
    out += "}\n\n";
  } else {
    out += include_usage_ ? ",\"usage\":null}\n\n" : "}\n\n";
  }
}

// A chunk of an answer that tells more than the text; `end` makes it the choice's last.
void StreamEncoder::write_reported(std::uint32_t choice, std::string_view text,
                                   const serving::ChoiceEnd* end, const serving::Usage& usage) {
  std::string& out = open_choice(choice);
  const bool first = !chat_ && !opened_[choice];
  opened_[choice] = true;
  report_->select(choice, end != nullptr);
  if (chat_ && end) {
    fmt::format_to(std::back_inserter(out), R"({}{{"index":{},"delta":{{)", head_, choice);
  } else {
    out += prefixes_[choice];
    json::append_string(out, first ? report_->echo(choice) + std::string(text) : text);
  }
  out += chat_ ? "},\"logprobs\":" : ",\"logprobs\":";
  report_->take_logprobs(out, choice, true);
  out += ",\"finish_reason\":";
  if (end) {
    out += reason_text(end->reason);
    out += ",\"stop_reason\":";
    append_matched(out, *end);
  } else {
    out += "null";
  }
  if (first) {
    report_->write_prompt_token_ids(out, choice);
  }
  report_->write_token_ids(out, choice);
  out += "}]";
  report_->write_nvext(out, choice, end);
  report_->release(choice);
  append_usage_tail(out, usage);
  exchange_.commit();
}

void StreamEncoder::on_prompt(std::uint32_t choice, const engine::PromptInfo& info) {
  if (report_ && !error_) {
    report_->on_prompt(choice, info);
    error_ = count();
  }
}

void StreamEncoder::report_delta(std::uint32_t choice, const serving::Delta& delta,
                                 const serving::Usage& usage) {
  if (error_) {
    return;
  }
  report_->on_delta(choice, delta);
  if (report_->bytes() <= hold_.limit() && !delta.text.empty()) {
    write_reported(choice, delta.text, nullptr, usage);
  }
  error_ = count();
}

void StreamEncoder::on_unfinished(std::size_t bytes) {
  unfinished_ = bytes;
  if (!error_) {
    error_ = count();
  }
}

void StreamEncoder::on_delta(std::uint32_t choice, const serving::Delta& delta,
                             const serving::Usage& usage) {
  if (closed_) {
    return;
  }
  if (report_) {
    report_delta(choice, delta, usage);
    return;
  }
  if (delta.text.empty()) {
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
  if (report_) {
    write_reported(choice, {}, &end, usage);
    count();
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
  count();  // gives back what was taken meanwhile
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
  count();
  exchange_.keep(hold_.take_share());
}

}  // namespace fairlead::api::openai
