#include "tokenizer/bpe_paths.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer {
namespace {

// All bytes, which are tokens with their own number as id, and random merges of a few of them.
struct RandomModel {
  RandomModel(std::mt19937& random, std::size_t letters, std::size_t merge_count, bool shuffled) {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(1, static_cast<char>(byte));
      byte_ids[static_cast<std::size_t>(byte)] = static_cast<TokenId>(byte);
    }
    std::map<std::string, TokenId> ids;
    std::vector<TokenId> usable;
    for (std::size_t i = 0; i < letters; ++i) {
      usable.push_back(static_cast<unsigned char>(letter(i)));
    }
    while (pairs.size() < merge_count) {
      const TokenId left = usable[random() % usable.size()];
      const TokenId right = usable[random() % usable.size()];
      const std::string bytes = tokens[left] + tokens[right];
      if (bytes.size() > 12) {
        continue;
      }
      const auto [it, added] = ids.emplace(bytes, static_cast<TokenId>(tokens.size()));
      if (added) {
        tokens.push_back(bytes);
        usable.push_back(it->second);
      }
      pairs.push_back({left, right, it->second});
    }
    if (shuffled) {
      std::ranges::shuffle(pairs, random);
    }
    for (TokenId id = 0; id < tokens.size(); ++id) {
      EXPECT_TRUE(vocabulary.add(testing::spelled(tokens[id]), id));
    }
    EXPECT_TRUE(vocabulary.finish());
    for (const BpePaths::Pair& pair : pairs) {
      merges.add(pair.left, pair.right, pair.merged);
    }
    merges.finish();
    usable_paths = paths.build(vocabulary, byte_ids, pairs, merges);
  }

  // Parts of characters of several bytes are among the letters.
  static char letter(std::size_t i) { return "a\xE4\xB8\xC3\x80"[i]; }

  // Of all mergeable pairs the lowest rank, the leftmost of equals, until none is left.
  std::vector<TokenId> by_definition(std::string_view word) const {
    std::vector<TokenId> ids;
    for (const char c : word) {
      ids.push_back(static_cast<unsigned char>(c));
    }
    for (;;) {
      std::size_t best = ids.size();
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
        const std::uint32_t rank = merges.find(ids[i], ids[i + 1]).rank;
        if (rank != MergeTable::kNoRank &&
            (best == ids.size() || rank < merges.find(ids[best], ids[best + 1]).rank)) {
          best = i;
        }
      }
      if (best == ids.size()) {
        return ids;
      }
      ids[best] = merges.find(ids[best], ids[best + 1]).id;
      ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
  }

  Vocabulary vocabulary;
  std::array<TokenId, 256> byte_ids{};
  std::vector<BpePaths::Pair> pairs;
  MergeTable merges;
  BpePaths paths;
  bool usable_paths = false;
};

TEST(BpePaths, EqualTheDefinitionOnRandomModels) {
  std::mt19937 random(11);
  int found = 0;
  int left_alone = 0;
  for (int round = 0; round < 400; ++round) {
    const std::size_t letters = 1 + random() % 5;
    const RandomModel model(random, letters, 1 + random() % 80, round % 4 == 0);
    ASSERT_TRUE(model.usable_paths);
    const auto arises = [&](TokenId id) { return model.paths.arises(id); };
    for (int i = 0; i < 60; ++i) {
      std::string word;
      for (std::size_t n = 1 + random() % (i < 55 ? 30 : 300); n > 0; --n) {
        word += model.letter(random() % letters);
      }
      const std::vector<TokenId> expected = model.by_definition(word);
      std::vector<TokenId> ids = {7};
      if (model.paths.encode(word, model.merges, ids, {})) {
        ids.erase(ids.begin());
        ASSERT_EQ(ids, expected) << word;
        ++found;
      } else {
        ASSERT_EQ(ids, std::vector<TokenId>{7});
        ASSERT_FALSE(std::ranges::all_of(expected, arises)) << word;
        ++left_alone;
      }
    }
    for (TokenId id = 0; id < model.vocabulary.id_limit(); ++id) {
      const std::vector<TokenId> alone = model.by_definition(model.vocabulary.bytes(id));
      ASSERT_TRUE(!arises(id) || alone == std::vector<TokenId>{id});
    }
  }
  EXPECT_GT(found, 15000);
  EXPECT_GT(left_alone, 100);
}

}  // namespace
}  // namespace fairlead::tokenizer
