#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/token_report.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
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

/// Server-sent events of a chat or completions answer. The response head leaves with the first
/// output or the first keep-alive, so that an error before it can have its own status. Appends to
/// the exchange's buffer without allocating once that has grown.
class StreamEncoder final : public serving::ResponseEncoder {
 public:
  /// `exchange` and `options` outlive the encoder.
  StreamEncoder(net::http::Exchange& exchange, const ApiOptions& options, const AnswerInfo& info);
  ~StreamEncoder() override;

  void on_prompt(std::uint32_t choice, const engine::PromptInfo& info) override;
  void on_delta(std::uint32_t choice, const serving::Delta& delta,
                const serving::Usage& usage) override;
  void on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
              const serving::Usage& usage) override;
  void on_tick(double seconds_since_output) override;
  bool congested() const override;

  /// Ends the stream: usage when asked for, then `[DONE]`.
  void finish(const serving::Usage& usage);
  /// Ends a started stream with the error in-band, then `[DONE]`. Output that still comes is
  /// dropped.
  void fail(const Error& error);

 private:
  void ensure_started();
  std::string& open_choice(std::uint32_t choice);
  void write_role(std::string& out, std::uint32_t choice) const;
  void write_reported(std::uint32_t choice, std::string_view text, const serving::ChoiceEnd* end,
                      const serving::Usage& usage);
  void append_usage_tail(std::string& out, const serving::Usage& usage) const;
  void append_tail(std::string& out, std::string_view tail, const serving::Usage& usage) const;
  void append_done(std::string& out);

  net::http::Exchange& exchange_;
  const ApiOptions& options_;
  bool chat_;
  bool include_usage_;
  bool continuous_usage_;
  std::string annotated_request_id_;
  std::string head_;                     // up to the choice's index
  std::vector<std::string> prefixes_;    // per choice, up to the text
  std::vector<bool> opened_;             // per choice: its role was sent
  double kept_alive_at_ = 0;             // silence at the last keep-alive
  bool closed_ = false;                  // finished or failed
  std::unique_ptr<TokenReport> report_;  // null when the answer is text only
};

/// The single JSON document of a chat or completions answer.
class UnaryEncoder final : public serving::ResponseEncoder {
 public:
  /// `exchange` outlives the encoder.
  UnaryEncoder(net::http::Exchange& exchange, AnswerInfo info);

  void on_prompt(std::uint32_t choice, const engine::PromptInfo& info) override;
  void on_delta(std::uint32_t choice, const serving::Delta& delta,
                const serving::Usage& usage) override;
  void on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
              const serving::Usage& usage) override;

  /// Sends the answer.
  void finish(const serving::Usage& usage);

 private:
  struct Choice {
    std::string text;
    serving::ChoiceEnd end;
  };
  void write_choice(std::string& out, std::uint32_t index);

  net::http::Exchange& exchange_;
  AnswerInfo info_;
  std::vector<Choice> choices_;
  std::unique_ptr<TokenReport> report_;  // null when the answer is text only
};

}  // namespace fairlead::api::openai
