#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace fairlead::tokenizer {

/// A set of byte strings, each with a number, walked byte by byte. Immutable.
class PieceTrie {
 public:
  /// A place in the trie.
  using Node = std::uint32_t;

  /// A string and its number.
  struct Piece {
    std::string_view text;  ///< Only read while building.
    std::uint32_t value;    ///< Not `kNoValue`.
  };

  /// Where walks start.
  static constexpr Node kRoot = 0;
  /// What `step` gives when no string goes on like this.
  static constexpr Node kNowhere = ~Node{0};
  /// The value of a node where no string ends.
  static constexpr std::uint32_t kNoValue = ~std::uint32_t{0};

  /// The empty set.
  PieceTrie() : PieceTrie(std::span<const Piece>()) {}
  /// Of equal strings the highest value counts. All strings together are below 2^31 bytes.
  explicit PieceTrie(std::span<const Piece> pieces);

  /// The node behind `byte`.
  Node step(Node node, unsigned char byte) const {
    if (node == kRoot) {
      return root_[byte];
    }
    const std::uint32_t first = first_child_[node];
    const std::size_t count = first_child_[node + 1] - first;
    const auto* labels = labels_.data() + first;
    const void* hit = count != 0 ? std::memchr(labels, byte, count) : nullptr;
    return hit == nullptr
               ? kNowhere
               : first + static_cast<Node>(static_cast<const unsigned char*>(hit) - labels);
  }
  /// The number of the string that ends here, or `kNoValue`.
  std::uint32_t value(Node node) const { return values_[node]; }
  /// The node behind `text`.
  Node walk(Node node, std::string_view text) const;

 private:
  // Nodes lie level by level, so that the children of one are neighbours and end where those of the
  // next one start.
  std::vector<std::uint32_t> first_child_;
  std::vector<unsigned char> labels_;
  std::vector<std::uint32_t> values_;
  std::vector<Node> root_;
};

}  // namespace fairlead::tokenizer
