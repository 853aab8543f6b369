#include "tokenizer/tokenizer_files.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tokenizer/rank_testing.hpp"

namespace fairlead::tokenizer {
namespace {

class TokenizerFiles : public testing::FolderTest {
 protected:
  std::string found() const {
    const auto file = find_tokenizer_file(folder());
    return file ? file->filename().string() : file.error().message;
  }
};

TEST_F(TokenizerFiles, OfAFolderTheFirstInOrderCounts) {
  EXPECT_NE(found().find("has no tokenizer: no tokenizer.json, tekken.json, "), std::string::npos);
  write("config.json", "{}");
  write("tokenizer.model.v3", "");
  EXPECT_EQ(found(), "tokenizer.model.v3");
  write("a.tiktoken", "");
  EXPECT_NE(found().find("2 tokenizer files"), std::string::npos);
  for (const char* const name :
       {"tiktoken.model", "tokenizer.model", "tekken.json", "tokenizer.json"}) {
    write(name, "");
    EXPECT_EQ(found(), name);
  }
}

TEST_F(TokenizerFiles, ContentsTellTheKindWhereTheNameDoesNot) {
  using enum TokenizerFileKind;
  using namespace std::string_view_literals;
  EXPECT_EQ(tokenizer_file_kind("tokenizer.json", "IQ== 0\n"), TokenizerJson);
  EXPECT_EQ(tokenizer_file_kind("tekken.json", "{}"), Tekken);
  EXPECT_EQ(tokenizer_file_kind("tekken_240718.json", R"( {"config":{},"vocab":[]})"), Tekken);
  EXPECT_EQ(tokenizer_file_kind("x.json", R"({"config":{},"model":{"vocab":{}}})"), TokenizerJson);
  EXPECT_EQ(tokenizer_file_kind("x.json", ""), TokenizerJson);
  EXPECT_EQ(tokenizer_file_kind("tiktoken.model", "IQ== 0\nIg== 1\n"), Ranks);
  EXPECT_EQ(tokenizer_file_kind("tokenizer.model", "IQ== 0"), Ranks);
  EXPECT_EQ(tokenizer_file_kind("tokenizer.model", "IQ== x"), SentencePiece);
  EXPECT_EQ(tokenizer_file_kind("tokenizer.model", "\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02"sv),
            SentencePiece);
}

TEST_F(TokenizerFiles, AFileOfAnotherNameLoads) {
  write("my.json", R"({"model":{"type":"WordLevel","vocab":{"a":0,"b":1},"unk_token":"a"}})");
  const auto tokenizer = load("my.json");
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->token_to_id("b"), 1U);
}

}  // namespace
}  // namespace fairlead::tokenizer
