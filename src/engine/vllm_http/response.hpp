#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/client.hpp"
#include "engine/request.hpp"
#include "engine/vllm_http/answer_split.hpp"

namespace fairlead::engine::vllm_http {

/// Buffers that the streams of one reactor share while one message is handled. Nothing is allocated
/// per plain token once they have grown.
struct ResponseScratch {
  std::vector<TokenId> ids;            ///< Of the message.
  std::vector<TokenLogprob> logprobs;  ///< Likewise.
};

/// Turns one generation's answer, streamed or whole, into the sink's calls and checks that it makes
/// sense.
///
/// The last tokens of a stream are held until the event behind them has come, which has the number
/// of cached prompt tokens: a finish is said once, with all that belongs to it. Where that event is
/// not there yet, `release_tokens` lets the tokens go before.
///
/// vLLM streams deltas (seen with 0.32.0 and 0.33.0, Rust and Python), but other servers may repeat
/// everything. The running total `usage.completion_tokens` decides: with `n` ids in a message and
/// `s` before it, a total of `s + n` means deltas; a total of `n` means that the message repeats
/// everything, if it does begin with what came before. Any other total is an error. Without totals
/// messages are deltas: lengths alone prove nothing, since a delta may repeat the tokens before it.
class ResponseTranslator {
 public:
  /// What the request asked for.
  explicit ResponseTranslator(const GenerateRequest& request);

  /// Handles the data of one event. Errors are EngineProtocol or what the server reports; nothing
  /// may be fed after one. Events behind the end are ignored.
  Result<> feed_event(ResponseScratch& scratch, std::string_view data, TokenSink& sink);
  /// Handles a whole answer that was not streamed. Its text is let go, and the sink told so, before
  /// the sink takes what it says.
  Result<> feed_answer(ResponseScratch& scratch, std::string body, TokenSink& sink);
  /// Hands on the tokens that are held for the event behind them, but not a token that may have
  /// ended the answer: whether it belongs to the text is known with the finish only.
  void release_tokens(TokenSink& sink);
  /// The stream's body has ended, or broke: an error unless the generation had.
  Result<> end(TokenSink& sink);
  /// True after the terminal chunk.
  bool finished() const { return finished_; }
  /// True when the finish has been said or is held: a connection that breaks now takes nothing
  /// away.
  bool decided() const { return finished_ || held_; }
  /// True after any event that was understood.
  bool started() const { return started_; }

 private:
  /// How messages of a stream relate to each other.
  enum class Shape : std::uint8_t { Unknown, Deltas, Cumulative };
  struct Usage {
    std::optional<std::uint32_t> completion_tokens;
    std::optional<std::uint32_t> cached_tokens;
  };
  /// The terminal chunk while the event behind it is awaited.
  struct Held {
    std::vector<TokenId> ids;
    std::vector<TokenLogprob> logprobs;
    Finish finish;
  };

  Result<> feed_tokens(ResponseScratch& scratch, std::optional<std::uint32_t> total,
                       TokenSink& sink);
  Result<> feed_parsed(ResponseScratch& scratch, const json::Value& message, TokenSink& sink);
  Result<> feed_choice(ResponseScratch& scratch, const json::Value& choice,
                       const SplitAnswer* whole, const Usage& usage, TokenSink& sink);
  Result<std::size_t> first_new(const ResponseScratch& scratch, std::optional<std::uint32_t> total);
  Result<> count_tokens(std::size_t tokens);
  Result<Finish> make_finish(const json::Value& choice, std::string_view reason,
                             const std::vector<TokenId>& ids) const;
  Result<> release(TokenSink& sink);
  static Usage read_usage(const json::Value& message);

  OutputOptions output_;
  std::vector<TokenId> prompt_;  // only when its log-probabilities are wanted
  std::uint32_t max_tokens_;
  Shape shape_ = Shape::Unknown;
  std::vector<TokenId> history_;  // until the shape is known to be deltas
  std::uint32_t output_tokens_ = 0;
  bool started_ = false;
  bool finished_ = false;
  Usage usage_;
  std::optional<Held> held_;
};

}  // namespace fairlead::engine::vllm_http
