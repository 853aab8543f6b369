#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/testing.hpp"

namespace fairlead::tokenizer::testing {

/// Bytes as base64.
inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
  }
  return out;
}

/// A rank file of all bytes with their values as ids, and of further tokens.
inline std::string rank_file(const std::vector<std::pair<std::string, TokenId>>& tokens) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  }
  for (const auto& [bytes, id] : tokens) {
    text += base64(bytes) + " " + std::to_string(id) + "\n";
  }
  return text;
}

/// The pattern of all of Mistral's files, as JSON has it.
inline constexpr std::string_view kTekkenPattern =
    R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)";

/// A small `tekken.json`: all bytes, then tokens.
struct SmallTekken {
  std::vector<std::string> tokens = {"he", "llo", "ll", "hello", " w"};  ///< Behind the bytes.
  int special = 24;                 ///< How many special tokens there are.
  int size = 24 + 256 + 4;          ///< How many tokens count.
  std::string specials;             ///< The member `special_tokens` with a comma behind.
  std::string version = R"("v3")";  ///< JSON.
  std::string pattern = std::string(kTekkenPattern);  ///< As JSON has it.

  /// The file's text.
  std::string json() const {
    std::string vocab;
    const auto add = [&](std::size_t rank, std::string_view bytes) {
      vocab += (rank == 0 ? "" : ",") + std::string(R"({"rank":)") + std::to_string(rank) +
               R"(,"token_bytes":")" + base64(bytes) + R"(","token_str":null})";
    };
    for (int byte = 0; byte < 256; ++byte) {
      add(static_cast<std::size_t>(byte), std::string(1, static_cast<char>(byte)));
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      add(256 + i, tokens[i]);
    }
    return R"({"config":{"pattern":")" + pattern + R"(","default_vocab_size":)" +
           std::to_string(size) + R"(,"default_num_special_tokens":)" + std::to_string(special) +
           R"(,"version":)" + version + "}," + specials + R"("vocab":[)" + vocab + "]}";
  }
};

/// A folder for the files of one test.
class FolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("fairlead_" + std::string(test->test_suite_name()) + "_" + test->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& folder() const { return folder_; }
  void write(const std::string& name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  /// The tokenizer of a file of the folder, or without a name of the folder itself.
  std::shared_ptr<const Tokenizer> load(const std::string& name = "") {
    auto tokenizer = Tokenizer::load(name.empty() ? folder_ : folder_ / name);
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    return tokenizer ? *tokenizer : nullptr;
  }
  /// Why a file of the folder, or the folder itself, does not load.
  std::string error(const std::string& name = "") {
    const auto tokenizer = Tokenizer::load(name.empty() ? folder_ : folder_ / name);
    return tokenizer ? "" : tokenizer.error().message;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace fairlead::tokenizer::testing
