#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mock/generation.hpp"
#include "mock/logprobs.hpp"
#include "mock/options.hpp"
#include "mock/sglang_request.hpp"
#include "net/grpc.hpp"

namespace fairlead::mock {

/// The call that several choices answer together.
struct SglangCall {
  net::grpc::ServerCall& call;  ///< The call.
  std::size_t open_choices;     ///< Those that have not ended.
  bool wants_text = false;      ///< Messages carry text.
};

/// A first token that another engine computed, as one half of a request hands it to the other.
struct FirstToken {
  TokenId token = 0;         ///< The token.
  std::uint32_t cached = 0;  ///< Prompt tokens that were found in the prefill engine's cache.
  bool scored = false;       ///< The prefill half was asked for log-probabilities.
};

/// One choice of an answer in SGLang's words.
class SglangAnswer final : public AnswerWriter {
 public:
  /// All must outlive the answer. `id` is what meta_info says.
  SglangAnswer(const SglangRequest& request, const MockOptions& options, SglangCall& call,
               std::string id, std::uint32_t rank);

  bool prepare() override;
  void begin(std::uint32_t cached) override;
  void step(std::optional<TokenId> token, std::string_view text) override;
  void finish(std::optional<TokenId> token, std::string_view text,
              const FinishFacts& facts) override;
  void break_off(const Fault& fault) override;

  /// The engine ends the request by itself: a last message, in good order.
  void refuse(const SglangAbort& abort);
  /// A prefill half: the last message waits for `release`.
  void keep_last() { keep_last_ = true; }
  /// Sends the message that waits, if one does.
  void release();
  /// A decode half: what it got of the first token.
  void set_first(const FirstToken& first) { first_ = first; }
  /// The token that a finished prefill half computed.
  std::optional<FirstToken> computed() const;

 private:
  void take(std::optional<TokenId> token, std::string_view text);
  void add_scores(TokenId token);
  void send(std::string_view finish_reason, bool last);
  std::string message(std::string_view finish_reason, bool last, bool finished);
  void add_prompt_position(const ScoredToken* scored);
  std::string finish_json(const FinishFacts& facts) const;

  const SglangRequest& request_;
  const MockOptions& options_;
  SglangCall& call_;
  std::string id_;
  std::uint32_t rank_;
  LogprobFaults faults_;
  std::uint64_t vocabulary_;
  PromptScores prompt_scores_;
  std::size_t prompt_position_ = 0;
  std::string prompt_logprobs_;  // entries of the list, with commas between
  std::string prompt_top_;
  std::string logprobs_;  // likewise, of what the next message shows
  std::string top_;
  std::vector<TokenId> ids_;
  std::string text_;
  std::uint32_t cached_ = 0;
  std::uint64_t generated_ = 0;
  std::uint64_t reasoning_ = 0;
  bool reasoning_over_ = false;
  std::uint32_t unsent_ = 0;  // tokens since the last message
  bool sent_ = false;
  bool last_unscored_ = false;  // a fault drops the last entry of the lists
  bool keep_last_ = false;
  std::string kept_;
  std::optional<FirstToken> first_;
  std::optional<TokenId> first_token_;
};

}  // namespace fairlead::mock
