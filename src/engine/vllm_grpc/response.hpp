#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "engine/client.hpp"
#include "engine/request.hpp"

namespace vllm {
class GenerateResponse;
}

namespace fairlead::engine::vllm_grpc {

/// What several streams of one reactor share while one message is handled: the parsed message and
/// the buffers that chunks point into. Nothing is allocated per token once they have grown.
class ResponseScratch {
 public:
  ResponseScratch();
  ~ResponseScratch();
  ResponseScratch(const ResponseScratch&) = delete;
  ResponseScratch& operator=(const ResponseScratch&) = delete;

 private:
  friend class ResponseTranslator;

  std::unique_ptr<::vllm::GenerateResponse> message_;
  std::vector<TokenId> ids_;
  std::vector<TokenLogprob> logprobs_;
};

/// Turns one stream's messages into the sink's calls and checks that they make sense: counts agree,
/// arrays have one entry per token, the end is said once. In vLLM's streams the first message holds
/// prompt_info alone, the others are deltas, and the last one has finish_info.
class ResponseTranslator {
 public:
  /// What the request asked for.
  explicit ResponseTranslator(const GenerateRequest& request);

  /// Handles one message. An error is EngineProtocol; nothing may be fed after it. Messages behind
  /// the terminal one are ignored.
  Result<> feed(ResponseScratch& scratch, std::string_view bytes, TokenSink& sink);
  /// True after the terminal message.
  bool finished() const { return finished_; }
  /// True after any message that was understood.
  bool started() const { return prompt_seen_ || output_tokens_ > 0 || finished_; }

 private:
  Result<> feed_parsed(ResponseScratch& scratch, TokenSink& sink);
  Result<> on_prompt_info(ResponseScratch& scratch, TokenSink& sink);
  Result<> on_outputs(ResponseScratch& scratch, TokenSink& sink);
  Result<> count_tokens(std::size_t tokens);
  Result<> make_finish(ResponseScratch& scratch, Finish& finish) const;

  std::uint32_t prompt_tokens_;
  std::uint32_t max_tokens_;
  bool wants_logprobs_;
  bool wants_prompt_logprobs_;
  bool prompt_seen_ = false;
  bool finished_ = false;
  std::uint32_t output_tokens_ = 0;
};

}  // namespace fairlead::engine::vllm_grpc
