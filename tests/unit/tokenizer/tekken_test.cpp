#include "tokenizer/tekken.hpp"

#include <gtest/gtest.h>

#include "tokenizer/rank_testing.hpp"

// What is expected of small files was made by PyPI mistral-common 1.13.1.

namespace fairlead::tokenizer {
namespace {

using testing::encode;
using testing::kTekkenPattern;
using testing::SmallTekken;
using Ids = std::vector<TokenId>;

class Tekken : public testing::FolderTest {};

TEST_F(Tekken, IdsStandBehindTheSpecialTokensAndSurplusEntriesDoNotCount) {
  write("tekken_x.json", SmallTekken().json());
  const auto tokenizer = load("tekken_x.json");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "hello", true), (Ids{1, 283}));
  EXPECT_EQ(encode(*tokenizer, "hello w12", true), (Ids{1, 283, 56, 143, 73, 74}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 128, 3, 129}, true), "hi");
  EXPECT_EQ(tokenizer->decode(Ids{1, 128, 3, 129}, false), "<s>h[INST]i");
  EXPECT_EQ(tokenizer->vocab_size(), 284U);
  EXPECT_EQ(tokenizer->decode(Ids{0, 2, 19, 20, 23}, false),
            "<unk></s>[TOOL_CONTENT]<SPECIAL_20><SPECIAL_23>");
}

TEST_F(Tekken, ByItselfItIsPlainTextAndInAFolderTemplatesSpellTokensOut) {
  write("tekken.json", SmallTekken().json());
  const auto file = load("tekken.json");
  const auto folder = load();
  ASSERT_TRUE(file && folder);
  EXPECT_EQ(encode(*file, "<s>[INST]", true), (Ids{1, 84, 139, 86, 115, 97, 102, 107, 108, 117}));
  EXPECT_EQ(encode(*folder, "<s>[INST]hello[/INST]<SPECIAL_23>"), (Ids{1, 3, 283, 4, 23}));
  ASSERT_NE(folder->special_tokens().find("eos_token"), nullptr);
  EXPECT_EQ(*folder->special_tokens().find("eos_token"), "</s>");
  write("tokenizer_config.json",
        R"({"eos_token":"<e>","added_tokens_decoder":{"23":{"content":"<e>","special":true}}})");
  const auto named = load();
  ASSERT_TRUE(named);
  EXPECT_EQ(encode(*named, "hello<e>"), (Ids{283, 23}));
  EXPECT_EQ(*named->special_tokens().find("eos_token"), "<e>");
  EXPECT_EQ(*named->special_tokens().find("bos_token"), "<s>");
}

TEST_F(Tekken, NewerFilesListTheirSpecialTokens) {
  SmallTekken newer;
  newer.tokens = {"he"};
  newer.special = 4;
  newer.size = 4 + 257;
  newer.version = R"("v13")";
  newer.specials =
      R"("special_tokens":[{"rank":0,"token_str":"<unk>","is_control":true},{"rank":1,"token_str":"<s>","is_control":true},)"
      R"({"rank":2,"token_str":"</s>","is_control":true},{"rank":3,"token_str":"[THINK]","is_control":true}],)";
  write("tekken.json", newer.json());
  const auto tokenizer = load();
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(encode(*tokenizer, "hehe", true), (Ids{1, 260, 260}));
  EXPECT_EQ(encode(*tokenizer, "[THINK]he"), (Ids{3, 260}));
}

TEST_F(Tekken, BrokenFilesSayWhatIsWrong) {
  const auto with = [](auto&& change) {
    SmallTekken file;
    change(file);
    return file.json();
  };
  const std::pair<std::string, std::string> cases[] = {
      {"", "tekken.json: "},
      {"{}", "config.default_vocab_size"},
      {"[]", "tekken.json: "},
      {SmallTekken().json() + "x", "tekken.json: JSON"},
      {with([](SmallTekken& f) { f.size = 24 + 256 + 6; }), "vocab has 261 entries, less than 262"},
      {with([](SmallTekken& f) { f.size = 24 + 200; }), "no token for the byte"},
      {with([](SmallTekken& f) { f.size = 10; }), "default_num_special_tokens is too large"},
      {with([](SmallTekken& f) { f.special = -1; }), "config.default_num_special_tokens"},
      {with([](SmallTekken& f) { f.special = 70000, f.size = 70000; }), "is too large"},
      {with([](SmallTekken& f) { f.special = 5, f.size = 261; }), "20 special tokens, but"},
      {with([](SmallTekken& f) { f.tokens = {"he", "he"}, f.size = 24 + 258; }), "there twice"},
      {with([](SmallTekken& f) { f.tokens = {""}, f.size = 24 + 257; }), "vocab[256].token_bytes"},
      {with([](SmallTekken& f) { f.version = R"("v11")"; }), "no special_tokens"},
      {with([](SmallTekken& f) { f.version = "3"; }), "no special_tokens"},
      {with([](SmallTekken& f) { f.pattern = "\\\\w+"; }), R"(the pattern '\w+' is not known)"},
      {with([](SmallTekken& f) { f.specials = R"("special_tokens":{},)"; }), "must be a list"},
      {with([](SmallTekken& f) {
         f.specials = R"("special_tokens":[{"rank":1,"token_str":"<unk>"}],)";
       }),
       "special_tokens[0] is no token with rank 0"},
      {with([](SmallTekken& f) {
         f.specials =
             R"("special_tokens":[{"rank":0,"token_str":"a"},{"rank":1,"token_str":"a"}],)";
       }),
       "'a' is there twice"},
      {R"({"config":{"pattern":")" + std::string(kTekkenPattern) +
           R"(","default_vocab_size":256,"default_num_special_tokens":0},"special_tokens":[],"vocab":[{"rank":1,"token_bytes":"AA=="}]})",
       "vocab[0] has not the rank 0"},
  };
  for (const auto& [text, reason] : cases) {
    write("tekken.json", text);
    EXPECT_NE(error().find(reason), std::string::npos) << error() << " lacks " << reason;
  }
}

}  // namespace
}  // namespace fairlead::tokenizer
