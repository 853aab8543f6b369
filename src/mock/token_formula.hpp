#pragma once

#include <cstdint>
#include <string_view>

namespace fairlead::mock {

/// A token id as engines number them.
using TokenId = std::uint32_t;

/// The tokens that a simulated engine generates: a pure function of seed, request id and position,
/// the one published for Dynamo's mock servers, so that a test can compute every token it should
/// see.
class TokenFormula {
 public:
  /// Ids lie in [kFirst, kFirst + kSpan).
  static constexpr TokenId kFirst = 1000;
  /// Number of different ids.
  static constexpr TokenId kSpan = 31000;

  /// The stream of one request.
  TokenFormula(std::uint64_t seed, std::string_view request_id);

  /// The token at `position`, counted from 0 for the first generated one.
  TokenId at(std::uint64_t position) const {
    return mixed(start_ + position * 0x9E3779B97F4A7C15ULL);
  }

  /// The id that 64 bits are mixed to.
  static TokenId mixed(std::uint64_t v) {
    v = (v ^ v >> 30) * 0xBF58476D1CE4E5B9ULL;
    v = (v ^ v >> 27) * 0x94D049BB133111EBULL;
    v ^= v >> 31;
    return kFirst + static_cast<std::uint32_t>(v) % kSpan;
  }

 private:
  std::uint64_t start_;
};

/// Tokens of which each follows from the seed, its place in the whole sequence (the prompt counts)
/// and the token before it: what another engine of the same seed generates to a prompt that ends
/// with the first tokens of an answer is the rest of that answer.
class TokenChain {
 public:
  /// The chain of one seed.
  explicit TokenChain(std::uint64_t seed) : seed_(seed) {}

  /// The token at place `position`, counted from 0 for the prompt's first one, behind `previous`.
  TokenId at(std::uint64_t position, TokenId previous) const {
    return TokenFormula::mixed(seed_ + position * 0x9E3779B97F4A7C15ULL +
                               (std::uint64_t{previous} + 1) * 0xD1B54A32D192ED03ULL);
  }

 private:
  std::uint64_t seed_;
};

/// The seed that an adapter's answers are drawn with instead of `seed`.
std::uint64_t adapter_seed(std::uint64_t seed, std::string_view lora);

/// Further candidates that a position has beside its token.
inline constexpr std::uint32_t kMaxCandidates = 20;

/// Log-probability of a generated or scored token, -0.1 to -1.0.
float token_logprob(TokenId token);

/// Log-probability of `candidate` at a position whose token is `token`: 0.1 less per id of
/// distance, counted upwards modulo `vocabulary`.
float candidate_logprob(TokenId token, TokenId candidate, std::uint64_t vocabulary);

}  // namespace fairlead::mock
