#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/answer_hold.hpp"
#include "api/openai/answer_info.hpp"
#include "api/options.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "serving/response_encoder.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// Server-sent events of a chat or completions answer. The response head leaves with the first
/// output or the first keep-alive, so that an error before it can have its own status. Appends to
/// the exchange's buffer without allocating once that has grown. What waits here for its text is
/// counted: above its bound, or that of all answers together, the stream fails.
class StreamEncoder final : public serving::ResponseEncoder {
 public:
  /// `exchange` and `options` outlive the encoder; `bounds` are for what it holds.
  StreamEncoder(net::http::Exchange& exchange, const ApiOptions& options, const AnswerInfo& info,
                const serving::ServiceOptions& bounds = {});
  ~StreamEncoder() override;

  void on_prompt(std::uint32_t choice, const engine::PromptInfo& info) override;
  void on_delta(std::uint32_t choice, const serving::Delta& delta,
                const serving::Usage& usage) override;
  void on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
              const serving::Usage& usage) override;
  void on_unfinished(std::size_t bytes) override;
  void on_tick(double seconds_since_output) override;
  bool congested() const override;
  const Error* failure() const override { return error_ ? &*error_ : nullptr; }

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
  void report_delta(std::uint32_t choice, const serving::Delta& delta, const serving::Usage& usage);
  std::optional<Error> count();

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
  std::size_t unfinished_ = 0;           // bytes of engines' messages
  AnswerHold hold_;
  std::optional<Error> error_;
};

}  // namespace fairlead::api::openai
