#include "api/openai/unary_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/error_response.hpp"
#include "base/json.hpp"

namespace fairlead::api::openai {
namespace {

// What is written around a document, the response's head included, and around each choice.
constexpr std::size_t kFrame = 2048;
constexpr std::size_t kChoiceFrame = 256;

}  // namespace

UnaryEncoder::UnaryEncoder(net::http::Exchange& exchange, AnswerInfo info,
                           const serving::ServiceOptions& options)
    : exchange_(exchange),
      info_(std::move(info)),
      choices_(info_.choices),
      report_(make_report(info_)),
      hold_(options, AnswerKind::Document) {
  if (report_) {
    bytes_ = report_->prompt_bytes();
    report_->set_limit(hold_.limit() - std::min(hold_.limit(), bytes_));
    count();
  }
}

void UnaryEncoder::count() { error_ = hold_.hold(bytes() + unfinished_); }

void UnaryEncoder::on_unfinished(std::size_t bytes) {
  unfinished_ = bytes;
  if (!error_) {
    count();
  }
}

void UnaryEncoder::on_prompt(std::uint32_t choice, const engine::PromptInfo& info) {
  if (report_ && !error_) {
    report_->on_prompt(choice, info);
    count();
  }
}

void UnaryEncoder::on_delta(std::uint32_t choice, const serving::Delta& delta,
                            const serving::Usage& usage) {
  static_cast<void>(usage);
  if (error_) {
    return;
  }
  std::string& text = choices_[choice].text;
  bytes_ -= text.size();
  json::append_escaped(text, delta.text);
  bytes_ += text.size();
  if (report_) {
    report_->on_delta(choice, delta);
  }
  count();
}

void UnaryEncoder::on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
                          const serving::Usage& usage) {
  static_cast<void>(usage);
  choices_[choice].end = end;
}

void UnaryEncoder::write_choice(std::string& out, std::uint32_t index) {
  const bool chat = info_.endpoint == observe::Endpoint::ChatCompletions;
  Choice& choice = choices_[index];
  fmt::format_to(std::back_inserter(out), R"({}{{"index":{},)", index == 0 ? "" : ",", index);
  out += chat ? R"("message":{"role":"assistant","content":")" : R"("text":")";
  if (report_) {
    report_->select(index, true);
    json::append_escaped(out, report_->echo(index));
  }
  out += std::exchange(choice.text, {});
  out += chat ? "\"},\"logprobs\":" : "\",\"logprobs\":";
  if (report_) {
    report_->take_logprobs(out, index, false);
  } else {
    out += "null";
  }
  out += ",\"finish_reason\":";
  out += reason_text(choice.end.reason);
  out += ",\"stop_reason\":";
  append_matched(out, choice.end);
  if (report_) {
    if (!chat) {
      report_->write_prompt_logprobs(out, index);
      report_->write_prompt_token_ids(out, index);
    }
    report_->write_token_ids(out, index);
  }
  out += '}';
}

void UnaryEncoder::finish(const serving::Usage& usage) {
  if (exchange_.started()) {
    return;
  }
  const bool chat = info_.endpoint == observe::Endpoint::ChatCompletions;
  std::string out = answer_head(info_, chat ? "chat.completion" : "text_completion");
  // Growing would copy it, and what is not written to takes no memory.
  out.reserve(out.size() + bytes() + kFrame + info_.choices * kChoiceFrame);
  for (std::uint32_t i = 0; i < info_.choices; ++i) {
    write_choice(out, i);
  }
  out += "],\"usage\":";
  append_usage(out, usage);
  if (report_) {
    if (chat) {  // one prompt, whatever the number of choices
      report_->write_prompt_logprobs(out, 0);
      report_->write_prompt_token_ids(out, 0);
    }
    const std::uint32_t last = info_.choices - 1;
    report_->write_nvext(out, last, &choices_[last].end);
  }
  out += '}';
  respond_json(exchange_, 200, std::move(out), hold_.take_share());
}

}  // namespace fairlead::api::openai
