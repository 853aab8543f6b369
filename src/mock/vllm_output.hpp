#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mock/generate_spec.hpp"
#include "mock/generation.hpp"
#include "mock/logprobs.hpp"
#include "mock/options.hpp"
#include "net/grpc.hpp"

namespace fairlead::mock {

/// Makes the messages of one generation. A token without logprobs is written by hand; everything
/// else goes through protobuf. Messages are valid until the next call.
class OutputEncoder {
 public:
  /// Both must outlive the encoder.
  OutputEncoder(const GenerateSpec& spec, const MockOptions& options);
  ~OutputEncoder();

  /// Whether all messages are gathered into one, to be had from `gathered`.
  void set_gather(bool gather) { gather_ = gather; }
  /// Works for a moment on the prompt's log-probabilities; true when more is left.
  bool prepare();
  /// The first message; without log-probabilities that are not all there.
  std::string_view prompt_info();
  /// Tokens and text of one step. `token` may be absent.
  std::string_view step(std::optional<TokenId> token, std::string_view text,
                        const FinishFacts* finish);
  /// The one message of a unary call.
  std::string_view gathered();

 private:
  struct Messages;
  std::string_view simple(TokenId token, std::string_view text);
  std::string_view serialize();
  void add_position(const ScoredToken* scored);

  const GenerateSpec& spec_;
  const MockOptions& options_;
  LogprobFaults faults_;
  bool gather_ = false;
  std::uint64_t vocabulary_;
  bool with_token_;
  PromptScores prompt_scores_;
  std::string prompt_logprobs_;    // the contents of PromptInfo.logprobs,
  std::string prompt_ranks_;       // .ranks,
  std::string prompt_candidates_;  // and .candidate_tokens with their tags
  std::string prompt_message_;     // serialized; of a unary call, to be gathered
  std::uint64_t position_ = 0;     // of the next token with logprobs
  std::string buffer_;
  std::unique_ptr<Messages> messages_;  // made when first needed
};

/// The answer to one Generate or GenerateStream call.
class VllmAnswer final : public AnswerWriter {
 public:
  /// All must outlive the answer. A call that is not `streaming` gets one message.
  VllmAnswer(const GenerateSpec& spec, const MockOptions& options, net::grpc::ServerCall& call,
             bool streaming);
  bool prepare() override;
  void begin(std::uint32_t cached) override;
  void step(std::optional<TokenId> token, std::string_view text) override;
  void finish(std::optional<TokenId> token, std::string_view text,
              const FinishFacts& facts) override;
  void break_off(const Fault& fault) override;

 private:
  OutputEncoder encoder_;
  net::grpc::ServerCall& call_;
  bool streaming_;
};

}  // namespace fairlead::mock
