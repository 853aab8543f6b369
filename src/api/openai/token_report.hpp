#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/openai/logprobs.hpp"
#include "api/openai/token_columns.hpp"
#include "api/openai/token_details.hpp"
#include "serving/response_encoder.hpp"

namespace fairlead::api::openai {

/// What all choices of one answer tell about tokens besides the text. The encoders feed it and
/// write its parts into their documents, so that an answer without those parts is the same bytes
/// as one that never asked for them.
class TokenReport {
 public:
  /// `choices` run over prompts first.
  TokenReport(std::shared_ptr<const TokenDetails> details, bool chat, std::uint32_t choices);

  /// Beyond `bytes` nothing more is taken in: what is told is no longer whole then.
  void set_limit(std::size_t bytes) { limit_ = bytes; }
  /// Bytes held, each as often as it will be written.
  std::size_t bytes() const { return bytes_; }
  /// Bytes that `echo` and `write_prompt_token_ids` will add to a document of all choices.
  std::size_t prompt_bytes() const;

  /// Facts about a choice's prompt; again when the choice moved to another engine.
  void on_prompt(std::uint32_t choice, const engine::PromptInfo& info);
  /// Takes the tokens of a delta. Their text counts as written.
  void on_delta(std::uint32_t choice, const serving::Delta& delta);
  /// Text that comes before the choice's output.
  const std::string& echo(std::uint32_t choice) const { return prompt_of(choice).echo; }

  /// From here to `release` the writers speak of the rows that may leave with the text so far, of
  /// all rows when the choice `ended`.
  void select(std::uint32_t choice, bool ended);
  /// Forgets them.
  void release(std::uint32_t choice);

  /// The value of `logprobs`: null when not asked for or, with `or_null`, when there are no rows.
  /// At most once per selection.
  void take_logprobs(std::string& out, std::uint32_t choice, bool or_null);
  /// `,"token_ids":[…]` of a choice when asked for.
  void write_token_ids(std::string& out, std::uint32_t choice) const;
  /// `,"prompt_token_ids":[…]` when asked for.
  void write_prompt_token_ids(std::string& out, std::uint32_t choice) const;
  /// `,"prompt_logprobs":[…]` when asked for.
  void write_prompt_logprobs(std::string& out, std::uint32_t choice) const;
  /// `,"nvext":{…}` when something in it was selected. `end` is null before the choice's end.
  void write_nvext(std::string& out, std::uint32_t choice, const serving::ChoiceEnd* end) const;

 private:
  struct Choice {
    explicit Choice(TokenColumns all) : columns(std::move(all)) {}
    TokenColumns columns;
    std::size_t selected = 0;
    std::uint32_t echo_characters = 0;
    std::uint32_t characters = 0;  // written, the echo included
    Column prompt_logprobs;
  };
  void add_prompt_logprobs(Column& column, const PromptDetails& prompt,
                           std::span<const engine::TokenLogprob> logprobs);
  const PromptDetails& prompt_of(std::uint32_t choice) const;
  void add_prompt_rows(Choice& choice, const PromptDetails& prompt,
                       std::span<const engine::TokenLogprob> logprobs);

  std::shared_ptr<const TokenDetails> details_;
  bool chat_;
  LogprobWriter writer_;
  std::size_t per_prompt_;
  std::size_t prompt_writes_;  // how often a record of prompt log-probabilities is written
  std::size_t bytes_ = 0;
  std::size_t limit_ = std::numeric_limits<std::size_t>::max();
  std::vector<Choice> choices_;
};

/// The user's stop that ended a choice: its text, its token id, or null.
void append_matched(std::string& out, const serving::ChoiceEnd& end);

}  // namespace fairlead::api::openai
