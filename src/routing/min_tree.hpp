#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace fairlead::routing {

/// The least of many values that change one at a time, and how many share it: a tournament whose
/// inner nodes hold the least of their two halves. Changing a value is O(log n), reading the least
/// is O(1), picking one of those that share it O(log n). Values of infinity take no part.
class MinTree {
 public:
  static constexpr double kNone = std::numeric_limits<double>::infinity();  ///< Takes no part.

  /// Makes room for `count` values; new ones take no part. Only grows.
  void resize(std::size_t count) {
    if (count <= leaves_) {
      return;
    }
    const std::size_t before = leaves_;
    std::vector<Node> old = std::move(nodes_);
    leaves_ = std::bit_ceil(count);
    nodes_.assign(2 * leaves_, Node{});
    for (std::size_t i = 0; i < before; ++i) {
      nodes_[leaves_ + i] = old[before + i];
    }
    for (std::size_t node = leaves_ - 1; node > 0; --node) {
      join(node);
    }
  }

  /// Sets a value.
  void set(std::size_t index, double value) {
    std::size_t node = leaves_ + index;
    if (nodes_[node].least == value) {
      return;
    }
    nodes_[node] = {.least = value, .sharing = value == kNone ? 0U : 1U};
    for (node /= 2; node > 0 && join(node); node /= 2) {
    }
  }

  /// The value.
  double at(std::size_t index) const { return nodes_[leaves_ + index].least; }
  /// The least of all; `kNone` when nothing takes part.
  double least() const { return leaves_ == 0 ? kNone : nodes_[1].least; }
  /// How many have it.
  std::uint32_t sharing() const { return leaves_ == 0 ? 0 : nodes_[1].sharing; }
  /// The `nth` (from 0) of those that have the least value, by ascending index.
  std::size_t pick(std::uint32_t nth) const {
    const double least = nodes_[1].least;
    std::size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      const std::uint32_t left = nodes_[node].least == least ? nodes_[node].sharing : 0;
      if (nth >= left) {
        nth -= left;
        ++node;
      }
    }
    return node - leaves_;
  }

 private:
  struct Node {
    double least = kNone;
    std::uint32_t sharing = 0;
  };

  // True when the node changed.
  bool join(std::size_t node) {
    const Node& left = nodes_[2 * node];
    const Node& right = nodes_[2 * node + 1];
    Node joined = left;
    if (right.least < left.least) {
      joined = right;
    } else if (right.least == left.least) {
      joined.sharing += right.sharing;
    }
    if (joined.least == nodes_[node].least && joined.sharing == nodes_[node].sharing) {
      return false;
    }
    nodes_[node] = joined;
    return true;
  }

  std::size_t leaves_ = 0;   // a power of two
  std::vector<Node> nodes_;  // the root at 1, the values from leaves_ on
};

}  // namespace fairlead::routing
