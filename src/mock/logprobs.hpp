#pragma once

#include <cstddef>
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

/// The log-probabilities of a prompt, some positions at a time: all of them may be far more work
/// than one turn of the reactor should take.
class PromptScores {
 public:
  /// Nothing to do when the request does not want them, or a fault leaves them out. The spec must
  /// outlive it.
  PromptScores(const GenerateSpec& spec, const LogprobFaults& faults, std::uint64_t vocabulary,
               bool with_token);
  /// Calls `take` for the next positions, in order, as many as one turn has time for. The first
  /// position has nothing before it and no scores: null. True when more are left.
  template <class Take>
  bool next(Take&& take) {
    for (std::size_t done = 0; position_ < positions_ && done < kEntriesPerTurn; ++position_) {
      if (position_ == 0) {
        take(static_cast<const ScoredToken*>(nullptr));
        continue;
      }
      const ScoredToken scored =
          score(spec_.prompt[position_], spec_.prompt_candidates, vocabulary_, with_token_);
      take(&scored);
      done += 1 + scored.candidates.size();
    }
    return !complete();
  }
  /// True when every position was taken.
  bool complete() const { return position_ == positions_; }

 private:
  // Well below a millisecond, whatever they are written as.
  static constexpr std::size_t kEntriesPerTurn = 4096;

  const GenerateSpec& spec_;
  std::uint64_t vocabulary_;
  bool with_token_;
  std::size_t positions_ = 0;
  std::size_t position_ = 0;
};

}  // namespace fairlead::mock
