#include "mock/logprobs.hpp"

#include <algorithm>
#include <limits>

namespace fairlead::mock {

ScoredToken score(TokenId token, const CandidateChoice& choice, std::uint64_t vocabulary,
                  bool with_token) {
  ScoredToken scored;
  scored.token = {token, token_logprob(token), 1};
  if (!choice.token_ids.empty()) {
    std::uint32_t rank = 0;
    for (const TokenId id : choice.token_ids) {
      scored.candidates.push_back({id, candidate_logprob(token, id, vocabulary), ++rank});
    }
    return scored;
  }
  const std::uint64_t most = std::min<std::uint64_t>(choice.top_n, vocabulary);
  const std::uint64_t first = with_token ? 0 : 1;
  scored.candidates.reserve(most);
  for (std::uint64_t i = first; i < most + first; ++i) {
    const auto id =
        static_cast<TokenId>(token + i < vocabulary ? token + i : (token + i) % vocabulary);
    scored.candidates.push_back({id,
                                 static_cast<float>(-0.1 * static_cast<double>(token % 10 + 1 + i)),
                                 static_cast<std::uint32_t>(i + 1)});
  }
  return scored;
}

LogprobFaults::LogprobFaults(std::span<const Fault> faults) {
  for (const Fault& fault : faults) {
    switch (fault.kind) {
      case FaultKind::LogprobsNull: null = true; break;
      case FaultKind::LogprobsEmpty: empty = true; break;
      case FaultKind::LogprobsShort: shorter = true; break;
      case FaultKind::Cumulative: cumulative = true; break;
      case FaultKind::LogprobNan: not_a_number = fault.tokens; break;
      case FaultKind::LogprobUnsampled: not_sampled = fault.tokens; break;
      default: break;
    }
  }
}

void LogprobFaults::apply(ScoredToken& scored, std::uint64_t position) const {
  if (not_a_number == position) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (Candidate& candidate : scored.candidates) {
      if (candidate.id == scored.token.id) {
        candidate.logprob = kNan;
      }
    }
    scored.token.logprob = kNan;
  }
  if (not_sampled == position) {
    std::erase_if(scored.candidates, [&](const Candidate& c) { return c.id == scored.token.id; });
    scored.unsampled = true;
  }
}

PromptScores::PromptScores(const GenerateSpec& spec, const LogprobFaults& faults,
                           std::uint64_t vocabulary, bool with_token)
    : spec_(spec), vocabulary_(vocabulary), with_token_(with_token) {
  if (spec.prompt_logprobs && !faults.null && !faults.empty) {
    positions_ = spec.prompt.size() - (faults.shorter ? 1 : 0);
  }
}

}  // namespace fairlead::mock
