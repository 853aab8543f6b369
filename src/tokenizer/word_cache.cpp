#include "tokenizer/word_cache.hpp"

#include <new>
#include <utility>

namespace fairlead::tokenizer {

void WordCache::grow() {
  const std::size_t old_lines = bits_ == 0 ? 0 : std::size_t{1} << bits_;
  const std::size_t old_longs = old_lines >> kLongShift;
  bits_ = bits_ == 0 ? kFirstBits : std::min(bits_ + kMoreBits, kMostBits);
  kept_ = 0;
  // Fresh memory of the system is zero, which is no word of a model, and costs nothing until it is
  // used.
  const std::size_t line_bytes = sizeof(Line) << bits_;
  const std::size_t bytes = line_bytes + sizeof(Long) * long_places();
  std::size_t room = bytes + alignof(Line);
  Memory memory(std::calloc(1, room));  // NOLINT
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  void* begin = memory.get();
  std::align(alignof(Line), bytes, begin, room);
  const Memory old = std::exchange(memory_, std::move(memory));
  const std::span<const Line> lines(std::exchange(lines_, static_cast<Line*>(begin)), old_lines);
  const std::span<const Long> longs(
      std::exchange(longs_, reinterpret_cast<Long*>(static_cast<char*>(begin) + line_bytes)),
      old_longs);
  for (const Line& line : lines) {
    insert(line.words[1]);
    insert(line.words[0]);
  }
  for (const Long& word : longs) {
    insert(word);
  }
}

void WordCache::insert(const Short& word) {
  if (const std::uint32_t model = word.owner >> 2; model != 0) {
    Short(&words)[2] = lines_[line_of(word.key, model)].words;
    if (!words[0].holds(word.key, model)) {  // as when it was in a batch twice
      words[1] = words[0];
      words[0] = word;
    }
  }
}

void WordCache::insert(const Long& word) {
  if (word.model != 0) {
    long_place(word.model, {word.word, word.bytes}) = word;
  }
}

bool WordCache::append_long(std::uint32_t model, std::string_view word, std::vector<TokenId>& out) {
  if (word.size() > kLongBytes) {
    return false;
  }
  const Long& place = long_place(model, word);
  if (!place.holds(model, word)) {
    return false;
  }
  out.insert(out.end(), place.tokens, place.tokens + place.ids);
  return true;
}

void WordCache::keep(std::uint32_t model, std::string_view word, std::span<const TokenId> became) {
  if (word.size() > kLongBytes || became.size() > kLongIds || model == 0) {
    return;
  }
  if (++kept_ >> bits_ != 0 && bits_ < kMostBits) {  // half of the places are taken
    grow();
  }
  const auto ids = static_cast<std::uint8_t>(became.size());
  if (word.size() <= kShortBytes && became.size() <= kShortIds) {
    Short entry{.key = key_of(word, 0, word.size()), .tokens = {}, .owner = model << 2 | ids};
    std::copy(became.begin(), became.end(), entry.tokens);
    insert(entry);
    return;
  }
  Long entry{.model = model,
             .bytes = static_cast<std::uint8_t>(word.size()),
             .ids = ids,
             .word = {},
             .tokens = {}};
  std::memcpy(entry.word, word.data(), word.size());
  std::copy(became.begin(), became.end(), entry.tokens);
  insert(entry);
}

}  // namespace fairlead::tokenizer
