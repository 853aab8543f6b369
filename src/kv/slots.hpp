#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE4_1__
#include <smmintrin.h>
#endif

// What the index's open-addressing tables share: how a hash finds its bucket and which sizes exist.
// A bucket is one cache line of slots. What finds its bucket full goes on to one that is not; a
// search ends at the first bucket with a free slot.

namespace fairlead::kv {

/// Bytes that come from memory together.
inline constexpr std::size_t kCacheLine = 64;

/// Spreads a hash over 64 bits; engines' hashes may be small or regular.
constexpr std::uint64_t mix_hash(std::uint64_t hash) {
  hash ^= hash >> 32U;
  hash *= 0x9E3779B97F4A7C15ULL;
  return hash ^ (hash >> 29U);
}

/// Keeps 0 free to mean an empty slot.
constexpr std::uint64_t slot_key(std::uint64_t hash) {
  return hash != 0 ? hash : 0xD6E8FEB86659FD93ULL;
}

/// Slots of a bucket: keys and values of 8 bytes fill one cache line.
inline constexpr std::size_t kBucketSlots = 4;

/// Which of the four words at `words`, aligned to 16 bytes, are `word`, as bits: without branches,
/// since where a key lies is random. Nobody may write them meanwhile.
inline unsigned words_with(const void* words, std::uint64_t word) {
#ifdef __SSE4_1__
  const auto* const pairs = static_cast<const __m128i*>(words);
  const __m128i wanted = _mm_set1_epi64x(static_cast<long long>(word));
  const auto equal = [&](const __m128i* pair) {
    const __m128i same = _mm_cmpeq_epi64(_mm_load_si128(pair), wanted);
    return static_cast<unsigned>(_mm_movemask_pd(_mm_castsi128_pd(same)));
  };
  return equal(pairs) | equal(pairs + 1) << 2U;
#else
  std::uint64_t at[kBucketSlots];
  std::memcpy(at, words, sizeof(at));
  unsigned slots = 0;
  for (unsigned i = 0; i < kBucketSlots; ++i) {
    slots |= static_cast<unsigned>(at[i] == word) << i;
  }
  return slots;
#endif
}

/// Bucket of a spread hash among `buckets`; the order of hashes is kept.
constexpr std::size_t bucket_of(std::uint64_t spread, std::size_t buckets) {
  return static_cast<std::size_t>((static_cast<unsigned __int128>(spread) * buckets) >> 64U);
}

/// Used slots at which a table grows: 25/32. At 7/8 more than half of the buckets would be full,
/// and a search for what is not there would go on behind them.
constexpr std::size_t slots_usable(std::size_t capacity) {
  return capacity - capacity / 32 * 7 - capacity % 32 * 7 / 32;
}

/// The size above `capacity`: sizes are an eighth apart, so a table is never less than about 69 %
/// full after it grew.
constexpr std::size_t slots_above(std::size_t capacity) {
  const std::size_t next = capacity + capacity / 8;
  return next < 16 ? 16 : (next + 3) & ~std::size_t{3};
}

/// The smallest size that holds `used` slots; 0 for none. A function of `used` alone, so what was
/// grown and emptied again takes what it would take if built anew.
constexpr std::size_t slots_for(std::size_t used) {
  std::size_t capacity = 0;
  while (slots_usable(capacity) < used) {
    capacity = slots_above(capacity);
  }
  return capacity;
}

}  // namespace fairlead::kv
