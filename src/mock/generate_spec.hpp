#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mock/kv_events.hpp"
#include "mock/sequence.hpp"

namespace fairlead::mock {

/// Which candidates to report beside a token.
struct CandidateChoice {
  std::uint32_t top_n = 0;         ///< The most likely ones.
  std::vector<TokenId> token_ids;  ///< Or exactly these.
};

/// Where a decode engine fetches blocks that a prefill engine keeps for it.
struct RemoteKv {
  std::string host;        ///< Of the prefill engine's transfer server.
  std::uint16_t port = 0;  ///< Likewise.
  std::string request_id;  ///< Under which they are kept.
};

/// A checked request, whatever interface it came over.
struct GenerateSpec {
  std::string request_id;                 ///< As sent, or made here.
  std::vector<TokenId> prompt;            ///< After truncation.
  StopRules stop;                         ///< Limits are resolved.
  std::vector<TokenId> allowed;           ///< Nothing else is generated; empty = all.
  std::optional<TokenId> forced;          ///< Every token is this one, by a logits processor.
  CacheKey cache_key;                     ///< Salt, adapter and session.
  bool skip_cache_read = false;           ///< Asked for, or needed by prompt logprobs.
  std::vector<std::string> stop_strings;  ///< Searched in the text.
  bool include_stop_string = false;       ///< The text keeps what stopped it.
  bool prompt_token_ids = false;          ///< Report the prompt.
  bool prompt_logprobs = false;           ///< Report its logprobs.
  CandidateChoice prompt_candidates;      ///< And candidates.
  bool text = true;                       ///< Report text.
  bool token_ids = false;                 ///< Report ids.
  bool logprobs = false;                  ///< Report logprobs.
  CandidateChoice candidates;             ///< And candidates.
  bool hand_off = false;                  ///< A prefill: answer with transfer parameters.
  bool prompt_arrives = false;            ///< A decode: the prompt was computed elsewhere.
  bool awaits_peer = false;               ///< Nothing is computed before `Generation::start`.
  bool awaits_kv = false;                 ///< Nor before `Generation::kv_arrived`.
  bool keep_blocks = false;               ///< They go to `Generation::take_blocks` in the end.
  std::optional<RemoteKv> remote;         ///< A decode: the blocks are fetched from there.
  std::uint32_t rank = 0;                 ///< Wanted rank.
  bool any_rank = true;                   ///< None was wanted.
};

}  // namespace fairlead::mock
