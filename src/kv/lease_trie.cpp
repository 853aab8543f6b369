#include "kv/lease_trie.hpp"

#include <algorithm>
#include <functional>
#include <random>
#include <ranges>
#include <utility>

#include "kv/slots.hpp"

namespace fairlead::kv {

struct LeaseTrie::Entry {
  TimePoint expiry;  // of the lease: answers look at nothing else
  Lease* lease;
  TargetId target;
};

struct LeaseTrie::Node {
  // Where the target is, or would be.
  std::vector<Entry>::iterator place(TargetId target) {
    return std::ranges::lower_bound(entries, target, {}, &Entry::target);
  }
  bool owned_by(const Lease& lease) {
    const auto found = place(lease.target);
    return found != entries.end() && found->lease == &lease;
  }
  // True when it and its only child say the same.
  bool redundant() const { return ends == 0 && children == 1; }
  std::size_t bytes() const {
    return sizeof(Node) + edge.capacity() * sizeof(SequenceHash) +
           entries.capacity() * sizeof(Entry);
  }

  std::unique_ptr<Node> chained;  // in its bucket
  SequenceHash head = 0;          // of its edge
  Node* parent = nullptr;
  std::vector<SequenceHash> edge;
  std::vector<Entry> entries;    // by ascending target
  SequenceHash child_heads = 0;  // XOR of its children's: the head of an only child
  std::uint32_t children = 0;
  std::uint32_t ends = 0;  // leases whose leaf it is
};

namespace {

// Equal leading hashes of an edge and the rest of a prompt, which begin equally. A hash stands for
// everything before it, so that whatever precedes an equal pair is equal.
std::size_t common(std::span<const SequenceHash> edge, std::span<const SequenceHash> rest) {
  const std::size_t limit = std::min(edge.size(), rest.size());
  if (edge[limit - 1] == rest[limit - 1]) {
    return limit;
  }
  const auto differs = [&](std::size_t i) { return edge[i] != rest[i]; };
  const auto positions = std::views::iota(std::size_t{1}, limit - 1);
  return *std::ranges::partition_point(positions, std::not_fn(differs));
}

}  // namespace

// The overlaps with a prompt's first node, by ascending target as its entries are.
void LeaseTrie::append_live(std::vector<Overlap>& out, std::span<const Entry> entries,
                            TimePoint now, std::uint32_t depth) {
  std::size_t end = out.size();
  out.resize(end + entries.size());
  for (const Entry& entry : entries) {
    out[end] = {.target = entry.target, .device = depth, .host = 0, .disk = 0};
    end += entry.expiry > now ? 1 : 0;
  }
  out.resize(end);
}

// The targets of a node are among those of the first one, live ones among live ones.
void LeaseTrie::deepen(std::span<Overlap> overlaps, std::span<const Entry> entries, TimePoint now,
                       std::uint32_t depth) {
  const bool few = entries.size() < overlaps.size() / 8;
  auto at = overlaps.begin();
  for (const Entry& entry : entries) {
    if (entry.expiry <= now) {
      continue;
    }
    if (few) {
      at = std::ranges::lower_bound(at, overlaps.end(), entry.target, {}, &Overlap::target);
    } else {
      while (at->target != entry.target) {
        ++at;
      }
    }
    at->device = depth;
  }
}

LeaseTrie::Table::Table() {
  std::random_device random;
  multiplier_ = (std::uint64_t{random()} << 32U | random()) | 1U;
}

// Bucket by bucket, node by node: chains of owners may be long.
LeaseTrie::Table::~Table() {
  for (Shard& shard : shards_) {
    for (std::unique_ptr<Node>& first : shard.buckets) {
      while (first) {
        first = std::move(first->chained);
      }
    }
  }
}

std::size_t LeaseTrie::Table::bucket(SequenceHash head, std::size_t buckets) const {
  return bucket_of((head * multiplier_) << kShardBits, buckets);
}

LeaseTrie::Node* LeaseTrie::Table::find(SequenceHash head) const {
  const Shard& shard = shards_[(head * multiplier_) >> (64U - kShardBits)];
  if (shard.buckets.empty()) {
    return nullptr;
  }
  Node* node = shard.buckets[bucket(head, shard.buckets.size())].get();
  while (node && node->head != head) {
    node = node->chained.get();
  }
  return node;
}

void LeaseTrie::Table::add(std::unique_ptr<Node> node) {
  Shard& shard = shards_[(node->head * multiplier_) >> (64U - kShardBits)];
  if (shard.nodes == shard.buckets.size()) {
    resize(shard, std::max<std::size_t>(2, shard.nodes * 2));
  }
  ++shard.nodes;
  ++size_;
  std::unique_ptr<Node>& first = shard.buckets[bucket(node->head, shard.buckets.size())];
  node->chained = std::move(first);
  first = std::move(node);
}

std::unique_ptr<LeaseTrie::Node> LeaseTrie::Table::remove(const Node& node) {
  Shard& shard = shards_[(node.head * multiplier_) >> (64U - kShardBits)];
  std::unique_ptr<Node>* link = &shard.buckets[bucket(node.head, shard.buckets.size())];
  while (link->get() != &node) {
    link = &(*link)->chained;
  }
  std::unique_ptr<Node> out = std::move(*link);
  *link = std::move(out->chained);
  --shard.nodes;
  --size_;
  if (shard.nodes <= shard.buckets.size() / 8) {
    resize(shard, shard.nodes * 2);
  }
  return out;
}

void LeaseTrie::Table::resize(Shard& shard, std::size_t buckets) {
  std::vector<std::unique_ptr<Node>> old(buckets);
  old.swap(shard.buckets);
  buckets_ = buckets_ - old.size() + buckets;
  for (std::unique_ptr<Node>& first : old) {
    while (first) {
      std::unique_ptr<Node> node = std::move(first);
      first = std::move(node->chained);
      std::unique_ptr<Node>& place = shard.buckets[bucket(node->head, buckets)];
      node->chained = std::move(place);
      place = std::move(node);
    }
  }
}

LeaseTrie::LeaseTrie() = default;

LeaseTrie::~LeaseTrie() {
  while (!by_age_.empty()) {
    const std::unique_ptr<Lease> lease(&by_age_.front());
  }
}

LeaseTrie::Lease* LeaseTrie::make_lease(TargetId target, Node& leaf, TimePoint expiry) {
  while (by_target_.size() <= target) {
    by_target_.emplace_back();
  }
  auto lease = std::make_unique<Lease>();
  lease->leaf = &leaf;
  lease->expiry = expiry;
  lease->target = target;
  ++leaf.ends;
  ++leases_;
  by_age_.push_back(*lease);
  by_target_[target].push_back(*lease);
  return lease.release();  // by_age_ has them all
}

// Of a lease that owns nothing more and is counted at no node's end.
void LeaseTrie::end(Lease& lease) {
  const std::unique_ptr<Lease> gone(&lease);
  if (--leases_ == 0) {
    std::deque<Leases>().swap(by_target_);
  }
}

// The node a prompt ends at; null when a collision leaves it none.
LeaseTrie::Node* LeaseTrie::enter(std::span<const SequenceHash> prompt) {
  Node* last = nullptr;
  while (!prompt.empty()) {
    Node* next = table_.find(prompt.front());
    if (!next) {
      return append(last, prompt);
    }
    if (next->parent != last) {
      return last;
    }
    const std::size_t equal = common(next->edge, prompt);
    if (equal < next->edge.size()) {
      next = split(*next, equal);
      if (!next) {
        return last;
      }
    }
    last = next;
    prompt = prompt.subspan(equal);
  }
  return last;
}

LeaseTrie::Node* LeaseTrie::append(Node* parent, std::span<const SequenceHash> edge) {
  auto node = std::make_unique<Node>();
  node->head = edge.front();
  node->parent = parent;
  node->edge.assign(edge.begin(), edge.end());
  if (parent) {
    ++parent->children;
    parent->child_heads ^= node->head;
  }
  distinct_blocks_ += edge.size();
  node_bytes_ += node->bytes();
  Node* const made = node.get();
  table_.add(std::move(node));
  return made;
}

// The upper part of the edge becomes a node of its own, which is returned. The lower one stays the
// object it was: the end of leases and the parent of its children. Null when the lower one could
// not be found again, for a collision.
LeaseTrie::Node* LeaseTrie::split(Node& node, std::size_t at) {
  const SequenceHash head = node.edge[at];
  if (table_.find(head)) {
    return nullptr;
  }
  std::unique_ptr<Node> lower = table_.remove(node);
  auto upper = std::make_unique<Node>();
  const auto cut = lower->edge.begin() + static_cast<std::ptrdiff_t>(at);
  upper->head = lower->head;
  upper->parent = lower->parent;
  upper->edge.assign(lower->edge.begin(), cut);
  upper->entries = lower->entries;
  upper->child_heads = head;
  upper->children = 1;
  node_bytes_ += upper->bytes() - lower->bytes();
  lower->head = head;
  lower->parent = upper.get();
  lower->edge = std::vector(cut, lower->edge.end());
  node_bytes_ += lower->bytes();
  Node* const made = upper.get();
  table_.add(std::move(upper));
  table_.add(std::move(lower));
  return made;
}

// Redundant nodes right above a node become a part of it, all at once. It is the one that stays,
// since leases may end there.
void LeaseTrie::absorb_parents(Node& node) {
  std::size_t size = node.edge.size();
  Node* top = &node;
  while (top->parent && top->parent->redundant()) {
    top = top->parent;
    size += top->edge.size();
  }
  if (top == &node) {
    return;
  }
  std::unique_ptr<Node> kept = table_.remove(node);
  node_bytes_ -= kept->bytes();
  std::vector<SequenceHash> edge(size);
  auto end = std::ranges::copy_backward(kept->edge, edge.end()).out;
  while (kept->parent && kept->parent->redundant()) {
    const std::unique_ptr<Node> gone = table_.remove(*kept->parent);
    node_bytes_ -= gone->bytes();
    end = std::ranges::copy_backward(gone->edge, end).out;
    kept->parent = gone->parent;
  }
  kept->edge = std::move(edge);
  kept->head = kept->edge.front();
  node_bytes_ += kept->bytes();
  table_.add(std::move(kept));
}

// Of a node without targets, so without children.
void LeaseTrie::remove_node(Node& node) {
  if (node.parent) {
    --node.parent->children;
    node.parent->child_heads ^= node.head;
  }
  distinct_blocks_ -= node.edge.size();
  node_bytes_ -= node.bytes();
  table_.remove(node);
}

void LeaseTrie::insert(TargetId target, std::span<const SequenceHash> prompt, TimePoint expiry) {
  Node* const leaf = enter(prompt);
  if (!leaf) {
    return;
  }
  Lease* const lease = make_lease(target, *leaf, expiry);
  Lease* over = nullptr;  // owns nothing more, but nodes right above may still name it
  for (Node* node = leaf; node; node = node->parent) {
    auto entry = node->place(target);
    if (entry == node->entries.end() || entry->target != target) {
      node_bytes_ -= node->bytes();
      entry = node->entries.insert(entry, {.expiry = expiry, .lease = nullptr, .target = target});
      node_bytes_ += node->bytes();
      blocks_ += node->edge.size();
    }
    entry->expiry = expiry;
    Lease* const before = std::exchange(entry->lease, lease);
    if (before && before != over && before->leaf == node) {
      --node->ends;
      if (Lease* const done = std::exchange(over, before)) {
        end(*done);
      }
    }
  }
  if (over) {
    end(*over);
  }
  for (Node* node = leaf; node; node = node->parent) {
    absorb_parents(*node);
  }
}

void LeaseTrie::find(std::span<const SequenceHash> prompt, TimePoint now,
                     std::vector<Overlap>& out) const {
  const Node* last = nullptr;
  const std::size_t begin = out.size();
  std::size_t depth = 0;
  while (depth < prompt.size()) {
    const auto rest = prompt.subspan(depth);
    const Node* const node = table_.find(rest.front());
    if (!node || node->parent != last) {
      return;
    }
    const std::size_t equal = common(node->edge, rest);
    depth += equal;
    const std::span<Overlap> above = std::span(out).subspan(begin);
    if (last) {
      deepen(above, node->entries, now, static_cast<std::uint32_t>(depth));
    } else {
      append_live(out, node->entries, now, static_cast<std::uint32_t>(depth));
    }
    if (equal < node->edge.size()) {
      return;
    }
    last = node;
  }
}

std::optional<LeaseTrie::TimePoint> LeaseTrie::oldest_expiry() {
  return by_age_.empty() ? std::nullopt : std::optional(by_age_.front().expiry);
}

std::size_t LeaseTrie::shrink_oldest(std::size_t limit) { return shrink(by_age_.front(), limit); }

void LeaseTrie::take(TargetId target, Leases& out) {
  if (target < by_target_.size()) {
    out.splice(by_target_[target]);
  }
}

std::size_t LeaseTrie::end_first(Leases& of) { return shrink(of.front(), SIZE_MAX); }

void LeaseTrie::forget_entry(Node& node, TargetId target) {
  node_bytes_ -= node.bytes();
  auto& entries = node.entries;
  entries.erase(node.place(target));
  if (entries.size() <= entries.capacity() / 4) {
    std::vector<Entry> fewer;
    fewer.reserve(entries.size() * 2);
    fewer.assign(entries.begin(), entries.end());
    entries = std::move(fewer);
  }
  node_bytes_ += node.bytes();
  blocks_ -= node.edge.size();
}

// Takes up to `limit` blocks from the end of a lease; how many it were.
std::size_t LeaseTrie::shrink(Lease& lease, std::size_t limit) {
  Node* node = lease.leaf;
  Node* lowest = nullptr;  // that is left of the nodes it owned, or else above them
  --node->ends;
  std::size_t taken = 0;
  while (node && taken < limit && node->owned_by(lease)) {
    const std::size_t size = node->edge.size();
    if (size > limit - taken) {
      split(*node, size - (limit - taken));  // else all of it goes
    }
    taken += node->edge.size();
    forget_entry(*node, lease.target);
    Node* const parent = node->parent;
    if (node->entries.empty()) {
      remove_node(*node);
    } else if (!lowest) {
      lowest = node;
    }
    node = parent;
  }
  if (!lowest) {
    lowest = node;
  }
  if (node && node->owned_by(lease)) {
    lease.leaf = node;
    ++node->ends;
  } else {
    end(lease);
  }
  if (lowest && lowest->redundant()) {
    absorb_parents(*table_.find(lowest->child_heads));
  }
  return taken;
}

std::size_t LeaseTrie::bytes() const {
  return node_bytes_ + leases_ * sizeof(Lease) + table_.bytes() +
         by_target_.size() * sizeof(Leases);
}

}  // namespace fairlead::kv
