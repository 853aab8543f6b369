#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/request.hpp"
#include "engine/sglang_grpc/answer.hpp"
#include "engine/sglang_grpc/dialect.hpp"

namespace fairlead::engine::sglang_grpc {

/// What several streams of one reactor share while one message is handled: the buffers that chunks
/// point into. Nothing is allocated per token once they have grown.
struct ResponseScratch {
  Answer answer;                       ///< Of the message being handled.
  std::vector<TokenLogprob> logprobs;  ///< Of its prompt or its tokens.
};

/// Turns one stream's messages into the sink's calls. A message has the new ids, or all of them, by
/// the engine's mode; its running total tells which, so that an engine that was restarted with
/// another mode is understood at once.
class ResponseTranslator {
 public:
  /// What the request asked for, and the engine's mode as far as it is known.
  ResponseTranslator(const GenerateRequest& request, Dialect::Output mode);

  /// Handles one message. Errors are EngineProtocol, or the engine's own when it ended the
  /// generation by itself, which `finished` tells; nothing may be fed after one. Messages behind
  /// the terminal one are ignored.
  Result<> feed(ResponseScratch& scratch, std::string_view bytes, TokenSink& sink);
  /// True after the terminal message.
  bool finished() const { return finished_; }
  /// True after any message that was understood.
  bool started() const { return prompt_told_ || finished_; }

 private:
  Result<> feed_answer(ResponseScratch& scratch, TokenSink& sink);
  Result<> tell_prompt(ResponseScratch& scratch, TokenSink& sink);
  std::size_t first_new(const Answer& answer) const;

  std::vector<TokenId> prompt_;  // only when its log-probabilities are wanted
  std::vector<TokenId> stop_token_ids_;
  std::uint32_t prompt_tokens_;
  std::uint32_t max_tokens_;
  std::uint32_t candidates_;
  std::uint32_t prompt_candidates_;
  Dialect::Output mode_;
  bool wants_logprobs_;
  bool wants_prompt_logprobs_;
  bool prompt_told_ = false;
  bool finished_ = false;
  std::uint32_t output_tokens_ = 0;
};

}  // namespace fairlead::engine::sglang_grpc
