#include "tokenizer/rank_merges.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tokenizer/merges.hpp"

namespace fairlead::tokenizer {

namespace {

class RankMerger {
 public:
  explicit RankMerger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
      const char c = static_cast<char>(byte);
      bytes_[byte] = vocabulary.find_bytes({&c, 1}).value_or(kNoToken);
    }
    lower_.finish(MergeTable::Stale::Skipped, vocabulary.size());
  }

  // The merge of a token, after those of all lower ones; nothing for a byte and when its bytes
  // never become one token.
  std::optional<BpePaths::Pair> next(TokenId id) {
    const std::string_view bytes = vocabulary_.bytes(id);
    if (bytes.size() < 2) {
      return std::nullopt;
    }
    // Merges of lower tokens go first. Where they leave two parts, as in every model that was
    // trained, nothing but the token itself is left to make.
    symbols_.clear();
    for (const char c : bytes) {
      symbols_.push_back(bytes_[static_cast<unsigned char>(c)]);
    }
    parts_.clear();
    lower_.merge(symbols_, parts_);
    std::optional<BpePaths::Pair> merge;
    if (parts_.size() == 2) {
      merge = {parts_[0], parts_[1], id};
    } else {
      merge = last_merge(bytes, id);
    }
    if (merge) {
      lower_.insert(merge->left, merge->right, id);
    }
    return merge;
  }

 private:
  // The same for any order of the ranks.
  std::optional<BpePaths::Pair> last_merge(std::string_view bytes, TokenId id) {
    starts_.clear();
    joined_.clear();
    for (std::uint32_t i = 0; i <= bytes.size(); ++i) {
      starts_.push_back(i);
    }
    for (std::size_t i = 0; i + 1 < bytes.size(); ++i) {
      joined_.push_back(token(bytes, i, i + 2));
    }
    while (joined_.size() > 1) {
      const auto best = std::ranges::min_element(joined_);
      if (*best == kNoToken) {
        return std::nullopt;
      }
      const auto at = static_cast<std::size_t>(best - joined_.begin());
      starts_.erase(starts_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      joined_.erase(best);
      if (at > 0) {
        joined_[at - 1] = token(bytes, at - 1, at + 1);
      }
      if (at < joined_.size()) {
        joined_[at] = token(bytes, at, at + 2);
      }
    }
    return BpePaths::Pair{token(bytes, 0, 1), token(bytes, 1, 2), id};
  }

  // The token that parts make together, from one to before another.
  TokenId token(std::string_view bytes, std::size_t from, std::size_t to) const {
    return vocabulary_.find_bytes(bytes.substr(starts_[from], starts_[to] - starts_[from]))
        .value_or(kNoToken);
  }

  const Vocabulary& vocabulary_;
  std::array<TokenId, 256> bytes_{};
  MergeTable lower_;  // the merges of the tokens before
  std::vector<TokenId> symbols_;
  std::vector<TokenId> parts_;
  std::vector<std::uint32_t> starts_;  // of the parts, and the end
  std::vector<TokenId> joined_;        // what each part and the next make; ids are ranks
};

}  // namespace

std::vector<BpePaths::Pair> merges_by_id(const Vocabulary& vocabulary) {
  RankMerger merger(vocabulary);
  std::vector<BpePaths::Pair> merges;
  merges.reserve(vocabulary.size());
  for (TokenId id = 0; id < vocabulary.id_limit(); ++id) {
    if (const std::optional<BpePaths::Pair> merge = merger.next(id)) {
      merges.push_back(*merge);
    }
  }
  return merges;
}

}  // namespace fairlead::tokenizer
