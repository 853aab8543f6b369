#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "api/openai/token_report.hpp"
#include "observe/metrics.hpp"
#include "serving/response_encoder.hpp"

namespace fairlead::api::openai {

/// What every part of one answer repeats.
struct AnswerInfo {
  observe::Endpoint endpoint = observe::Endpoint::ChatCompletions;  ///< Decides the shape.
  std::string id;                                                   ///< `chatcmpl-…` or `cmpl-…`.
  std::string model;                                                ///< Public name.
  std::int64_t created = 0;                                         ///< Unix seconds.
  std::uint32_t choices = 1;                                        ///< Prompts × n.
  bool include_usage = false;             ///< Streams: a last chunk with usage.
  bool continuous_usage = false;          ///< Streams: usage on every chunk; needs the former.
  std::string annotated_request_id = {};  ///< Streams: sent as a named event first; empty = not.
  std::shared_ptr<const TokenDetails> details = {};  ///< Null: text only.
};

/// `{"prompt_tokens":…}` of an answer; the cached count only when the engine told it.
void append_usage(std::string& out, const serving::Usage& usage);
/// `{"id":…,"object":…,"created":…,"model":…,"choices":[`
std::string answer_head(const AnswerInfo& info, std::string_view object);
/// A choice's `finish_reason`, in quotes.
std::string_view reason_text(serving::EndReason reason);
/// The report of an answer that tells more than the text; else null.
std::unique_ptr<TokenReport> make_report(const AnswerInfo& info);

}  // namespace fairlead::api::openai
