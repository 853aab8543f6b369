#pragma once

#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <span>

#include "engine/client.hpp"

namespace fairlead::fuzz {

/// Ends the run as a finding unless the condition holds.
inline void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// The contract of a sink: what a client of any wire promises, whatever its engine sends.
class CheckingSink final : public engine::TokenSink {
 public:
  explicit CheckingSink(const engine::GenerateRequest& request) : request_(request) {}

  void on_prompt(const engine::PromptInfo& info) override {
    require(!prompt_seen_ && tokens_ == 0 && !finished_);
    require(info.prompt_tokens == request_.prompt.size());
    require(info.logprobs.size() == (request_.output.prompt_logprobs ? request_.prompt.size() : 0));
    check(info.logprobs);
    prompt_seen_ = true;
  }
  void on_tokens(const engine::TokenChunk& chunk) override {
    require(!finished_ && (chunk.finish || !chunk.ids.empty()));
    require(chunk.logprobs.size() == (request_.output.wants_logprobs() ? chunk.ids.size() : 0));
    check(chunk.logprobs);
    tokens_ += chunk.ids.size();
    require(tokens_ <= request_.stop.max_tokens);
    if (chunk.finish) {
      require(chunk.finish->output_tokens == tokens_);
      finished_ = true;
    }
  }
  void on_error(Error) override { std::abort(); }

  bool finished() const { return finished_; }

 private:
  static void check(std::span<const engine::TokenLogprob> entries) {
    for (const engine::TokenLogprob& entry : entries) {
      require(std::isfinite(entry.logprob) && entry.logprob >= engine::kLowestLogprob);
      require(!entry.missing ||
              (entry.logprob == engine::kLowestLogprob && entry.candidates.empty()));
      for (const engine::Candidate& candidate : entry.candidates) {
        require(std::isfinite(candidate.logprob) && candidate.logprob >= engine::kLowestLogprob);
      }
    }
  }

  const engine::GenerateRequest& request_;
  bool prompt_seen_ = false;
  bool finished_ = false;
  std::size_t tokens_ = 0;
};

}  // namespace fairlead::fuzz
