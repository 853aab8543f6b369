#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::engine::testing {

/// The servers whose answers were recorded in tests/fixtures/captures/vllm/http.
inline constexpr std::string_view kRecordedServers[] = {"rust-0.32.0", "rust-0.33.0",
                                                        "python-0.32.0"};

/// A recording: the lines of each section `== NAME`, without empty ones.
inline std::map<std::string, std::vector<std::string>> read_recording(const std::string& name) {
  std::ifstream file(std::string(FAIRLEAD_SOURCE_DIR) + "/tests/fixtures/captures/vllm/http/" +
                     name + ".txt");
  EXPECT_TRUE(file) << name;
  std::map<std::string, std::vector<std::string>> out;
  std::vector<std::string>* section = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("== ")) {
      section = &out[line.substr(3)];
    } else if (section && !line.empty()) {
      section->push_back(line);
    }
  }
  return out;
}

}  // namespace fairlead::engine::testing
