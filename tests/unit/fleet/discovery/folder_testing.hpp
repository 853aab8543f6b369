#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fleet/card.hpp"

namespace fairlead::fleet {

/// A folder of cards for one test.
class CardFiles {
 public:
  CardFiles() {
    std::string pattern = std::filesystem::temp_directory_path() / "fairlead-cards-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    path = root_ / "cards";
    std::filesystem::create_directory(path);
  }
  ~CardFiles() { std::filesystem::remove_all(root_); }
  CardFiles(const CardFiles&) = delete;
  CardFiles& operator=(const CardFiles&) = delete;

  /// Writes a file as a whole, by renaming.
  void put(const std::string& name, const std::string& text) const {
    write(".tmp_0", text);
    std::filesystem::rename(path / ".tmp_0", path / name);
  }
  /// Writes a file in place.
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const { std::filesystem::remove(path / name); }

  std::filesystem::path path;  ///< The folder.

 private:
  std::filesystem::path root_;
};

/// The text of a card of one model.
inline std::string card_text(const std::string& model, const std::string& more = {}) {
  return R"({"url": "127.0.0.1:9", "display_name": ")" + model + "\"" +
         (more.empty() ? "" : ", " + more) + "}";
}

/// `KEY=MODEL` of every card.
inline std::vector<std::string> summary(const std::vector<Card>& cards) {
  std::vector<std::string> out;
  for (const Card& card : cards) {
    out.push_back(card.key() + "=" + card.display_name);
  }
  return out;
}

}  // namespace fairlead::fleet
