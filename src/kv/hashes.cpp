#include "kv/hashes.hpp"

// Inlined so that the branches on the length of a block are decided once.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>

namespace fairlead::kv {
namespace {

static_assert(std::endian::native == std::endian::little,
              "hashes cover tokens as little-endian bytes");

constexpr std::uint64_t kLoraSeed = 0;
constexpr std::uint64_t kSaltSeed = 1;
constexpr std::uint64_t kIdentifierSeed = 0;
constexpr std::size_t kDigestDigits = 64;
constexpr std::size_t kLeadingDigits = 16;

/// Calls `use(first token, bytes)` for every complete block.
template <class Use>
void for_each_block(std::span<const std::uint32_t> tokens, HashParams params, Use&& use) {
  const std::size_t blocks = complete_blocks(tokens.size(), params);
  const std::size_t window = params.block_size + (params.bigram ? 1U : 0U);
  const std::uint32_t* at = tokens.data();
  for (std::size_t i = 0; i < blocks; ++i, at += params.block_size) {
    use(at, window * sizeof(std::uint32_t));
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::uint64_t salt_seed(std::string_view cache_salt) {
  return cache_salt.empty() ? 0
                            : XXH3_64bits_withSeed(cache_salt.data(), cache_salt.size(), kSaltSeed);
}

std::uint64_t hash_seed(std::string_view lora_name, std::string_view cache_salt) {
  std::uint64_t seed = kBaseSeed + salt_seed(cache_salt);
  if (!lora_name.empty()) {
    seed += XXH3_64bits_withSeed(lora_name.data(), lora_name.size(), kLoraSeed);
  }
  return seed;
}

LocalHash local_hash(std::span<const std::uint32_t> window, std::uint64_t seed) {
  return XXH3_64bits_withSeed(window.data(), window.size_bytes(), seed);
}

LocalHash local_hash(std::span<const std::uint32_t> window, std::uint64_t seed,
                     std::span<const std::uint64_t> mm_hashes) {
  if (mm_hashes.empty()) {
    return local_hash(window, seed);
  }
  std::vector<std::uint64_t> sorted(mm_hashes.begin(), mm_hashes.end());
  std::ranges::sort(sorted);
  XXH3_state_t state;
  XXH3_64bits_reset_withSeed(&state, seed);
  XXH3_64bits_update(&state, window.data(), window.size_bytes());
  XXH3_64bits_update(&state, sorted.data(), sorted.size() * sizeof(sorted[0]));
  return XXH3_64bits_digest(&state);
}

void local_hashes(std::span<const std::uint32_t> tokens, HashParams params, std::uint64_t seed,
                  std::vector<LocalHash>& out) {
  out.reserve(out.size() + complete_blocks(tokens.size(), params));
  for_each_block(tokens, params, [&](const std::uint32_t* window, std::size_t bytes) {
    out.push_back(XXH3_64bits_withSeed(window, bytes, seed));
  });
}

SequenceHash extend_hash(SequenceHash parent, LocalHash next) {
  const std::array<std::uint64_t, 2> both{parent, next};
  return XXH3_64bits_withSeed(both.data(), sizeof(both), kBaseSeed);
}

void sequence_hashes(std::span<const LocalHash> locals, std::vector<SequenceHash>& out) {
  if (locals.empty()) {
    return;
  }
  out.reserve(out.size() + locals.size());
  SequenceHash hash = root_hash(locals.front());
  out.push_back(hash);
  for (const LocalHash local : locals.subspan(1)) {
    hash = extend_hash(hash, local);
    out.push_back(hash);
  }
}

void prompt_hashes(std::span<const std::uint32_t> tokens, HashParams params, std::uint64_t seed,
                   std::vector<SequenceHash>& out) {
  out.reserve(out.size() + complete_blocks(tokens.size(), params));
  bool first = true;
  SequenceHash hash = 0;
  for_each_block(tokens, params, [&](const std::uint32_t* window, std::size_t bytes) {
    const LocalHash local = XXH3_64bits_withSeed(window, bytes, seed);
    hash = first ? root_hash(local) : extend_hash(hash, local);
    first = false;
    out.push_back(hash);
  });
}

std::optional<std::uint64_t> digest_hash(std::string_view text) {
  if (text.size() != kDigestDigits) {
    return std::nullopt;
  }
  std::uint64_t leading = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int digit = hex_digit(text[i]);
    if (digit < 0) {
      return std::nullopt;
    }
    if (i < kLeadingDigits) {
      leading = leading << 4U | static_cast<std::uint64_t>(digit);
    }
  }
  return leading;
}

std::uint64_t mm_hash(std::string_view identifier) {
  if (identifier.empty()) {
    return 0;
  }
  const std::optional<std::uint64_t> digest = digest_hash(identifier);
  return digest ? *digest
                : XXH3_64bits_withSeed(identifier.data(), identifier.size(), kIdentifierSeed);
}

void pad_image_runs(std::span<std::uint32_t> tokens, std::uint32_t image_token,
                    std::span<const std::uint64_t> mm_hashes) {
  if (mm_hashes.empty()) {
    return;
  }
  std::size_t run = 0;
  bool inside = false;
  for (std::uint32_t& token : tokens) {
    const bool image = token == image_token;
    if (image) {
      token = mm_pad_value(mm_hashes[std::min(run, mm_hashes.size() - 1)]);
    } else if (inside) {
      ++run;
    }
    inside = image;
  }
}

}  // namespace fairlead::kv
