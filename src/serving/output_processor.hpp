#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chat/stop_strings.hpp"
#include "engine/client.hpp"
#include "serving/response_encoder.hpp"
#include "tokenizer/incremental_decoder.hpp"

namespace fairlead::serving {

/// When and how a choice's text ends; shared by all choices of a request.
struct OutputRules {
  std::vector<engine::TokenId> eos_token_ids;  ///< Hidden at the engine's end; sorted.
  std::vector<engine::TokenId> user_stop_ids;  ///< End and are reported; sorted.
  std::vector<std::string> stop_strings;       ///< The earliest match in the text ends it.
  bool ignore_eos = false;                     ///< EOS is text like any other.
  bool include_stop = false;                   ///< The matched stop stays in the text.
  bool skip_special_tokens = true;             ///< Special tokens leave no text.
  bool detokenize = true;                      ///< False: no text at all, so no stop strings.
  std::uint32_t min_tokens = 0;                ///< No stop before this many tokens.
  bool offsets = false;                        ///< Record where each token's text begins.
};

/// Turns one choice's tokens into text and finds its end; no I/O. The user's stops are found here
/// and override the engine's reason; EOS is the engine's to judge, since some models go on behind
/// it. Nothing may be pushed after an end.
class OutputProcessor {
 public:
  /// What one push did.
  struct Step {
    std::size_t used = 0;          ///< Ids that belong to the output; the rest came after a stop.
    std::optional<ChoiceEnd> end;  ///< The choice has ended.
  };

  /// `rules` and `tokenizer` outlive the processor; `prompt` is read here only.
  OutputProcessor(const OutputRules& rules, const tokenizer::Tokenizer& tokenizer,
                  std::span<const engine::TokenId> prompt);

  /// Appends the text that `ids` make certain to `text`. `finish` comes with the last ids.
  Step push(std::span<const engine::TokenId> ids, const engine::Finish* finish, std::string& text);
  /// Characters of the text before each id of the last push; empty unless the rules ask for it.
  std::span<const std::uint32_t> offsets() const { return offsets_; }

 private:
  bool stops_at(engine::TokenId id, bool last, const engine::Finish* finish) const;
  ChoiceEnd end_at_token(engine::TokenId id, std::string& text);
  std::optional<ChoiceEnd> add_text(engine::TokenId id, std::string& text);
  void decode(engine::TokenId id, std::string& text);
  std::optional<ChoiceEnd> release_rest(std::string& text);
  ChoiceEnd matched_string(std::size_t which) const;

  const OutputRules& rules_;
  tokenizer::IncrementalDecoder decoder_;
  std::optional<chat::StopMatcher> matcher_;
  std::uint32_t count_ = 0;
  std::uint32_t characters_ = 0;  // decoded so far; counted only for the offsets
  std::vector<std::uint32_t> offsets_;
  std::string scratch_;
};

}  // namespace fairlead::serving
