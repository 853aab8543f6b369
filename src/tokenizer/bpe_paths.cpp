#include "tokenizer/bpe_paths.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace fairlead::tokenizer {

namespace {

// Tokens between two looks at whether the result is still wanted; a power of two.
constexpr std::size_t kStopSteps = 1U << 14;

// A bit for each position of a word; short words need no memory of their own.
class Positions {
 public:
  explicit Positions(std::size_t size) {
    if (size >= kShort * 64) {
      long_.assign(size / 64 + 1, 0);
      words_ = long_.data();
    }
  }
  Positions(const Positions&) = delete;
  Positions& operator=(const Positions&) = delete;

  bool contains(std::size_t at) const { return (words_[at / 64] >> at % 64 & 1) != 0; }
  void add(std::size_t at) { words_[at / 64] |= std::uint64_t{1} << at % 64; }

 private:
  static constexpr std::size_t kShort = 4;

  std::array<std::uint64_t, kShort> short_{};
  std::vector<std::uint64_t> long_;
  std::uint64_t* words_ = short_.data();
};

}  // namespace

bool BpePaths::build(const Vocabulary& vocabulary, std::span<const TokenId, 256> byte_ids,
                     std::span<const Pair> pairs, const MergeTable& merges) {
  origins_.assign(vocabulary.id_limit(), {});
  for (const TokenId id : byte_ids) {
    origins_[id].length = 1;
  }
  if (find_origins(pairs, merges) && build_trie(vocabulary)) {
    return true;
  }
  origins_ = {};
  edges_ = {};
  return false;
}

bool BpePaths::find_origins(std::span<const Pair> pairs, const MergeTable& merges) {
  std::vector<TokenId> missing;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [left, right, merged] = pairs[i];
    if (merges.find(left, right).rank != i || arises(merged)) {
      continue;  // repeated below, or the token arises by an earlier merge
    }
    if (!arises(left) || !arises(right)) {
      missing.push_back(arises(left) ? right : left);
      continue;
    }
    if (apart_before(left, right, merges)) {
      Origin& origin = origins_[merged];
      origin.left = left;
      origin.right = right;
      origin.rank = static_cast<std::uint32_t>(i + 1);
      origin.length = origins_[left].length + origins_[right].length;
    }
  }
  // What is missing for a merge must not arise by a later one.
  return std::ranges::none_of(missing, [&](TokenId id) { return arises(id); });
}

bool BpePaths::build_trie(const Vocabulary& vocabulary) {
  // By length, so that each meets the tokens that begin it.
  std::vector<std::pair<std::uint32_t, TokenId>> tokens;
  std::size_t bytes = 0;
  for (TokenId id = 0; id < origins_.size(); ++id) {
    if (arises(id)) {
      tokens.emplace_back(origins_[id].length, id);
      bytes += origins_[id].length;
    }
  }
  std::ranges::sort(tokens);
  edges_.assign(std::bit_ceil(std::max<std::size_t>(bytes / 2, 1024)), {});
  std::uint32_t nodes = 1;
  for (const auto& [length, id] : tokens) {
    std::uint32_t node = 0;
    TokenId shorter = kNoToken;
    Edge* edge = nullptr;
    for (const char c : vocabulary.bytes(id)) {
      if (edge != nullptr && edge->token != kNoToken) {
        shorter = edge->token;
      }
      const std::uint32_t key = node << 8 | static_cast<unsigned char>(c);
      edge = &edges_[edge_slot(key)];
      if (edge->key == kFreeEdge) {
        if (nodes == kMaxNodes) {
          return false;
        }
        if (nodes > edges_.size() / 4 * 3) {
          std::vector<Edge> old(edges_.size() * 2);
          old.swap(edges_);
          for (const Edge& moved : old) {
            if (moved.key != kFreeEdge) {
              edges_[edge_slot(moved.key)] = moved;
            }
          }
          edge = &edges_[edge_slot(key)];
        }
        edge->key = key;
        edge->child = nodes++;
      }
      node = edge->child;
    }
    edge->token = id;
    origins_[id].shorter = shorter;
  }
  return true;
}

std::size_t BpePaths::edge_slot(std::uint32_t key) const {
  const std::size_t mask = edges_.size() - 1;
  for (std::size_t i = (key * 0x9E3779B97F4A7C15 >> 32) & mask;; i = (i + 1) & mask) {
    if (edges_[i].key == key || edges_[i].key == kFreeEdge) {
      return i;
    }
  }
}

bool BpePaths::apart(TokenId left, TokenId right, const MergeTable& merges) const {
  return merges.find(left, right).rank == MergeTable::kNoRank && apart_before(left, right, merges);
}

// Whether nothing crosses the border of two tokens until both have arisen. Of two merges with equal
// ranks the left one comes first.
bool BpePaths::apart_before(TokenId left, TokenId right, const MergeTable& merges) const {
  for (;;) {
    const Origin& first = origins_[left];
    const Origin& second = origins_[right];
    std::uint32_t limit = 0;
    if (first.rank > second.rank) {
      limit = first.rank;
      left = first.right;
    } else if (second.rank != 0) {
      limit = second.rank + 1;
      right = second.left;
    } else {
      return true;
    }
    const std::uint32_t rank = merges.find(left, right).rank;
    if (rank != MergeTable::kNoRank && rank + 1 < limit) {
      return false;
    }
  }
}

TokenId BpePaths::longest(std::string_view text) const {
  TokenId found = kNoToken;
  std::uint32_t node = 0;
  for (const char c : text) {
    const Edge& edge = edges_[edge_slot(node << 8 | static_cast<unsigned char>(c))];
    if (edge.key == kFreeEdge) {
      break;
    }
    node = edge.child;
    found = edge.token != kNoToken ? edge.token : found;
  }
  return found;
}

bool BpePaths::encode(std::string_view word, const MergeTable& merges, std::vector<TokenId>& out,
                      const std::stop_token& stop) const {
  const std::size_t before = out.size();
  Positions dead_ends(word.size());
  std::size_t pos = 0;
  for (std::size_t step = 1; pos < word.size(); ++step) {
    if (step % kStopSteps == 0 && stop.stop_requested()) {
      return true;
    }
    TokenId id = longest(word.substr(pos));
    for (;;) {
      while (id != kNoToken && (dead_ends.contains(pos + origins_[id].length) ||
                                (pos != 0 && !apart(out.back(), id, merges)))) {
        id = origins_[id].shorter;
      }
      if (id != kNoToken) {
        break;
      }
      if (pos == 0) {
        return false;
      }
      dead_ends.add(pos);
      id = out.back();
      out.pop_back();
      pos -= origins_[id].length;
      id = origins_[id].shorter;
    }
    out.push_back(id);
    pos += origins_[id].length;
  }
  return out.size() > before || word.empty();
}

}  // namespace fairlead::tokenizer
