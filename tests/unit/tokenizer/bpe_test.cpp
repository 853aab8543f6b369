#include "tokenizer/bpe.hpp"

#include <gtest/gtest.h>

#include <set>

#include <chrono>
#include <map>
#include <thread>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

// A vocabulary of single bytes out of `alphabet` and all merge results.
Result<BpeModel> build(std::string_view alphabet, const Merges& merges,
                       const BpeOptions& options = {}, const std::vector<std::string>& extra = {}) {
  Vocabulary vocabulary;
  std::set<std::string> seen;
  TokenId next = 0;
  const auto add = [&](const std::string& spelling) {
    if (seen.insert(spelling).second) {
      EXPECT_TRUE(vocabulary.add(spelling, next++));
    }
  };
  for (const char c : alphabet) {
    add(testing::spelled(std::string(1, c)));
  }
  for (const auto& [left, right] : merges) {
    add(testing::spelled(left + right));
  }
  for (const std::string& spelling : extra) {
    add(spelling);
  }
  EXPECT_TRUE(vocabulary.finish());
  Result<BpeModel> model = BpeModel::create(std::move(vocabulary), options);
  for (const auto& [left, right] : merges) {
    if (model) {
      EXPECT_TRUE(model->add_merge(testing::spelled(left), testing::spelled(right)));
    }
  }
  if (model) {
    model->finish();
  }
  return model;
}

std::string encode(const BpeModel& model, std::string_view word) {
  std::vector<TokenId> ids;
  model.encode(word, ids);
  std::string out;
  for (const TokenId id : ids) {
    out += out.empty() ? "" : "|";
    out += model.vocabulary().bytes(id);
  }
  return out;
}

// The definition: of all mergeable pairs the lowest rank, the leftmost of equals, until none is
// left.
std::string merge_by_definition(const Merges& merges, std::string_view word) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    ranks[merges[i]] = i;
  }
  std::vector<std::string> parts;
  for (const char c : word) {
    parts.emplace_back(1, c);
  }
  for (;;) {
    std::size_t best = merges.size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it != ranks.end() && it->second < best) {
        best = it->second;
        at = i;
      }
    }
    if (best == merges.size()) {
      break;
    }
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::string out;
  for (const std::string& part : parts) {
    out += out.empty() ? "" : "|";
    out += part;
  }
  return out;
}

Merges random_merges(std::mt19937& random, std::string_view alphabet, std::size_t count) {
  std::vector<std::string> tokens;
  for (const char c : alphabet) {
    tokens.emplace_back(1, c);
  }
  Merges merges;
  std::set<std::pair<std::string, std::string>> seen;
  while (merges.size() < count) {
    const std::string& left = tokens[random() % tokens.size()];
    const std::string& right = tokens[random() % tokens.size()];
    if (left.size() + right.size() <= 12 && seen.insert({left, right}).second) {
      merges.emplace_back(left, right);
      tokens.push_back(left + right);
    }
  }
  return merges;
}

std::string every_byte() {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all += static_cast<char>(byte);
  }
  return all;
}

TEST(Bpe, MergesByRankThenLeftmost) {
  const auto model = build("abc", {{"b", "c"}, {"a", "b"}, {"a", "a"}});
  EXPECT_EQ(encode(*model, "abc"), "a|bc");
  EXPECT_EQ(encode(*model, "aaa"), "aa|a");
  EXPECT_EQ(encode(*model, "aab"), "a|ab");
  EXPECT_EQ(encode(*model, ""), "");
}

TEST(Bpe, ATokenIsNotAlwaysWhatItsBytesEncodeTo) {
  // "abc" is a token, but "bc" wins first and nothing joins "a" and "bc".
  const auto model = build("abc", {{"b", "c"}, {"a", "b"}, {"ab", "c"}});
  EXPECT_EQ(encode(*model, "abc"), "a|bc");
  EXPECT_EQ(encode(*model, "abc"), "a|bc");
  BpeOptions options;
  options.ignore_merges = true;
  EXPECT_EQ(encode(*build("abc", {{"b", "c"}, {"a", "b"}, {"ab", "c"}}, options), "abc"), "abc");
}

TEST(Bpe, EqualsTheDefinitionOnRandomModels) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const std::string alphabet = std::string("abcdef").substr(0, 2 + random() % 5);
    const Merges merges = random_merges(random, alphabet, 1 + random() % 60);
    // With all bytes in the vocabulary short words take another path than without.
    const auto model = build(round % 2 == 0 ? every_byte() : alphabet, merges);
    for (int i = 0; i < 60; ++i) {
      std::string word;
      for (std::size_t n = 1 + random() % (i < 50 ? 24 : 400); n > 0; --n) {
        word += alphabet[random() % alphabet.size()];
      }
      ASSERT_EQ(encode(*model, word), merge_by_definition(merges, word)) << word;
      ASSERT_EQ(encode(*model, word), merge_by_definition(merges, word)) << "second time " << word;
    }
  }
}

TEST(Bpe, ModelsOfOneThreadKeepTheirWordsApart) {
  const Merges first = {{"a", "b"}, {"ab", "c"}};
  const Merges second = {{"b", "c"}, {"a", "bc"}, {"c", "c"}};
  const auto one = build(every_byte(), first);
  const auto other = build(every_byte(), second);
  for (const std::string word : {"abc", "abcabc", "abcabcabcabc", "ccabcc", "aaaaaaaaaaaaaaaa"}) {
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(encode(*one, word), merge_by_definition(first, word));
      EXPECT_EQ(encode(*other, word), merge_by_definition(second, word));
    }
  }
}

TEST(Bpe, ALongWordTakesNearlyLinearTime) {
  const auto model = build("ab", {{"a", "b"}, {"ab", "ab"}, {"abab", "abab"}, {"b", "a"}});
  std::string word;
  for (int i = 0; i < 250'000; ++i) {
    word += "ab";
  }
  std::vector<TokenId> ids;
  const auto start = std::chrono::steady_clock::now();
  model->encode(word, ids);
  EXPECT_EQ(ids.size(), 62'500u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Bpe, BytesWithoutTokenVanishOrBecomeUnknown) {
  EXPECT_EQ(encode(*build("ab", {{"a", "b"}}), "axb"), "ab");
  BpeOptions options;
  options.unk_token = "<unk>";
  const auto single = build("ab", {{"a", "b"}}, options, {"<unk>"});
  EXPECT_EQ(encode(*single, "axyb"), "a|<unk>|<unk>|b");
  EXPECT_EQ(encode(*single, "x"), "<unk>");
  options.fuse_unk = true;
  EXPECT_EQ(encode(*build("ab", {}, options, {"<unk>"}), "xyaz"), "<unk>|a|<unk>");
}

TEST(Bpe, FallbackTokensOvertakeAPendingUnknown) {
  BpeOptions options;
  options.unk_token = "<unk>";
  options.byte_fallback = true;
  const auto model = build("a", {}, options, {"<unk>", "<0x62>", "<0xC4>", "<0x80>"});
  EXPECT_EQ(encode(*model, "xba"), "<0x62>|<unk>|a");
  // Byte 0 is spelled U+0100, whose UTF-8 is C4 80.
  EXPECT_EQ(encode(*model, std::string(1, '\0')), "<0xC4>|<0x80>");
}

TEST(Bpe, RefusesBrokenModels) {
  Vocabulary twice;
  EXPECT_TRUE(twice.add("a", 1));
  EXPECT_TRUE(twice.add("b", 1));
  EXPECT_FALSE(twice.finish());
  Vocabulary large;
  EXPECT_FALSE(large.add("a", kMaxTokenId + 1));

  BpeOptions options;
  options.unk_token = "<none>";
  EXPECT_FALSE(build("a", {}, options));
  EXPECT_TRUE(build(every_byte(), {}, options));  // never needed

  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.add("a", 0));
  EXPECT_TRUE(vocabulary.add("b", 1));
  EXPECT_TRUE(vocabulary.finish());
  auto model = BpeModel::create(std::move(vocabulary), {});
  const Result<> merge = model->add_merge("a", "b");
  ASSERT_FALSE(merge);
  EXPECT_NE(merge.error().message.find("its result"), std::string::npos);
}

TEST(Bpe, ARepeatedSpellingTakesItsLastId) {
  Vocabulary vocabulary;
  EXPECT_TRUE(vocabulary.add("a", 0));
  EXPECT_TRUE(vocabulary.add("a", 5));
  EXPECT_TRUE(vocabulary.finish());
  EXPECT_EQ(vocabulary.find_bytes("a"), 5u);
  EXPECT_FALSE(vocabulary.contains(0));
  EXPECT_EQ(vocabulary.size(), 1u);
  EXPECT_EQ(vocabulary.id_limit(), 6u);
}

TEST(Bpe, TokensOfAllLengthsAreFound) {
  Vocabulary vocabulary;
  std::string text;
  for (TokenId id = 0; id < 600; ++id) {
    text += static_cast<char>('a' + id * 7 % 26);
    EXPECT_TRUE(vocabulary.add(text, id));
  }
  EXPECT_TRUE(vocabulary.finish());
  for (TokenId id = 0; id < 600; ++id) {
    ASSERT_EQ(vocabulary.find_bytes(text.substr(0, id + 1)), id);
    ASSERT_EQ(vocabulary.find_spelling(text.substr(0, id + 1)), id);
    ASSERT_EQ(vocabulary.bytes(id), text.substr(0, id + 1));
    ASSERT_FALSE(vocabulary.find_bytes(text.substr(0, id + 1) + '!'));
  }
}

TEST(Bpe, ManyThreadsShareOneModel) {
  std::mt19937 random(3);
  const Merges merges = random_merges(random, "abcd", 80);
  const auto model = build(every_byte(), merges);
  std::vector<std::string> words;
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    std::string word;
    for (std::size_t n = 1 + random() % 10; n > 0; --n) {
      word += "abcd"[random() % 4];
    }
    expected.push_back(merge_by_definition(merges, word));
    words.push_back(word);
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < words.size(); ++i) {
        wrong += encode(*model, words[i]) == expected[i] ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fairlead::tokenizer
