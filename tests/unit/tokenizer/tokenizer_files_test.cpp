#include "tokenizer/tokenizer_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {
namespace {

namespace fs = std::filesystem;

class TokenizerFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  std::string found() const {
    const auto file = find_tokenizer_file(folder_);
    return file ? file->filename().string() : file.error().message;
  }

  const fs::path folder_ =
      fs::path(::testing::TempDir()) /
      ("fairlead_files_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
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
  const auto tokenizer = Tokenizer::load(folder_ / "my.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->token_to_id("b"), 1U);
}

}  // namespace
}  // namespace fairlead::tokenizer
