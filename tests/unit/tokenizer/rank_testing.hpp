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
