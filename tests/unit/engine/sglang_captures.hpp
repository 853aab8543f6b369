#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace fairlead::engine::testing {

/// Traffic recorded from a real SGLang engine (tests/fixtures/captures/sglang): calls by name, each
/// with its request, the bytes of its answers and what they say, decoded independently.
inline json::Value read_sglang_captures(const std::string& name) {
  const std::string path =
      std::string(FAIRLEAD_SOURCE_DIR) + "/tests/fixtures/captures/sglang/" + name + ".json";
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  Result<json::Value> parsed = json::parse(text.str());
  EXPECT_TRUE(parsed) << path;
  return parsed ? std::move(*parsed) : json::Value();
}

/// The bytes of a text of hexadecimal digits.
inline std::string from_hex(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
    out += static_cast<char>(byte);
  }
  return out;
}

/// The serialized answers of a recorded call.
inline std::vector<std::string> recorded_messages(const json::Value& call) {
  std::vector<std::string> out;
  const json::Value* responses = call.find("responses");
  if (responses && responses->as_array()) {
    for (const json::Value& response : *responses->as_array()) {
      const json::Value* hex = response.find("hex");
      EXPECT_TRUE(hex && hex->as_string());
      out.push_back(hex && hex->as_string() ? from_hex(*hex->as_string()) : std::string());
    }
  }
  return out;
}

}  // namespace fairlead::engine::testing
