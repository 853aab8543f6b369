#include "tokenizer/piece_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

using testing::added_token;
using testing::encode;
using testing::make;
using testing::random_text;
using testing::SmallModel;

using Ids = std::vector<TokenId>;

std::optional<Ids> found(PieceCache& cache, const PieceCache::Key& key) {
  Ids ids;
  return cache.find(key, ids) ? std::optional(ids) : std::nullopt;
}

std::string text_of(int number, std::size_t bytes = PieceCache::kMinBytes) {
  std::string text = std::to_string(number) + " ";
  text.resize(bytes, 'x');
  return text;
}

// Sets the limit of the cache that tokenizers use, for one test.
class ProcessLimit {
 public:
  explicit ProcessLimit(std::size_t bytes) { PieceCache::of_process().set_limit(bytes); }
  ProcessLimit(const ProcessLimit&) = delete;
  ProcessLimit& operator=(const ProcessLimit&) = delete;
  ~ProcessLimit() { PieceCache::of_process().set_limit(PieceCache::kDefaultLimit); }
};

TEST(PieceCache, FindsWhatItKeepsAndNothingElse) {
  PieceCache cache;
  const std::string text = text_of(1);
  cache.keep(cache.key(7, true, text), Ids{1, 2, 3});
  EXPECT_EQ(found(cache, cache.key(7, true, text)), (Ids{1, 2, 3}));
  EXPECT_EQ(found(cache, cache.key(8, true, text)), std::nullopt);
  EXPECT_EQ(found(cache, cache.key(7, false, text)), std::nullopt);
  EXPECT_EQ(found(cache, cache.key(7, true, text + "x")), std::nullopt);
  Ids ids = {9};
  EXPECT_TRUE(cache.find(cache.key(7, true, text), ids));
  EXPECT_EQ(ids, (Ids{9, 1, 2, 3}));
  cache.keep(cache.key(7, true, text), Ids{1, 2, 3});
  const PieceCache::Stats stats = cache.stats();
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 3u);
  EXPECT_GE(stats.bytes, text.size() + 3 * sizeof(TokenId));
  EXPECT_LT(stats.bytes, 2 * text.size()) << "the same text is kept once";
}

TEST(PieceCache, EqualHashesAreNotEqualTexts) {
  PieceCache cache;
  const std::string first = text_of(1);
  const std::string second = text_of(2);
  const PieceCache::Key key = cache.key(1, false, first);
  cache.keep(key, Ids{1});
  EXPECT_EQ(found(cache, {1, false, second, key.hash}), std::nullopt);
  EXPECT_EQ(found(cache, {1, true, first, key.hash}), std::nullopt);
  EXPECT_EQ(found(cache, {2, false, first, key.hash}), std::nullopt);
  cache.keep({1, false, second, key.hash}, Ids{2});
  EXPECT_EQ(found(cache, {1, false, second, key.hash}), Ids{2});
  EXPECT_EQ(found(cache, key), std::nullopt);
}

TEST(PieceCache, TheLeastRecentlyUsedMakeRoom) {
  constexpr std::size_t kLimit = 256 * 1024;
  PieceCache cache(kLimit);
  const std::string kept = text_of(-1);
  cache.keep(cache.key(1, false, kept), Ids{5});
  for (int i = 0; i < 2000; ++i) {
    const std::string text = text_of(i);
    cache.keep(cache.key(1, false, text), Ids(100, static_cast<TokenId>(i)));
    ASSERT_LE(cache.stats().bytes, kLimit);
    ASSERT_EQ(found(cache, cache.key(1, false, text)), Ids(100, static_cast<TokenId>(i)));
    ASSERT_EQ(found(cache, cache.key(1, false, kept)), Ids{5}) << i;
  }
  EXPECT_GT(cache.stats().bytes, kLimit / 2);
  EXPECT_EQ(found(cache, cache.key(1, false, text_of(0))), std::nullopt);
}

TEST(PieceCache, OneLargeTextPushesOutManyButNotAll) {
  constexpr std::size_t kLimit = 256 * 1024;
  PieceCache cache(kLimit);
  for (int i = 0; i < 1000; ++i) {
    cache.keep(cache.key(1, false, text_of(i)), Ids{1});
  }
  const std::string large = text_of(-1, kLimit / 4 - 1024);
  cache.keep(cache.key(1, false, large), Ids{2});
  EXPECT_EQ(found(cache, cache.key(1, false, large)), Ids{2});
  EXPECT_LE(cache.stats().bytes, kLimit);
  EXPECT_GT(cache.stats().bytes, kLimit / 2);
  const std::string too_large = text_of(-2, kLimit / 4);
  cache.keep(cache.key(1, false, too_large), Ids{3});
  EXPECT_EQ(found(cache, cache.key(1, false, too_large)), std::nullopt);
}

TEST(PieceCache, TheLimitCanChange) {
  PieceCache cache;
  for (int i = 0; i < 100; ++i) {
    cache.keep(cache.key(1, false, text_of(i)), Ids{1});
  }
  EXPECT_TRUE(cache.takes(PieceCache::kMinBytes));
  EXPECT_FALSE(cache.takes(PieceCache::kMinBytes - 1));
  cache.set_limit(10000);
  EXPECT_LE(cache.stats().bytes, 10000u);
  EXPECT_GT(cache.stats().bytes, 0u);
  cache.set_limit(0);
  EXPECT_EQ(cache.stats().bytes, 0u);
  EXPECT_FALSE(cache.takes(PieceCache::kMinBytes));
  cache.keep(cache.key(1, false, text_of(1)), Ids{1});
  EXPECT_EQ(cache.stats().bytes, 0u);
}

TEST(PieceCache, ThreadsShareIt) {
  constexpr std::size_t kLimit = 64 * 1024;
  PieceCache cache(kLimit);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 4000; ++i) {
        const int number = static_cast<int>(random() % 80);
        const std::string text = text_of(number, 512 + static_cast<std::size_t>(number) * 7);
        const PieceCache::Key key = cache.key(1, false, text);
        const Ids ids(static_cast<std::size_t>(number) + 1, static_cast<TokenId>(number));
        Ids got;
        if (!cache.find(key, got)) {
          cache.keep(key, ids);
        } else if (got != ids) {
          ++wrong;
        }
        if (i % 500 == 0) {
          cache.set_limit(random() % 4 == 0 ? kLimit / 2 : kLimit);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(cache.stats().hits, 0u);
  cache.set_limit(kLimit);
  EXPECT_LE(cache.stats().bytes, kLimit);
}

// One tokenizer of each kind of thing that could make a text's ids depend on what surrounds it.
std::vector<SmallModel> models() {
  std::vector<SmallModel> all(6);
  const std::string tokens =
      "[" + added_token("<x>", "rstrip special") + "," + added_token("<x>y", "special") + "," +
      added_token(" b", "lstrip") + "," + added_token("s\u00E9", "normalized single_word") + "," +
      added_token("ve", "normalized rstrip") + "," + added_token("<", "single_word") + "]";
  for (SmallModel& model : all) {
    model.merges = {{"s", "t"}, {" ", "s"}, {"l", "l"}, {" ", "r"}, {"1", "9"}, {"e", "v"}};
    model.added_tokens = tokens;
  }
  all[1].normalizer = R"({"type":"NFC"})";
  all[2].normalizer = R"({"type":"Sequence","normalizers":[{"type":"Strip","strip_left":true,)"
                      R"("strip_right":true},{"type":"Prepend","prepend":"s"}]})";
  for (const std::size_t general : {3, 4, 5}) {
    all[general].decoder = R"({"type":"Metaspace","replacement":"s","prepend_scheme":"first"})";
    all[general].pre_tokenizer =
        R"({"type":"Metaspace","replacement":"s","prepend_scheme":"first","split":true})";
  }
  all[4].normalizer = R"({"type":"Strip","strip_left":true,"strip_right":false})";
  all[5].pre_tokenizer = R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})";
  return all;
}

// A text of parts that come again in others, long enough to be kept, with added tokens between.
std::string some_text(std::mt19937& random, const std::vector<std::string>& parts) {
  static constexpr std::string_view kBetween[] = {"<x>", "<x>y", " b", "s\u00E9", "<", "", " "};
  std::string text;
  for (std::size_t count = 1 + random() % 5; count > 0; --count) {
    text += kBetween[random() % std::size(kBetween)];
    text += parts[random() % parts.size()];
  }
  return text + std::string(kBetween[random() % std::size(kBetween)]);
}

std::vector<std::string> some_parts(std::mt19937& random) {
  std::vector<std::string> parts = {"a", "st", std::string(600, ' '), std::string(700, 's')};
  for (int i = 0; i < 6; ++i) {
    std::string part = random_text(random, 500);
    std::erase(part, '<');  // so that it stays whole
    parts.push_back(std::move(part));
  }
  return parts;
}

TEST(PieceCache, ChangesNoIds) {
  std::mt19937 random(4711);
  for (const SmallModel& model : models()) {
    const auto tokenizer = make(model.json());
    ASSERT_NE(tokenizer, nullptr);
    const std::vector<std::string> parts = some_parts(random);
    std::vector<std::string> texts;
    std::vector<Ids> expected;
    {
      const ProcessLimit off(0);
      for (int i = 0; i < 60; ++i) {
        texts.push_back(some_text(random, parts));
        expected.push_back(encode(*tokenizer, texts.back()));
      }
    }
    const PieceCache::Stats before = PieceCache::of_process().stats();
    for (int i = 0; i < 300; ++i) {
      const std::size_t which = random() % texts.size();
      ASSERT_EQ(encode(*tokenizer, texts[which]), expected[which]) << texts[which];
    }
    const PieceCache::Stats after = PieceCache::of_process().stats();
    EXPECT_GT(after.hits - before.hits, after.misses - before.misses);
  }
}

TEST(PieceCache, ThreadsEncodeTheSameTexts) {
  std::mt19937 random(99);
  const ProcessLimit small(128 * 1024);
  const auto tokenizer = make(models()[1].json());
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<std::string> parts = some_parts(random);
  std::vector<std::string> texts;
  std::vector<Ids> expected;
  for (int i = 0; i < 30; ++i) {
    texts.push_back(some_text(random, parts));
    expected.push_back(encode(*tokenizer, texts.back()));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 mine(seed);
      for (int i = 0; i < 100; ++i) {
        const std::size_t which = mine() % texts.size();
        Ids ids;
        if (!tokenizer->encode(texts[which], false, ids) || ids != expected[which]) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

TEST(PieceCache, NothingOfAnEncodingThatWasStoppedIsKept) {
  const auto tokenizer = make(SmallModel().json());
  std::mt19937 random(5);
  std::stop_source stop;
  stop.request_stop();
  const std::string text = random_text(random, 60000);
  const std::size_t before = PieceCache::of_process().stats().bytes;
  Ids ids;
  const Result<> done = tokenizer->encode(text, false, ids, stop.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(PieceCache::of_process().stats().bytes, before);
}

}  // namespace
}  // namespace fairlead::tokenizer
