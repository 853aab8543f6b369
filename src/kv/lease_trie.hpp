#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/intrusive_list.hpp"
#include "kv/hashes.hpp"
#include "kv/index.hpp"
#include "kv/target_set.hpp"

namespace fairlead::kv {

/// Which prompts went to which target, each until its time is up. One thread at a time.
///
/// A trie of sequence hashes with compressed edges. A sequence hash stands for a block and
/// everything before it, so one table from an edge's first hash finds every child, and how far a
/// prompt follows an edge is found by bisection: the cost of a prompt is that of copying the hashes
/// that are new, and of the branches on its path, not of its length.
///
/// Every insertion makes one lease, at the node where the prompt ends. A node lists the targets of
/// the prompts through it, each with the latest lease of that target through the node. A lease owns
/// the blocks of the nodes that name it.
///
/// Invariants:
/// 1. A lease owns the node it ends at and the nodes above up to some one, without a gap. One that
///    would own none is gone: later ones of its target took all its blocks over.
/// 2. Targets of a node are targets of its parent, there with the same or a later lease. So leases
///    that go oldest first never leave a block without the blocks before it.
/// 3. Leases are in the order of their insertion. Expiries must not decrease in that order.
/// 4. A node that no lease ends at has two children or more: it and an only child would have the
///    same targets with the same leases. So there are fewer than two nodes per lease.
/// 5. A child's parent pointer is the only proof of its place: where two hashes collide, the node
///    found is not the child of the node before it, and the prompt counts up to there only.
class LeaseTrie {
 public:
  /// When leases end.
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Lease;
  struct ByAge;
  struct ByTarget;
  /// Leases of one target, oldest first.
  using Leases = IntrusiveList<Lease, ByTarget>;

  LeaseTrie();
  LeaseTrie(const LeaseTrie&) = delete;
  LeaseTrie& operator=(const LeaseTrie&) = delete;
  ~LeaseTrie();

  /// Gives a target a lease of all blocks of a prompt.
  void insert(TargetId target, std::span<const SequenceHash> prompt, TimePoint expiry);
  /// Appends the leading blocks of a prompt that each target has a lease of beyond `now`.
  void find(std::span<const SequenceHash> prompt, TimePoint now, std::vector<Overlap>& out) const;

  /// When the oldest lease ends.
  std::optional<TimePoint> oldest_expiry();
  /// Takes up to `limit` blocks from the oldest lease, the deepest first; how many it were. There
  /// must be a lease.
  std::size_t shrink_oldest(std::size_t limit);
  /// Moves all leases of a target to a list. They stay leases, which may end or shrink meanwhile.
  void take(TargetId target, Leases& out);
  /// Ends the first lease of a list that is not empty; how many blocks it owned.
  std::size_t end_first(Leases& of);

  /// Blocks held, once for every target.
  std::size_t blocks() const { return blocks_; }
  /// Blocks held.
  std::size_t distinct_blocks() const { return distinct_blocks_; }
  /// Leases.
  std::size_t leases() const { return leases_; }
  /// Nodes.
  std::size_t nodes() const { return table_.size(); }
  /// Memory in use, without the allocator's own.
  std::size_t bytes() const;

 private:
  struct Node;
  struct Entry;

  // First hash of an edge → node, which it owns. In shards, so that growing takes no long time at
  // once. The multiplier is drawn by lot: whoever chooses prompts cannot fill one bucket.
  class Table {
   public:
    Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;
    ~Table();
    Node* find(SequenceHash head) const;
    void add(std::unique_ptr<Node> node);  // no node of its first hash may be there
    std::unique_ptr<Node> remove(const Node& node);
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return buckets_ * sizeof(std::unique_ptr<Node>); }

   private:
    static constexpr unsigned kShardBits = 6;
    struct Shard {
      std::vector<std::unique_ptr<Node>> buckets;
      std::size_t nodes = 0;
    };
    std::size_t bucket(SequenceHash head, std::size_t buckets) const;
    void resize(Shard& shard, std::size_t buckets);

    std::uint64_t multiplier_;
    std::size_t size_ = 0;
    std::size_t buckets_ = 0;
    std::array<Shard, std::size_t{1} << kShardBits> shards_;
  };

  static void append_live(std::vector<Overlap>& out, std::span<const Entry> entries, TimePoint now,
                          std::uint32_t depth);
  static void deepen(std::span<Overlap> overlaps, std::span<const Entry> entries, TimePoint now,
                     std::uint32_t depth);
  Node* enter(std::span<const SequenceHash> prompt);
  Node* append(Node* parent, std::span<const SequenceHash> edge);
  Node* split(Node& node, std::size_t at);
  void absorb_parents(Node& node);
  void remove_node(Node& node);
  Lease* make_lease(TargetId target, Node& leaf, TimePoint expiry);
  void end(Lease& lease);
  std::size_t shrink(Lease& lease, std::size_t limit);
  void forget_entry(Node& node, TargetId target);

  Table table_;
  IntrusiveList<Lease, ByAge> by_age_;
  std::deque<Leases> by_target_;
  std::size_t leases_ = 0;
  std::size_t blocks_ = 0;
  std::size_t distinct_blocks_ = 0;
  std::size_t node_bytes_ = 0;
};

/// What one insertion gave a target.
struct LeaseTrie::Lease : ListNode<ByAge>, ListNode<ByTarget> {
  Node* leaf = nullptr;  ///< Where the blocks end that it still owns.
  TimePoint expiry;      ///< From when on it does not count.
  TargetId target = 0;   ///< Whose.
};

}  // namespace fairlead::kv
