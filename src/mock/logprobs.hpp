#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mock/faults.hpp"
#include "mock/generate_spec.hpp"

namespace fairlead::mock {

/// One entry of a position's distribution.
struct Candidate {
  TokenId id = 0;          ///< Which token.
  float logprob = 0;       ///< Not finite when a fault wants so.
  std::uint32_t rank = 0;  ///< 1 is the most likely; with chosen ids the place in their list.
};

/// A generated or given token with its distribution.
struct ScoredToken {
  Candidate token;                    ///< The token itself.
  std::vector<Candidate> candidates;  ///< As chosen, in order.
  bool unsampled = false;             ///< A fault hides the token from the distribution.
};

/// The distribution at a position whose token is `token`: with `top_n` that token is the most
/// likely one, and the next ids follow it. `with_token` counts it among them, as servers do since
/// 0.32; older ones left it out. Chosen ids come in their order, ranked by place.
ScoredToken score(TokenId token, const CandidateChoice& choice, std::uint64_t vocabulary,
                  bool with_token);

/// What the faults do to the log-probabilities of one answer.
struct LogprobFaults {
  /// Picks the switched-on ones.
  explicit LogprobFaults(std::span<const Fault> faults);
  /// Spoils the token at `position` of the answer, counted from 0.
  void apply(ScoredToken& scored, std::uint64_t position) const;

  bool null = false;                          ///< `logprobs-null`.
  bool empty = false;                         ///< `logprobs-empty`.
  bool shorter = false;                       ///< `logprobs-short`.
  bool cumulative = false;                    ///< `cumulative`.
  std::optional<std::uint64_t> not_a_number;  ///< `logprob-nan:N`.
  std::optional<std::uint64_t> not_sampled;   ///< `logprob-unsampled:N`.
};

}  // namespace fairlead::mock
