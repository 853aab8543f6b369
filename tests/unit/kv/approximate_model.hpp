#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "kv/approximate_index.hpp"

namespace fairlead::kv::testing {

/// An approximate index block by block: a map from target and hash to when it was inserted last.
/// Freeing goes by the same shares as the index, so that the two can be compared at any moment.
class ApproximateModel {
 public:
  using TimePoint = ApproximateIndex::TimePoint;
  using Key = std::pair<TargetId, SequenceHash>;

  explicit ApproximateModel(const ApproximateIndexOptions& options)
      : options_(options),
        kept_(static_cast<std::size_t>(static_cast<double>(options.max_blocks) *
                                       options.prune_ratio)) {}

  void insert(TargetId target, std::span<const SequenceHash> prompt, TimePoint now) {
    if (prompt.empty()) {
      return;
    }
    const std::size_t share = 2 * prompt.size() + 256;
    latest_ = std::max(latest_, now);
    for (std::size_t freed = 0; freed < share && expired(latest_);) {
      freed += drop_oldest(SIZE_MAX);
    }
    ++serial_;
    for (std::uint32_t i = 0; i < prompt.size(); ++i) {
      const Key key{target, prompt[i]};
      forget(key);
      held_[key] = {.serial = serial_, .depth = i, .expiry = latest_ + options_.ttl};
      order_.emplace(serial_, UINT32_MAX - i, key);
    }
    pruning = pruning || held_.size() > options_.max_blocks;
    for (std::size_t freed = 0; pruning && held_.size() > kept_ && freed < share;) {
      const bool early = !expired(latest_);
      const std::size_t blocks = drop_oldest(held_.size() - kept_);
      freed += blocks;
      pruned += early ? blocks : 0;
    }
    pruning = pruning && held_.size() > kept_;
  }

  void expire(TimePoint now) {
    while (expired(now)) {
      drop_oldest(SIZE_MAX);
    }
  }

  void remove_target(TargetId target) {
    while (true) {
      const auto found = held_.lower_bound({target, 0});
      if (found == held_.end() || found->first.first != target) {
        return;
      }
      forget(found->first);
    }
  }

  std::vector<Overlap> find(std::span<const SequenceHash> prompt, TimePoint now) const {
    std::vector<Overlap> out;
    for (auto at = held_.begin(); at != held_.end();
         at = held_.upper_bound({at->first.first, UINT64_MAX})) {
      const TargetId target = at->first.first;
      std::uint32_t depth = 0;
      while (depth < prompt.size()) {
        const auto found = held_.find({target, prompt[depth]});
        if (found == held_.end() || found->second.expiry <= now) {
          break;
        }
        ++depth;
      }
      if (depth > 0) {
        out.push_back({.target = target, .device = depth, .host = 0, .disk = 0});
      }
    }
    return out;
  }

  std::size_t blocks() const { return held_.size(); }
  std::size_t distinct_blocks() const {
    std::set<SequenceHash> hashes;
    for (const auto& [key, held] : held_) {
      hashes.insert(key.second);
    }
    return hashes.size();
  }
  std::size_t leases() const {
    std::set<std::uint64_t> serials;
    for (const auto& [key, held] : held_) {
      serials.insert(held.serial);
    }
    return serials.size();
  }

  std::uint64_t pruned = 0;
  bool pruning = false;

 private:
  struct Held {
    std::uint64_t serial = 0;
    std::uint32_t depth = 0;
    TimePoint expiry;
  };

  bool expired(TimePoint now) const {
    return !order_.empty() && held_.at(std::get<Key>(*order_.begin())).expiry <= now;
  }
  void forget(Key key) {
    const auto found = held_.find(key);
    if (found != held_.end()) {
      order_.erase({found->second.serial, UINT32_MAX - found->second.depth, key});
      held_.erase(found);
    }
  }
  // Of one insertion, the deepest first.
  std::size_t drop_oldest(std::size_t limit) {
    const std::uint64_t serial = std::get<0>(*order_.begin());
    std::size_t dropped = 0;
    while (dropped < limit && !order_.empty() && std::get<0>(*order_.begin()) == serial) {
      forget(std::get<Key>(*order_.begin()));
      ++dropped;
    }
    return dropped;
  }

  ApproximateIndexOptions options_;
  std::size_t kept_;
  TimePoint latest_ = TimePoint::min();
  std::uint64_t serial_ = 0;
  std::map<Key, Held> held_;
  std::set<std::tuple<std::uint64_t, std::uint32_t, Key>> order_;
};

}  // namespace fairlead::kv::testing
