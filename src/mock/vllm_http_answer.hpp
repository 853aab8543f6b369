#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "mock/engine_state.hpp"
#include "mock/generation.hpp"
#include "mock/logprobs.hpp"
#include "mock/vllm_http_request.hpp"
#include "net/http.hpp"

namespace fairlead::mock {

/// The answer to one `POST /inference/v1/generate`: events, or one body at the end.
class HttpAnswer final : public AnswerWriter {
 public:
  /// All must outlive the answer.
  HttpAnswer(const HttpRequest& request, const MockOptions& options, net::http::Exchange& exchange);

  /// Sends the head of an event stream; without it, it goes with the first event.
  void open();
  bool prepare() override;
  void begin(std::uint32_t) override { open(); }
  void step(std::optional<TokenId> token, std::string_view text) override;
  void finish(std::optional<TokenId> token, std::string_view text,
              const FinishFacts& facts) override;
  void break_off(const Fault& fault) override;

 private:
  void take(std::optional<TokenId> token, std::string_view text, bool last);
  void write_event(const FinishFacts* facts);
  void write_body(const FinishFacts* facts);
  void write_choice(json::Writer& json, const FinishFacts* facts) const;
  void write_finish(json::Writer& json, const FinishFacts* facts) const;
  void write_versions(json::Writer& json, const FinishFacts* facts) const;
  void write_logprobs(json::Writer& json) const;
  void write_position(const ScoredToken* scored);
  void write_prompt_logprobs(json::Writer& json) const;
  void write_prompt_ids(json::Writer& json) const;
  void write_usage(json::Writer& json, bool in_event) const;
  void write_candidate(json::Writer& json, const Candidate& candidate) const;
  std::string number(float value) const;
  std::string entry(TokenId token) const;
  void send_event(std::string_view data);

  const HttpRequest& request_;
  const GenerateSpec& spec_;
  const MockOptions& options_;
  net::http::Exchange& exchange_;
  LogprobFaults faults_;
  bool python_;
  std::uint64_t vocabulary_;
  PromptScores prompt_scores_;
  std::string prompt_logprobs_;  // the elements of their array
  json::Writer prompt_json_{prompt_logprobs_};
  std::vector<TokenId> tokens_;  // of the event, or all
  std::string entries_;          // their logprobs, as JSON with commas
  std::string text_;             // likewise
  std::string line_;
  std::uint64_t generated_ = 0;
  bool opened_ = false;
  bool prompt_ids_written_ = false;
};

}  // namespace fairlead::mock
