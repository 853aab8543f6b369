#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::kv::testing {

/// The lines of a file below tests/fixtures.
inline std::vector<std::string> fixture_lines(std::string_view path) {
  std::ifstream file(std::string(FAIRLEAD_SOURCE_DIR) + "/tests/fixtures/" + std::string(path));
  EXPECT_TRUE(file) << path;
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) {
    out.push_back(line);
  }
  return out;
}

/// The bytes that hex digits stand for.
inline std::string from_hex(std::string_view digits) {
  std::string out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

/// Bytes as hex digits.
inline std::string to_hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4U]);
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(c) & 15U]);
  }
  return out;
}

}  // namespace fairlead::kv::testing
