#include "api/openai/answer_info.hpp"

#include <fmt/format.h>

#include <iterator>

#include "base/json.hpp"

namespace fairlead::api::openai {

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

std::string_view reason_text(serving::EndReason reason) {
  return reason == serving::EndReason::Length ? "\"length\"" : "\"stop\"";
}

std::string answer_head(const AnswerInfo& info, std::string_view object) {
  std::string out = "{\"id\":";
  json::append_string(out, info.id);
  fmt::format_to(std::back_inserter(out), R"(,"object":"{}","created":{},"model":)", object,
                 info.created);
  json::append_string(out, info.model);
  out += ",\"choices\":[";
  return out;
}

std::unique_ptr<TokenReport> make_report(const AnswerInfo& info) {
  return info.details
             ? std::make_unique<TokenReport>(
                   info.details, info.endpoint == observe::Endpoint::ChatCompletions, info.choices)
             : nullptr;
}

}  // namespace fairlead::api::openai
