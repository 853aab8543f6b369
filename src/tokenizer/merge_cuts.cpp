#include "tokenizer/merge_cuts.hpp"

#include <algorithm>
#include <bit>

#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr unsigned kAscii = 128;
// Bits for each pair: of those that are not joined about one in 32 is taken for one.
constexpr std::size_t kBitsPerPair = 32;

}  // namespace

void CharacterIds::set(char32_t character, TokenId id) {
  std::uint16_t& page = pages_of_[character >> 8];
  if (page == 0) {
    pages_.emplace_back().fill(kNone);
    page = static_cast<std::uint16_t>(pages_.size());
  }
  pages_[page - 1U][character & 0xFF] = id;
}

std::size_t MergeCuts::bit_of(char32_t before, char32_t after) const {
  const std::uint64_t pair = std::uint64_t{before} << 21 | after;
  return static_cast<std::size_t>(pair * 0x9E3779B97F4A7C15 >> shift_);
}

void MergeCuts::build(std::span<const Pair> joined, const CharacterIds& known) {
  known_ = &known;
  std::vector<std::uint64_t> pairs;
  pairs.reserve(joined.size());
  for (const Pair& pair : joined) {
    pairs.push_back(std::uint64_t{pair.before} << 32 | pair.after);
  }
  std::ranges::sort(pairs);
  const auto repeated = std::ranges::unique(pairs);
  pairs.erase(repeated.begin(), repeated.end());
  const std::size_t bits = std::bit_ceil(std::max<std::size_t>(pairs.size() * kBitsPerPair, 64));
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(bits));
  joined_.assign(bits / 64, 0);
  ascii_.assign(std::size_t{kAscii} * kAscii, 0);
  for (char32_t before = 0; before < kAscii; ++before) {
    for (char32_t after = 0; after < kAscii; ++after) {
      ascii_[before * kAscii + after] =
          known.find(before) != CharacterIds::kNone && known.find(after) != CharacterIds::kNone;
    }
  }
  for (const std::uint64_t pair : pairs) {
    const auto before = static_cast<char32_t>(pair >> 32);
    const auto after = static_cast<char32_t>(pair);
    if (before < kAscii && after < kAscii) {
      ascii_[before * kAscii + after] = 0;
    }
    const std::size_t bit = bit_of(before, after);
    joined_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
}

bool MergeCuts::apart(char32_t before, char32_t after) const {
  const std::size_t bit = bit_of(before, after);
  return (joined_[bit / 64] >> bit % 64 & 1) == 0 && known_->find(before) != CharacterIds::kNone &&
         known_->find(after) != CharacterIds::kNone;
}

std::size_t MergeCuts::cut(std::string_view text, std::size_t from,
                           std::span<std::size_t> ends) const {
  std::size_t count = 0;
  std::size_t length = 0;
  char32_t before = decode_valid(text.data() + from, length);
  std::size_t pos = from + length;
  while (pos < text.size() && count < ends.size()) {
    if (before < kAscii) {
      auto after = static_cast<unsigned char>(text[pos]);
      while (after < kAscii) {
        // Written in any case: whether it is an end cannot be foreseen.
        ends[count] = pos;
        count += ascii_[before * kAscii + after];
        before = after;
        if (++pos == text.size() || count == ends.size()) {
          break;
        }
        after = static_cast<unsigned char>(text[pos]);
      }
      if (pos == text.size() || count == ends.size()) {
        break;
      }
    }
    const char32_t after = decode_valid(text.data() + pos, length);
    if (apart(before, after)) {
      ends[count++] = pos;
    }
    before = after;
    pos += length;
  }
  if (count < ends.size()) {
    ends[count++] = text.size();
  }
  return count;
}

}  // namespace fairlead::tokenizer
