#pragma once

#include <cstddef>
#include <vector>

#include "tokenizer/bpe_paths.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// Longest token, in bytes, of a model that is merged by rank; real ones end at 128.
inline constexpr std::size_t kMaxRankTokenBytes = 1024;

/// The merges of a model that has none written down but joins, of all neighbours whose joined bytes
/// are a token, those with the lowest id, the leftmost of equals (`tiktoken`). By id, one for each
/// token that arises so: while its bytes are being joined, nothing outside of them matters until
/// something crosses their ends, so it arises everywhere from the same two parts.
///
/// The vocabulary has all single bytes and no token above `kMaxRankTokenBytes`.
std::vector<BpePaths::Pair> merges_by_id(const Vocabulary& vocabulary);

}  // namespace fairlead::tokenizer
