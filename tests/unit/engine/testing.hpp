#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/client.hpp"

namespace fairlead::engine::testing {

/// Keeps copies of everything a generation delivers and checks the sink's contract: prompt first
/// and once, one log-probability per id or none, nothing behind the end.
class RecordingSink final : public TokenSink {
 public:
  void on_prompt(const PromptInfo& info) override {
    EXPECT_FALSE(prompt_tokens) << "a second prompt";
    EXPECT_TRUE(ids.empty() && !ended());
    prompt_tokens = info.prompt_tokens;
    prompt_logprobs.assign(info.logprobs.begin(), info.logprobs.end());
  }
  void on_tokens(const TokenChunk& chunk) override {
    EXPECT_FALSE(ended()) << "tokens behind the end";
    EXPECT_TRUE(chunk.finish || !chunk.ids.empty()) << "an empty chunk";
    EXPECT_TRUE(chunk.logprobs.empty() || chunk.logprobs.size() == chunk.ids.size());
    ++chunks;
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    logprobs.insert(logprobs.end(), chunk.logprobs.begin(), chunk.logprobs.end());
    if (chunk.finish) {
      finish = *chunk.finish;
    }
  }
  bool on_unfinished(std::size_t bytes) override {
    EXPECT_FALSE(ended() || refused) << "more behind the end";
    unfinished = bytes;
    most_unfinished = std::max(most_unfinished, bytes);
    refused = bytes > allowed;
    return !refused;
  }
  void on_error(Error what) override {
    EXPECT_FALSE(ended()) << "an error behind the end: " << what.message;
    error = std::move(what);
  }

  bool ended() const { return finish || error; }

  std::size_t allowed = std::numeric_limits<std::size_t>::max();  ///< Of unfinished bytes.
  std::size_t unfinished = 0;
  std::size_t most_unfinished = 0;
  bool refused = false;
  std::optional<std::uint32_t> prompt_tokens;
  std::vector<TokenLogprob> prompt_logprobs;
  int chunks = 0;
  std::vector<TokenId> ids;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finish> finish;
  std::optional<Error> error;
};

/// A request that asks for ids only.
inline GenerateRequest plain_request(std::vector<TokenId> prompt = {1, 2, 3},
                                     std::uint32_t max_tokens = 16) {
  GenerateRequest request;
  request.request_id = "req-1";
  request.prompt = std::move(prompt);
  request.stop.max_tokens = max_tokens;
  return request;
}

}  // namespace fairlead::engine::testing
