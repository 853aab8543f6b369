#include "tokenizer/merges.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace fairlead::tokenizer {

namespace {

// Steps between two looks at whether the result is still wanted; a power of two.
constexpr std::size_t kStopSteps = 1U << 16;

// Merges that are fetched from memory together.
constexpr std::size_t kAhead = 16;

std::size_t pair_slot(std::uint64_t pair, std::size_t mask) {
  const std::uint64_t hash = pair * 0x9E3779B97F4A7C15;
  return (hash >> 32 ^ hash >> 15) & mask;
}

// The filter is small enough for the near caches, and most pairs looked up have no merge.
std::size_t filter_bit(std::uint64_t pair, std::size_t words) {
  return (pair * 0x9E3779B97F4A7C15 >> 20) & (words * 64 - 1);
}

}  // namespace

void MergeTable::add(TokenId left, TokenId right, TokenId merged, bool same_rank) {
  std::uint32_t rank = 0;
  if (!pending_.empty()) {
    rank = pending_.back().merge.rank + (same_rank ? 0 : 1);
  }
  pending_.push_back({pair_key(left, right), {rank, merged}});
}

void MergeTable::finish(Stale stale, std::size_t more) {
  const std::size_t count = pending_.size() + more;
  slots_.assign(std::bit_ceil(std::max<std::size_t>(count * 3 / 2, 16)), {});
  filter_.assign(std::bit_ceil(std::max<std::size_t>(count / 8, 1)), 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = 0; at < pending_.size(); ++at) {
    const std::size_t ahead = std::min(at + kAhead, pending_.size() - 1);
    __builtin_prefetch(&slots_[pair_slot(pending_[ahead].pair, mask)], 1);
    const auto& [pair, merge] = pending_[at];
    insert(pair, merge);
    if (stale == Stale::JudgedByToken) {
      tokens_.push_back(merge.id);
    }
  }
  pending_ = {};
}

void MergeTable::insert(std::uint64_t pair, const Merge& merge) {
  const std::size_t bit = filter_bit(pair, filter_.size());
  filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = pair_slot(pair, mask);
  while (slots_[i].pair != kFree && slots_[i].pair != pair) {
    i = (i + 1) & mask;
  }
  repeated_ = repeated_ || slots_[i].pair != kFree;
  slots_[i] = {pair, merge};
  next_rank_ = merge.rank + 1;
}

const MergeTable::Merge& MergeTable::find(TokenId left, TokenId right) const {
  static constexpr Merge kNone{kNoRank, 0};
  const std::uint64_t pair = pair_key(left, right);
  const std::size_t bit = filter_bit(pair, filter_.size());
  if ((filter_[bit / 64] >> bit % 64 & 1) == 0) {
    return kNone;
  }
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = pair_slot(pair, mask);; i = (i + 1) & mask) {
    if (slots_[i].pair == pair) {
      return slots_[i].merge;
    }
    if (slots_[i].pair == kFree) {
      return kNone;
    }
  }
}

void MergeTable::merge(std::span<TokenId> symbols, std::vector<TokenId>& out,
                       const std::stop_token& stop) const {
  // Looking at all pairs of a short word for each merge beats a queue.
  if (symbols.size() <= kShort && tokens_.empty()) {
    merge_short(symbols, out);
  } else {
    merge_long(symbols, out, stop);
  }
}

void MergeTable::merge_short(std::span<TokenId> symbols, std::vector<TokenId>& out) const {
  std::size_t count = symbols.size();
  std::array<std::uint32_t, kShort> ranks;  // NOLINT: filled below
  std::array<TokenId, kShort> merged;       // NOLINT: filled below
  const auto update = [&](std::size_t i) {
    const Merge& merge = find(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.id;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) {
    update(i);
  }
  while (count > 1) {
    const std::size_t pairs = count - 1;
    std::uint32_t best = kNoRank;
    for (std::size_t i = 0; i < pairs; ++i) {
      best = std::min(best, ranks[i]);
    }
    if (best == kNoRank) {
      break;
    }
    const auto at =
        static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), best) - ranks.begin());
    symbols[at] = merged[at];
    for (std::size_t i = at + 1; i < pairs; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --count;
    if (at > 0) {
      update(at - 1);
    }
    if (at + 1 < count) {
      update(at);
    }
  }
  out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

// Pairs by rank, those of one rank from left to right. Most are known at the start: sorted once,
// they need no heap.
class MergeTable::Queue {
 public:
  explicit Queue(std::size_t room) { first_.reserve(room); }

  // Adds a pair before the first `pop`; those come from left to right.
  void add(std::uint32_t rank, std::uint32_t at) {
    first_.push_back(std::uint64_t{rank} << 32 | at);
    ranks_ |= rank;
  }
  // Makes `pop` possible.
  void start() {
    constexpr unsigned kDigit = 11;
    constexpr std::uint64_t kMask = (1U << kDigit) - 1;
    std::vector<std::uint64_t> sorted(first_.size());
    for (unsigned shift = 0; shift < 32 && ranks_ >> shift != 0; shift += kDigit) {
      std::array<std::uint32_t, kMask + 2> starts{};
      const auto digit = [shift](std::uint64_t entry) { return entry >> 32 >> shift & kMask; };
      for (const std::uint64_t entry : first_) {
        ++starts[digit(entry) + 1];
      }
      for (std::size_t i = 1; i < starts.size(); ++i) {
        starts[i] += starts[i - 1];
      }
      for (const std::uint64_t entry : first_) {
        sorted[starts[digit(entry)]++] = entry;
      }
      first_.swap(sorted);
    }
  }
  // Adds a pair.
  void push(std::uint32_t rank, std::uint32_t at) {
    later_.push_back(std::uint64_t{rank} << 32 | at);
    std::push_heap(later_.begin(), later_.end(), std::greater<>());
  }
  bool empty() const { return next_ == first_.size() && later_.empty(); }
  // Removes the first pair: its rank in the upper half, its place in the lower one.
  std::uint64_t pop() {
    if (later_.empty() || (next_ != first_.size() && first_[next_] < later_.front())) {
      return first_[next_++];
    }
    std::pop_heap(later_.begin(), later_.end(), std::greater<>());
    const std::uint64_t top = later_.back();
    later_.pop_back();
    return top;
  }

 private:
  std::vector<std::uint64_t> first_;
  std::size_t next_ = 0;
  std::uint32_t ranks_ = 0;  // all bits that occur
  std::vector<std::uint64_t> later_;
};

void MergeTable::merge_long(std::span<const TokenId> symbols, std::vector<TokenId>& out,
                            const std::stop_token& stop, Witness* witness) const {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    TokenId id;
    std::uint32_t previous;
    std::uint32_t next;
    std::uint32_t rank;  // of the pair that starts here
    TokenId merged;
  };
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<Node> nodes(count);
  Queue queue(count);
  const auto update = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.rank = kNoRank;
    if (node.next != kNone) {
      const Merge& merge = find(node.id, nodes[node.next].id);
      node.rank = merge.rank;
      node.merged = merge.id;
      if (witness != nullptr && node.rank != kNoRank) {
        witness->see(node.id, nodes[node.next].id, node.merged);
      }
    }
    return node.rank != kNoRank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, kNoRank, 0};
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    if (update(i)) {
      queue.add(nodes[i].rank, i);
    }
  }
  queue.start();
  for (std::size_t step = 1; !queue.empty(); ++step) {
    if (step % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    const std::uint64_t top = queue.pop();
    const auto at = static_cast<std::uint32_t>(top);
    Node& node = nodes[at];
    if (node.rank != top >> 32 &&
        (tokens_.empty() || node.rank == kNoRank || node.merged != tokens_[top >> 32])) {
      continue;  // the pair has changed since
    }
    Node& gone = nodes[node.next];
    gone.rank = kNoRank;
    node.id = node.merged;
    node.next = gone.next;
    if (node.next != kNone) {
      nodes[node.next].previous = at;
    }
    for (const std::uint32_t changed : {node.previous, at}) {
      if (changed != kNone && update(changed)) {
        queue.push(nodes[changed].rank, changed);
      }
    }
  }
  for (std::uint32_t i = count == 0 ? kNone : 0; i != kNone; i = nodes[i].next) {
    out.push_back(nodes[i].id);
  }
}

}  // namespace fairlead::tokenizer
