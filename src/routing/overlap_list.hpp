#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/index.hpp"

namespace fairlead::routing {

/// Finds single targets in a list of overlaps that names each target at most once. Indexes list
/// targets in ascending runs with few gaps, so the place of one is mostly guessed; the first wrong
/// guess writes down the places of all, once per list. Keeps its memory between lists.
class OverlapList {
 public:
  /// From now on finds in `list`, which stays where it is.
  void reset(std::span<const kv::Overlap> list) {
    list_ = list;
    listed_ = false;
  }
  /// The list.
  std::span<const kv::Overlap> items() const { return list_; }
  /// Where the target is in it; its size when it is not there.
  std::size_t find(kv::TargetId target) {
    if (list_.empty()) {
      return 0;
    }
    std::size_t at = std::min<std::size_t>(target, list_.size() - 1);
    for (int attempt = 0; attempt < kGuesses && list_[at].target != target; ++attempt) {
      const auto off = static_cast<std::ptrdiff_t>(target) - list_[at].target;
      at = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(
          static_cast<std::ptrdiff_t>(at) + off, 0, std::ssize(list_) - 1));
    }
    return list_[at].target == target ? at : listed(target);
  }

 private:
  static constexpr int kGuesses = 4;

  // Places written down for other lists may be left over: a place counts when the target is there.
  std::size_t listed(kv::TargetId target) {
    if (!listed_) {
      listed_ = true;
      where_.resize(kv::kMaxTargets);
      for (std::size_t i = 0; i < list_.size(); ++i) {
        where_[list_[i].target % kv::kMaxTargets] = static_cast<std::uint32_t>(i);
      }
    }
    const std::size_t at = where_[target % kv::kMaxTargets];
    return at < list_.size() && list_[at].target == target ? at : list_.size();
  }

  std::span<const kv::Overlap> list_;
  std::vector<std::uint32_t> where_;  // by target, once it was needed
  bool listed_ = false;
};

}  // namespace fairlead::routing
