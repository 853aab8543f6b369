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

// A token in a set.
std::uint64_t bit_of(TokenId id) { return std::uint64_t{1} << (id * 0x9E3779B1U >> 26); }

}  // namespace

bool BpePaths::build(const Vocabulary& vocabulary, std::span<const TokenId, 256> byte_ids,
                     std::span<const Pair> pairs, const MergeTable& merges) {
  origins_.assign(vocabulary.id_limit(), {});
  sides_.assign(vocabulary.id_limit(), {});
  std::vector<TokenId> tokens(byte_ids.begin(), byte_ids.end());
  for (const TokenId id : tokens) {
    origins_[id].length = 1;
  }
  // What each token can be joined with by the merges so far.
  struct Partners {
    std::uint64_t left = 0;
    std::uint64_t right = 0;
  };
  std::vector<Partners> partners(vocabulary.id_limit());
  const auto widened = [](Side side, TokenId id, std::uint64_t found) {
    return found == 0 ? side : Side{side.parts | bit_of(id), side.partners | found};
  };
  const auto left_side = [&](TokenId id) {
    return widened(sides_[id].left, id, partners[id].left);
  };
  const auto right_side = [&](TokenId id) {
    return widened(sides_[id].right, id, partners[id].right);
  };
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [left, right, merged] = pairs[i];
    const bool arises_now =
        !arises(merged) && arises(left) && arises(right) &&
        (!merges.repeated() || merges.find(left, right).rank == i) &&
        (!may_join(right_side(left), left_side(right)) || apart_before(left, right, merges));
    partners[left].right |= bit_of(right);
    partners[right].left |= bit_of(left);
    if (arises_now) {
      Origin& origin = origins_[merged];
      origin.left = left;
      origin.right = right;
      origin.rank = static_cast<std::uint32_t>(i + 1);
      origin.length = origins_[left].length + origins_[right].length;
      // Later merges of the parts come too late.
      sides_[merged] = {left_side(left), right_side(right)};
      tokens.push_back(merged);
    }
  }
  for (const TokenId id : tokens) {
    sides_[id] = {left_side(id), right_side(id)};
  }
  return trie_.build(vocabulary, tokens);
}

// False when no merge crosses the border between two tokens.
bool BpePaths::may_join(const Side& left, const Side& right) {
  return (left.partners & right.parts) != 0 && (right.partners & left.parts) != 0;
}

bool BpePaths::apart(TokenId left, TokenId right, const MergeTable& merges) const {
  return !may_join(sides_[left].right, sides_[right].left) ||
         (merges.find(left, right).rank == MergeTable::kNoRank &&
          apart_before(left, right, merges));
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

TokenTrie::Match BpePaths::longest(std::string_view text) const {
  TokenTrie::Match match = trie_.longest(text);
  if (match.length == TokenTrie::kLong) {
    match.length = origins_[match.token].length;
  }
  return match;
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
    auto [id, length] = longest(word.substr(pos));
    for (;;) {
      while (length != 0 &&
             (dead_ends.contains(pos + length) || (pos != 0 && !apart(out.back(), id, merges)))) {
        id = trie_.shorter(id);
        length = id != kNoToken ? origins_[id].length : 0;
      }
      if (length != 0) {
        break;
      }
      if (pos == 0) {
        return false;
      }
      dead_ends.add(pos);
      pos -= origins_[out.back()].length;
      id = trie_.shorter(out.back());
      length = id != kNoToken ? origins_[id].length : 0;
      out.pop_back();
    }
    out.push_back(id);
    pos += length;
  }
  return out.size() > before || word.empty();
}

}  // namespace fairlead::tokenizer
