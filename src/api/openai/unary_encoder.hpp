#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/openai/answer_hold.hpp"
#include "api/openai/answer_info.hpp"
#include "base/error.hpp"
#include "net/http.hpp"
#include "serving/response_encoder.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// The single JSON document of a chat or completions answer. It is gathered in the form in which it
/// is written and counted meanwhile, with what the engines have not finished: above its bound, or
/// that of all such answers together, the answer fails.
class UnaryEncoder final : public serving::ResponseEncoder {
 public:
  /// `exchange` outlives the encoder.
  UnaryEncoder(net::http::Exchange& exchange, AnswerInfo info,
               const serving::ServiceOptions& options);

  void on_prompt(std::uint32_t choice, const engine::PromptInfo& info) override;
  void on_delta(std::uint32_t choice, const serving::Delta& delta,
                const serving::Usage& usage) override;
  void on_end(std::uint32_t choice, const serving::ChoiceEnd& end,
              const serving::Usage& usage) override;
  void on_unfinished(std::size_t bytes) override;
  const Error* failure() const override { return error_ ? &*error_ : nullptr; }

  /// Sends the answer.
  void finish(const serving::Usage& usage);

 private:
  struct Choice {
    std::string text;  // as JSON, without the quotes
    serving::ChoiceEnd end;
  };
  std::size_t bytes() const { return bytes_ + (report_ ? report_->bytes() : 0); }
  void count();
  void write_choice(std::string& out, std::uint32_t index);

  net::http::Exchange& exchange_;
  AnswerInfo info_;
  std::vector<Choice> choices_;
  std::unique_ptr<TokenReport> report_;  // null when the answer is text only
  std::size_t bytes_ = 0;                // of all but the report
  std::size_t unfinished_ = 0;           // of engines' messages
  AnswerHold hold_;
  std::optional<Error> error_;
};

}  // namespace fairlead::api::openai
