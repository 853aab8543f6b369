#include "tokenizer/rank_merges.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fairlead::tokenizer {

namespace {

class RankMerger {
 public:
  explicit RankMerger(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), two_bytes_(std::size_t{1} << 16, kNoToken) {
    for (TokenId id = 0; id < vocabulary.id_limit(); ++id) {
      if (const std::string_view bytes = vocabulary.bytes(id); bytes.size() == 2) {
        two_bytes_[two_byte_index(bytes)] = id;
      }
    }
  }

  // How the token arises; nothing for a byte and when its bytes never become one.
  std::optional<BpePaths::Pair> last_merge(TokenId id) {
    const std::string_view bytes = vocabulary_.bytes(id);
    if (bytes.size() < 2) {
      return std::nullopt;
    }
    starts_.clear();
    joined_.clear();
    for (std::uint32_t i = 0; i < bytes.size(); ++i) {
      starts_.push_back(i);
      if (i + 1 < bytes.size()) {
        joined_.push_back(two_bytes_[two_byte_index(bytes.substr(i))]);
      }
    }
    starts_.push_back(static_cast<std::uint32_t>(bytes.size()));
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

 private:
  static std::size_t two_byte_index(std::string_view bytes) {
    return static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) << 8 |
           static_cast<unsigned char>(bytes[1]);
  }

  // The token that parts make together, from one to before another.
  TokenId token(std::string_view bytes, std::size_t from, std::size_t to) const {
    return vocabulary_.find_bytes(bytes.substr(starts_[from], starts_[to] - starts_[from]))
        .value_or(kNoToken);
  }

  const Vocabulary& vocabulary_;
  std::vector<TokenId> two_bytes_;
  std::vector<std::uint32_t> starts_;  // of the parts, and the end
  std::vector<TokenId> joined_;        // what each part and the next make; ids are ranks
};

}  // namespace

std::vector<BpePaths::Pair> merges_by_id(const Vocabulary& vocabulary) {
  RankMerger merger(vocabulary);
  std::vector<BpePaths::Pair> merges;
  merges.reserve(vocabulary.size());
  for (TokenId id = 0; id < vocabulary.id_limit(); ++id) {
    if (const std::optional<BpePaths::Pair> merge = merger.last_merge(id)) {
      merges.push_back(*merge);
    }
  }
  return merges;
}

}  // namespace fairlead::tokenizer
