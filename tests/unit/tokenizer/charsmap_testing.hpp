#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairlead::tokenizer::testing {

/// Appends a number of 32 bits, little endian.
inline void append_unit(std::string& out, std::uint32_t unit) {
  for (int i = 0; i < 4; ++i, unit >>= 8) {
    out += static_cast<char>(unit & 0xFF);
  }
}

/// The bytes of a charsmap with these keys and what they become. Each node of its trie has a block
/// of its own for its children.
inline std::string charsmap(const std::vector<std::pair<std::string, std::string>>& rules) {
  std::map<std::string, std::uint32_t> nodes = {{"", 0}};  // block by prefix
  std::string texts(1, '\0');
  std::map<std::string, std::uint32_t> values;
  for (const auto& [key, text] : rules) {
    values[key] = static_cast<std::uint32_t>(texts.size());
    texts += text + std::string(1, '\0');
    for (std::size_t size = 1; size <= key.size(); ++size) {
      nodes.emplace(key.substr(0, size), static_cast<std::uint32_t>(nodes.size()));
    }
  }
  std::vector<std::uint32_t> units((nodes.size() + 1) * 256);
  for (const auto& [prefix, number] : nodes) {
    const std::uint32_t block = (number + 1) * 256;
    std::uint32_t place = 0;
    std::uint32_t unit = 0;
    if (!prefix.empty()) {
      const auto label = static_cast<unsigned char>(prefix.back());
      place = (nodes[prefix.substr(0, prefix.size() - 1)] + 1) * 256 ^ label;
      unit = label;
    }
    if (values.contains(prefix)) {
      unit |= 1U << 8;
      units[block] = values[prefix] | 1U << 31;
    }
    units[place] = unit | (place ^ block) << 10;
  }
  std::string out;
  append_unit(out, static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t unit : units) {
    append_unit(out, unit);
  }
  return out + texts;
}

}  // namespace fairlead::tokenizer::testing
