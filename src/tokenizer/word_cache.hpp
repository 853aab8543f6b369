#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// What words became, for one thread and all models. It grows with the words that come, up to
/// 5 MiB; a word has one or two places, which belong to the last words that came to them.
///
/// Words of a text come in batches, because their places lie anywhere: all are known before the
/// first one is looked at.
class WordCache {
 public:
  /// Most words of a batch.
  static constexpr std::size_t kBatch = 64;

  WordCache() = default;
  WordCache(const WordCache&) = delete;
  WordCache& operator=(const WordCache&) = delete;

  /// A number for a model, which no other one of the process has; 0 when there are no more, whose
  /// words are not kept.
  static std::uint32_t new_model() {
    static std::atomic<std::uint32_t> last{0};
    const std::uint32_t number = last.load(std::memory_order_relaxed) >= kMaxModel
                                     ? 0
                                     : last.fetch_add(1, std::memory_order_relaxed) + 1;
    return number > kMaxModel ? 0 : number;
  }
  /// The cache of this thread.
  static WordCache& of_thread() {
    thread_local WordCache cache;
    return cache;
  }

  /// Appends what the words became that lie behind each other in `text`: the first one begins at
  /// `begin`, each ends at one of `ends`, of which there are 1 to `kBatch`. `encode(word, out)`
  /// does so for words that are not known here, and tells whether that is worth keeping; all of
  /// them are first told to `prepare(word)`.
  template <class Prepare, class Encode>
  void encode(std::uint32_t model, std::string_view text, std::size_t begin,
              std::span<const std::size_t> ends, std::vector<TokenId>& out, Prepare&& prepare,
              Encode&& encode);

 private:
  static constexpr std::size_t kShortBytes = 15;  // of a word of `Short`
  static constexpr std::size_t kShortIds = 3;
  static constexpr std::size_t kLongBytes = 74;  // of one of `Long`
  static constexpr std::size_t kLongIds = 12;
  // Lines of `Short`s, as a power of two: at first, at most and from one size to the next. There
  // are an eighth as many places for `Long`s.
  static constexpr unsigned kFirstBits = 11;
  static constexpr unsigned kMostBits = 16;
  static constexpr unsigned kMoreBits = 3;
  static constexpr unsigned kLongShift = 3;
  static constexpr std::uint32_t kMaxModel = (1U << 30) - 1;

  // The bytes of a word of up to 15 bytes, zeroes and its length. That of a longer word is that of
  // no shorter one.
  struct Key {
    std::uint64_t low;
    std::uint64_t high;
  };
  // A word of up to 15 bytes and 3 tokens; two lie in a line of memory.
  struct Short {
    Key key;
    TokenId tokens[kShortIds];
    std::uint32_t owner;  // number of the model << 2 | count of tokens

    bool holds(const Key& wanted, std::uint32_t model) const {
      return ((key.low ^ wanted.low) | (key.high ^ wanted.high) | ((owner >> 2) ^ model)) == 0;
    }
    std::uint32_t count() const { return owner & 3; }
  };
  struct alignas(64) Line {
    Short words[2];
  };
  static_assert(sizeof(Line) == 64);

  struct Long {
    std::uint32_t model;
    std::uint8_t bytes;
    std::uint8_t ids;
    char word[kLongBytes];
    TokenId tokens[kLongIds];

    bool holds(std::uint32_t wanted, std::string_view text) const {
      return model == wanted && bytes == text.size() &&
             std::memcmp(word, text.data(), text.size()) == 0;
    }
  };
  static_assert(sizeof(Long) == 128);

  static Key key_of(std::string_view text, std::size_t begin, std::size_t size) {
    static constexpr auto kMasks = [] {
      std::array<Key, kShortBytes + 2> masks{};
      for (std::uint64_t bytes = 0; bytes <= kShortBytes; ++bytes) {
        masks[bytes] = {bytes >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * bytes) - 1,
                        bytes <= 8 ? 0 : (std::uint64_t{1} << 8 * (bytes - 8)) - 1};
      }
      return masks;
    }();
    size = std::min(size, kShortBytes + 1);
    Key key{};
    if (const std::size_t left = text.size() - begin; left >= sizeof(Key)) {
      std::memcpy(&key, text.data() + begin, sizeof(Key));
    } else {
      std::memcpy(&key, text.data() + begin, left);
    }
    key.low &= kMasks[size].low;
    key.high = (key.high & kMasks[size].high) | std::uint64_t{size} << 56;
    return key;
  }
  // Differs for models, so that they do not share the same places.
  std::size_t line_of(const Key& key, std::uint32_t model) const {
    const std::uint64_t mixed =
        (key.low ^ std::uint64_t{model} << 40) * 0x9E3779B97F4A7C15 + key.high * 0xD6E8FEB86659FD93;
    return static_cast<std::size_t>((mixed ^ mixed >> 32) * 0xA0761D6478BD642F >> (64 - bits_));
  }
  Long& long_place(std::uint32_t model, std::string_view word) {
    const std::size_t salt = std::size_t{model} * 64;
    return longs_[token_slot(token_key(word), word.size() + salt, long_places() - 1)];
  }
  std::size_t long_places() const { return std::size_t{1} << (bits_ - kLongShift); }
  void grow();
  void insert(const Short& word);
  void insert(const Long& word);
  // Whether the word is one of `Long`, and has been appended.
  bool append_long(std::uint32_t model, std::string_view word, std::vector<TokenId>& out);
  void keep(std::uint32_t model, std::string_view word, std::span<const TokenId> became);

  struct Free {
    void operator()(void* memory) const { std::free(memory); }  // NOLINT
  };
  using Memory = std::unique_ptr<void, Free>;

  unsigned bits_ = 0;  // of lines; none yet
  std::size_t kept_ = 0;
  Memory memory_;
  Line* lines_ = nullptr;  // in it, and behind them
  Long* longs_ = nullptr;
};

template <class Prepare, class Encode>
void WordCache::encode(std::uint32_t model, std::string_view text, std::size_t begin,
                       std::span<const std::size_t> ends, std::vector<TokenId>& out,
                       Prepare&& prepare, Encode&& encode) {
  if (lines_ == nullptr) {
    grow();
  }
  const std::size_t count = ends.size();
  std::array<Key, kBatch> keys;             // NOLINT: filled below, as are the others
  std::array<const Short*, kBatch> places;  // NOLINT
  std::size_t word_begin = begin;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = key_of(text, word_begin, ends[i] - word_begin);
    places[i] = lines_[line_of(keys[i], model)].words;
    __builtin_prefetch(places[i]);
    word_begin = ends[i];
  }
  std::uint64_t missed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool first = places[i][0].holds(keys[i], model);
    const bool second = places[i][1].holds(keys[i], model);
    places[i] += second ? 1 : 0;
    missed |= std::uint64_t{!first && !second} << i;
  }
  const auto word = [&](std::size_t i) {
    const std::size_t from = i == 0 ? begin : ends[i - 1];
    return text.substr(from, ends[i] - from);
  };
  for (std::uint64_t left = missed; left != 0; left &= left - 1) {
    const std::string_view unknown = word(static_cast<std::size_t>(std::countr_zero(left)));
    if (unknown.size() <= kLongBytes) {
      __builtin_prefetch(&long_place(model, unknown));
    }
    prepare(unknown);
  }
  // Words found are gathered here, four ids at a time of which up to three count.
  std::array<TokenId, kBatch * kShortIds + 1> ids;  // NOLINT
  struct Span {
    std::size_t begin;
    std::size_t end;
  };
  std::array<Span, kBatch> became;  // NOLINT: in `out`, of the words that were missed
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if ((missed >> i & 1) != 0) {
      out.insert(out.end(), ids.data(), ids.data() + at);
      at = 0;
      became[i].begin = out.size();
      if (append_long(model, word(i), out) || !encode(word(i), out)) {
        missed &= ~(std::uint64_t{1} << i);
      }
      became[i].end = out.size();
      continue;
    }
    std::memcpy(&ids[at], places[i]->tokens, 4 * sizeof(TokenId));
    at += places[i]->count();
  }
  out.insert(out.end(), ids.data(), ids.data() + at);
  for (; missed != 0; missed &= missed - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(missed));
    keep(model, word(i), std::span(out).subspan(became[i].begin, became[i].end - became[i].begin));
  }
}

}  // namespace fairlead::tokenizer
