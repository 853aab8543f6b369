#include "tokenizer/word_cache.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

namespace fairlead::tokenizer {
namespace {

// What `model` makes of a word: up to 15 tokens that depend on all of it.
std::vector<TokenId> tokens_of(std::uint32_t model, std::string_view word) {
  const auto hash = static_cast<std::uint32_t>(hash_bytes(word.data(), word.size()) >> 32);
  std::vector<TokenId> ids;
  for (std::uint32_t i = 0; i < (hash % 4 != 0 ? hash % 4 : hash / 4 % 16); ++i) {
    ids.push_back((hash ^ model * 77) >> i % 8 & kMaxTokenId);
  }
  return ids;
}

class Words {
 public:
  Words(WordCache& cache, std::uint32_t model) : cache_(cache), model_(model) {}

  // Encodes words of these lengths in a text that ends with them.
  void check(std::string_view text, std::span<const std::size_t> ends) {
    const std::unique_ptr<char[]> exact(new char[text.size()]);  // so that no byte behind is read
    std::copy(text.begin(), text.end(), exact.get());
    text = {exact.get(), text.size()};
    std::vector<TokenId> expected = {7};
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      const std::vector<TokenId> ids = tokens_of(model_, text.substr(begin, end - begin));
      expected.insert(expected.end(), ids.begin(), ids.end());
      begin = end;
    }
    std::vector<TokenId> out = {7};
    cache_.encode(
        model_, text, 0, ends, out, [](std::string_view) {},
        [&](std::string_view word, std::vector<TokenId>& into) {
          ++encoded;
          const std::vector<TokenId> ids = tokens_of(model_, word);
          into.insert(into.end(), ids.begin(), ids.end());
          return keep;
        });
    ASSERT_EQ(out, expected);
  }

  std::size_t encoded = 0;
  bool keep = true;

 private:
  WordCache& cache_;
  std::uint32_t model_;
};

// Words of bytes that are often equal, zeroes among them, so that only all of a word tells it from
// others; many of them, so that the cache grows to its end.
TEST(WordCache, GivesWhatWordsBecame) {
  WordCache cache;
  Words words[] = {{cache, WordCache::new_model()}, {cache, WordCache::new_model()}};
  std::mt19937 random(1);
  for (int round = 0; round < 6'000; ++round) {
    std::string text;
    std::vector<std::size_t> ends;
    for (std::size_t left = 1 + random() % WordCache::kBatch; left > 0; --left) {
      const std::size_t size = random() % 8 != 0 ? 1 + random() % 8 : 1 + random() % 90;
      for (std::size_t i = 0; i < size; ++i) {
        text += "\0abcdefg"[random() % 8];
      }
      ends.push_back(text.size());
    }
    words[random() % 2].check(text, ends);
    if (HasFatalFailure()) {
      return;
    }
  }
}

TEST(WordCache, RemembersShortWordsOfFewTokens) {
  WordCache cache;
  Words words(cache, WordCache::new_model());
  std::string text;
  std::vector<std::size_t> ends;
  for (std::size_t size = 1; size <= 60; size += 2) {
    text += std::string(size, static_cast<char>('A' + size));
    ends.push_back(text.size());
  }
  words.check(text, ends);
  EXPECT_EQ(words.encoded, ends.size());
  words.check(text, ends);
  // Words of many tokens are not kept, and some share a place, depending on the model's number.
  EXPECT_LE(words.encoded, ends.size() + ends.size() / 2);
  // Another model's words are others.
  Words others(cache, WordCache::new_model());
  others.check(text, ends);
  EXPECT_EQ(others.encoded, ends.size());
}

TEST(WordCache, KeepsNothingThatFailed) {
  WordCache cache;
  Words words(cache, WordCache::new_model());
  words.keep = false;
  const std::size_t end = 3;
  words.check("abc", {&end, 1});
  words.check("abc", {&end, 1});
  EXPECT_EQ(words.encoded, 2U);
}

}  // namespace
}  // namespace fairlead::tokenizer
