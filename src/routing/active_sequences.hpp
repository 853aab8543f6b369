#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/hashes.hpp"

namespace fairlead::routing {

/// Place of a target (one rank of one worker) in the load table of its worker set.
using TargetIndex = std::uint32_t;

/// The prompts of all running requests of a worker set, and at which targets they run.
///
/// A trie of sequence hashes with compressed edges. A sequence hash stands for a block and
/// everything before it, so one map from an edge's first hash finds every child, and how far a
/// prompt follows an edge is found by bisection: a prompt of 3,750 blocks costs as many steps as
/// there are branches on its path, not as many as it has blocks.
///
/// Invariants:
/// - every node is on the path of at least one running prompt; `targets` lists, by ascending index,
///   how many of the prompts through the node run at each target; none is 0;
/// - a prompt ends at a node's end, never inside an edge (`ends` counts them);
/// - a node that no prompt ends at has at least two children, except right below a conflict;
/// - nodes are owned by the map alone, so teardown is iterative.
///
/// Two hashes that collide never corrupt the trie: a node found at another depth than its own is
/// not followed, and the blocks behind such a conflict are the caller's to count
/// (`Added::untracked`).
class ActiveSequences {
 public:
  class Node;
  /// The nodes that a prompt follows, from the root, and the prompt blocks matched up to each.
  struct Step {
    Node* node;             ///< Followed at least in part.
    std::uint32_t matched;  ///< Leading prompt blocks matched with it.
  };
  /// Reused between calls; valid until the trie changes.
  using Path = std::vector<Step>;

  /// What adding a prompt did.
  struct Added {
    Node* leaf = nullptr;         ///< Names the prompt in `remove`; null when nothing is tracked.
    std::uint32_t fresh = 0;      ///< Blocks that are active at the target only now.
    std::uint32_t untracked = 0;  ///< Trailing blocks that could not be entered.
  };

  ActiveSequences();
  ~ActiveSequences();
  ActiveSequences(const ActiveSequences&) = delete;
  ActiveSequences& operator=(const ActiveSequences&) = delete;

  /// The path of a prompt.
  void match(std::span<const kv::SequenceHash> prompt, Path& path) const;
  /// Leading prompt blocks active at a target.
  static std::uint32_t depth(const Path& path, TargetIndex target);
  /// Number of (node, target) pairs on a path; counting stops above `limit`.
  static std::size_t spread(const Path& path, std::size_t limit);
  /// Calls `each(target, depth)` for every target on the path, the deepest last.
  template <class Each>
  static void visit(const Path& path, Each&& each);

  /// Enters a prompt that now runs at a target. `path` is its path, which becomes invalid.
  Added add(std::span<const kv::SequenceHash> prompt, Path& path, TargetIndex target);
  /// Takes back one `add`; returns how many blocks are no longer active at the target.
  std::uint32_t remove(Node* leaf, TargetIndex target);
  /// Blocks of the prompt that no other prompt at the target shares.
  static std::uint32_t unshared(const Node* leaf, TargetIndex target);
  /// Number of nodes.
  std::size_t nodes() const { return nodes_.size(); }

 private:
  struct ByItself {
    std::size_t operator()(kv::SequenceHash hash) const { return hash; }
  };
  Node* split(Node* node, std::size_t at);
  void detach(Node* node);
  void merge_into_child(Node* node);

  std::unordered_map<kv::SequenceHash, std::unique_ptr<Node>, ByItself> nodes_;  // by first hash
};

/// One edge of the trie and where it ends.
class ActiveSequences::Node {
 public:
  /// Prompts through the node at one target.
  struct Use {
    TargetIndex target;   ///< Where they run.
    std::uint32_t count;  ///< How many.
  };
  /// Targets of the prompts through the node.
  std::span<const Use> uses() const { return uses_; }

 private:
  friend class ActiveSequences;
  const Use* find(TargetIndex target) const;
  bool enter(TargetIndex target);
  bool leave(TargetIndex target);

  Node* parent_ = nullptr;
  Node* first_child_ = nullptr;
  Node* next_ = nullptr;  // siblings
  Node* previous_ = nullptr;
  std::uint32_t begin_ = 0;  // depth of the first block
  std::uint32_t ends_ = 0;
  std::vector<kv::SequenceHash> edge_;
  std::vector<Use> uses_;
};

template <class Each>
void ActiveSequences::visit(const Path& path, Each&& each) {
  for (const Step& step : path) {
    for (const Node::Use& use : step.node->uses()) {
      each(use.target, step.matched);
    }
  }
}

}  // namespace fairlead::routing
