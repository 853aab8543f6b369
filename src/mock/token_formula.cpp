#include "mock/token_formula.hpp"

#include <string>

#include "mock/blake3.hpp"

namespace fairlead::mock {

namespace {

// The first 8 bytes, little-endian, of the hash of the seed and a text.
std::uint64_t hash_of(std::uint64_t seed, std::string_view text) {
  std::string input;
  for (int i = 0; i < 8; ++i) {
    input.push_back(static_cast<char>(seed >> 8 * i));
  }
  input += text;
  const auto digest = blake3(input);
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    hash |= std::uint64_t{digest[i]} << 8 * i;
  }
  return hash;
}

}  // namespace

TokenFormula::TokenFormula(std::uint64_t seed, std::string_view request_id)
    : start_(hash_of(seed, request_id)) {}

std::uint64_t adapter_seed(std::uint64_t seed, std::string_view lora) {
  return lora.empty() ? seed : hash_of(seed, lora);
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
