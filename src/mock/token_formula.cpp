#include "mock/token_formula.hpp"

#include <string>

#include "mock/blake3.hpp"

namespace fairlead::mock {

TokenFormula::TokenFormula(std::uint64_t seed, std::string_view request_id) : start_(0) {
  std::string input;
  for (int i = 0; i < 8; ++i) {
    input.push_back(static_cast<char>(seed >> 8 * i));
  }
  input += request_id;
  const auto digest = blake3(input);
  for (std::size_t i = 0; i < 8; ++i) {
    start_ |= std::uint64_t{digest[i]} << 8 * i;
  }
}

float token_logprob(TokenId token) {
  return static_cast<float>(-0.1 * static_cast<double>(token % 10 + 1));
}

float candidate_logprob(TokenId token, TokenId candidate, std::uint64_t vocabulary) {
  const std::uint64_t distance =
      candidate >= token ? candidate - token : vocabulary - (token - candidate) % vocabulary;
  return static_cast<float>(-0.1 * static_cast<double>(token % 10 + 1 + distance));
}

}  // namespace fairlead::mock
