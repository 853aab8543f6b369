#include "tokenizer/merges.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace fairlead::tokenizer {

namespace {

// Steps between two looks at whether the result is still wanted; a power of two.
constexpr std::size_t kStopSteps = 1U << 16;

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

std::size_t pair_slot(std::uint64_t pair, std::size_t mask) {
  const std::uint64_t hash = pair * 0x9E3779B97F4A7C15;
  return (hash >> 32 ^ hash >> 15) & mask;
}

}  // namespace

void MergeTable::add(TokenId left, TokenId right, TokenId merged) {
  pending_.push_back({pair_key(left, right), merged});
}

void MergeTable::finish(Stale stale) {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(pending_.size() * 3 / 2, 16)), {});
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t rank = 0; rank < pending_.size(); ++rank) {
    std::size_t i = pair_slot(pending_[rank].pair, mask);
    while (slots_[i].pair != kFree && slots_[i].pair != pending_[rank].pair) {
      i = (i + 1) & mask;
    }
    slots_[i] = {pending_[rank].pair, {static_cast<std::uint32_t>(rank), pending_[rank].id}};
    if (stale == Stale::JudgedByToken) {
      tokens_.push_back(pending_[rank].id);
    }
  }
  pending_ = {};
}

const MergeTable::Merge& MergeTable::find(TokenId left, TokenId right) const {
  static constexpr Merge kNone{kNoRank, 0};
  const std::uint64_t pair = pair_key(left, right);
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

void MergeTable::merge_long(std::span<const TokenId> symbols, std::vector<TokenId>& out,
                            const std::stop_token& stop) const {
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
  std::vector<std::uint64_t> heap;  // rank << 32 | position: lowest rank first, leftmost on ties
  heap.reserve(count);
  const auto update = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.rank = kNoRank;
    if (node.next != kNone) {
      const Merge& merge = find(node.id, nodes[node.next].id);
      node.rank = merge.rank;
      node.merged = merge.id;
    }
    return node.rank != kNoRank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, kNoRank, 0};
  }
  const auto entry = [&](std::uint32_t at) { return std::uint64_t{nodes[at].rank} << 32 | at; };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    if (update(i)) {
      heap.push_back(entry(i));
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  for (std::size_t step = 1; !heap.empty(); ++step) {
    if (step % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
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
        heap.push_back(entry(changed));
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    }
  }
  for (std::uint32_t i = count == 0 ? kNone : 0; i != kNone; i = nodes[i].next) {
    out.push_back(nodes[i].id);
  }
}

}  // namespace fairlead::tokenizer
