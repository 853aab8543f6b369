#include "tokenizer/rank_file.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tokenizer/incremental_decoder.hpp"
#include "tokenizer/rank_testing.hpp"

// What is expected of small files was made by PyPI tiktoken 0.14.0.

namespace fairlead::tokenizer {
namespace {

using testing::encode;
using testing::rank_file;
using Ids = std::vector<TokenId>;

class RankFile : public testing::FolderTest {
 protected:
  std::shared_ptr<const Tokenizer> make(
      const std::string& name, const std::vector<std::pair<std::string, TokenId>>& tokens) {
    write(name, rank_file(tokens));
    return load(name);
  }
};

TEST_F(RankFile, TheLeftmostOfEqualRanksCountsHoweverItArises) {
  const auto tokenizer = make("r50k_base.tiktoken", {{"aa", 256}, {"aaa", 257}, {"aaaaa", 258}});
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "aaaa"), (Ids{256, 256}));
  EXPECT_EQ(encode(*tokenizer, "aaaaa"), (Ids{258}));
  EXPECT_EQ(encode(*tokenizer, "aaaaaa"), (Ids{256, 256, 256}));
  EXPECT_EQ(encode(*tokenizer, "aaaaaaa"), (Ids{256, 258}));
  EXPECT_EQ(encode(*tokenizer, std::string(12, 'a')), Ids(6, 256));
}

TEST_F(RankFile, ATokenMayAriseOfOnesWithHigherRanks) {
  const auto tokenizer =
      make("r50k_base.tiktoken", {{"abc", 256}, {"ab", 258}, {"bc", 259}, {"bcd", 257}});
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "abc"), (Ids{256}));
  EXPECT_EQ(encode(*tokenizer, "abcd"), (Ids{256, 100}));
  EXPECT_EQ(encode(*tokenizer, "bcd"), (Ids{257}));
  EXPECT_EQ(encode(*tokenizer, "abcabcd"), (Ids{256, 256, 100}));
  EXPECT_EQ(encode(*tokenizer, "xabcdbc"), (Ids{120, 256, 100, 259}));
}

TEST_F(RankFile, AWordThatIsATokenIsThatTokenAlone) {
  const auto tokenizer = make("r50k_base.tiktoken", {{"xyz", 256}, {" xyz", 257}});
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "xyz"), (Ids{256}));
  EXPECT_EQ(encode(*tokenizer, "xyzz"), (Ids{120, 121, 122, 122}));
  EXPECT_EQ(encode(*tokenizer, " xyz xyz"), (Ids{257, 257}));
  EXPECT_EQ(encode(*tokenizer, "wxyz"), (Ids{119, 120, 121, 122}));
}

TEST_F(RankFile, TheNameTellsHowTextIsCut) {
  const std::vector<std::pair<std::string, TokenId>> tokens = {
      {"  ", 256}, {" \n", 257}, {"\n ", 258}, {" \n ", 259}, {"12", 260}, {"123", 261}};
  const auto cl100k = make("cl100k_base.tiktoken", tokens);
  ASSERT_TRUE(cl100k);
  EXPECT_EQ(encode(*cl100k, "x \n "), (Ids{120, 259}));
  EXPECT_EQ(encode(*cl100k, "x \n y"), (Ids{120, 257, 32, 121}));
  EXPECT_EQ(encode(*cl100k, "1234567"), (Ids{261, 52, 53, 54, 55}));
  EXPECT_EQ(encode(*cl100k, " \n  "), (Ids{257, 256}));
  EXPECT_EQ(encode(*cl100k, "\n\n x"), (Ids{10, 10, 32, 120}));
  const auto qwen = make("qwen.tiktoken", tokens);
  ASSERT_TRUE(qwen);
  EXPECT_EQ(encode(*qwen, "123"), (Ids{49, 50, 51}));
  EXPECT_EQ(qwen->token_to_id("<|extra_204|>"), 151850U);
  const auto harmony = make("o200k_harmony.tiktoken", tokens);
  ASSERT_TRUE(harmony);
  EXPECT_EQ(encode(*harmony, "<|channel|><|reserved_201087|><|endofprompt|>"),
            (Ids{200005, 201087, 200018}));
}

TEST_F(RankFile, SpecialTokensStandForTheirOwnText) {
  write("config.json", R"({"model_type":"kimi_k2"})");
  write("tokenizer_config.json",
        R"({"added_tokens_decoder":{"300":{"content":"<|x|>","special":true},)"
        R"("310":{"content":"é<|t|>","special":false}}})");
  const auto tokenizer = make("tiktoken.model", {{"<|", 256}});
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "a<|x|>b"), (Ids{97, 300, 98}));
  EXPECT_EQ(encode(*tokenizer, "<|<|x|>"), (Ids{256, 300}));
  const Ids ids = {300, 97, 310, 256};
  EXPECT_EQ(tokenizer->decode(ids, false), "<|x|>aé<|t|><|");
  EXPECT_EQ(tokenizer->decode(ids, true), "aé<|t|><|");
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 300, 0xBD, 0xA0}, false), "\uFFFD<|x|>\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{0xE4, 0xBD, 0xA0, 300}, false), "你<|x|>");
  EXPECT_EQ(tokenizer->decode(Ids{5000, 97}, false), "a") << "unknown ids are skipped";
  IncrementalDecoder decoder(*tokenizer, false);
  std::string text;
  decoder.push(0xE4, text);
  decoder.push(0xBD, text);
  EXPECT_EQ(text, "");
  decoder.push(0xA0, text);
  EXPECT_EQ(text, "你");
}

TEST_F(RankFile, KimiIsToldByTheFilesBesideItAndReservesIds) {
  const std::string file = rank_file({{"ab", 256},
                                      {"中a", 257},
                                      {"中", 258},
                                      {"文", 259},
                                      {"中文", 260},
                                      {"\xe4\xb8", 261},
                                      {"\xe6\x96", 262}});
  write("tiktoken.model", file);
  EXPECT_NE(error().find("does not say how to cut text"), std::string::npos) << error();
  const std::pair<std::string, std::string> hints[] = {
      {"config.json", R"({"model_type":"kimi_k25"})"},
      {"tokenizer_config.json", R"({"tokenizer_class":"TikTokenTokenizer"})"},
      {"tokenizer_config.json",
       R"({"auto_map":{"AutoTokenizer":["tokenization_kimi.TikTokenTokenizer",null]}})"},
  };
  for (const auto& [name, text] : hints) {
    write(name, text);
    for (const char* const loaded : {"", "tiktoken.model"}) {
      const auto tokenizer = load(loaded);
      ASSERT_TRUE(tokenizer) << text;
      EXPECT_EQ(encode(*tokenizer, "中文a"), (Ids{260, 97}));
      EXPECT_EQ(encode(*tokenizer, "中ab"), (Ids{258, 256}));
      EXPECT_EQ(encode(*tokenizer, "ab中"), (Ids{256, 258}));
      EXPECT_EQ(encode(*tokenizer, "<|reserved_token_263|>"), (Ids{263}));
      EXPECT_EQ(tokenizer->token_to_id("<|reserved_token_518|>"), 518U);
      EXPECT_EQ(tokenizer->vocab_size(), 519U);
    }
    std::filesystem::remove(folder() / name);
  }
}

TEST_F(RankFile, TheConfigurationNamesTheKnownTokensAnew) {
  write("qwen.tiktoken", rank_file({}));
  write("tokenizer_config.json",
        R"({"added_tokens_decoder":{"151645":{"content":"<|end|>","special":true},)"
        R"("151900":{"content":"<|im_start|>","special":true}}})");
  const auto tokenizer = load();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "<|endoftext|><|im_start|><|end|>"), (Ids{151643, 151900, 151645}));
  EXPECT_EQ(tokenizer->token_to_id("<|im_end|>"), std::nullopt);
  EXPECT_FALSE(tokenizer->is_known(151644));
  write("tokenizer_config.json", R"({"added_tokens_decoder":{"97":{"content":"<|b|>"}}})");
  EXPECT_NE(error().find("'<|b|>': 97 is the id of another token"), std::string::npos) << error();
}

TEST_F(RankFile, BrokenFilesNameTheLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"IQ== 0\nIg==\n", "line 2: not base64, a space and a rank"},
      {"IQ== 0\nIg==  1\n", "line 2: the rank"},
      {"IQ== 0\nIg== 1x\n", "line 2: the rank"},
      {"IQ== 0\nIg== -1\n", "line 2: the rank"},
      {"IQ== 0\n\nIg== 4194304\n", "line 3: the rank"},
      {"IQ== 0\nI!== 1\n", "line 2: not base64"},
      {"IQ== 0\n 1\n", "line 2: not base64"},
      {"IQ== 0\n" + testing::base64(std::string(1025, 'a')) + " 1\n", "more than 1024 bytes"},
      {"IQ== 0\r\nIg== 1\r\n", "no token for the byte 0x00"},
      {rank_file({{"ab", 97}}), "two tokens have the id 97"},
  };
  for (const auto& [text, reason] : cases) {
    write("r50k_base.tiktoken", text);
    EXPECT_NE(error("r50k_base.tiktoken").find(reason), std::string::npos)
        << error("r50k_base.tiktoken") << " lacks " << reason;
  }
  write("other.tiktoken", rank_file({}));
  EXPECT_NE(error("other.tiktoken").find("is not one of gpt2, r50k_base, "), std::string::npos);
  write("config.json", "{");
  EXPECT_NE(error("other.tiktoken").find("config.json"), std::string::npos);
}

// The rule itself, step by step.
Ids joined_by_rank(std::string_view word,
                   const std::map<std::string, TokenId, std::less<>>& ranks) {
  if (const auto whole = ranks.find(word); whole != ranks.end()) {
    return {whole->second};
  }
  std::vector<std::string> parts;
  for (const char c : word) {
    parts.emplace_back(1, c);
  }
  for (;;) {
    auto best = ranks.end();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && (best == ranks.end() || found->second < best->second)) {
        best = found;
        at = i;
      }
    }
    if (best == ranks.end()) {
      break;
    }
    parts[at] = best->first;
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) {
    ids.push_back(ranks.find(part)->second);
  }
  return ids;
}

TEST_F(RankFile, RandomModelsJoinAsTheRuleSays) {
  std::mt19937 random(7);
  const auto letters = [&](std::size_t size, unsigned kinds) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i) {
      text += static_cast<char>('a' + random() % kinds);
    }
    return text;
  };
  for (int round = 0; round < 60; ++round) {
    const unsigned kinds = 1 + random() % 3;
    std::map<std::string, TokenId, std::less<>> ranks;
    for (int byte = 0; byte < 256; ++byte) {
      ranks[std::string(1, static_cast<char>(byte))] = static_cast<TokenId>(byte);
    }
    std::vector<std::pair<std::string, TokenId>> tokens;
    for (TokenId id = 256; id < 286; ++id) {
      // Half of the models in random order, half such that short tokens come first.
      const std::size_t size = 2 + (round % 2 == 0 ? random() % 6 : (id - 256) / 5);
      const std::string token = letters(size, kinds);
      if (!ranks.contains(token)) {
        ranks[token] = id;
        tokens.emplace_back(token, id);
      }
    }
    const auto tokenizer = make("r50k_base.tiktoken", tokens);
    ASSERT_TRUE(tokenizer);
    for (int i = 0; i < 60; ++i) {
      const std::string word = letters(1 + random() % 200, kinds);
      ASSERT_EQ(encode(*tokenizer, word), joined_by_rank(word, ranks))
          << word << " round " << round;
    }
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
