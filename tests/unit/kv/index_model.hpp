#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kv/index.hpp"

namespace fairlead::kv::testing {

/// The index in its plainest form: nested maps and the rules, word by word.
class IndexModel {
 public:
  struct Block {
    SequenceHash sequence = 0;
    TierCopies copies{};
  };

  StoreOutcome store(TargetId target, Tier tier, std::optional<EngineHash> parent,
                     std::span<const StoredBlock> blocks) {
    auto& held = targets[target];
    std::optional<SequenceHash> before;
    if (parent) {
      const auto found = held.find(*parent);
      if (found == held.end()) {
        return StoreOutcome::UnknownParent;
      }
      before = found->second.sequence;
    }
    for (const StoredBlock& block : blocks) {
      before = before ? extend_hash(*before, block.local) : root_hash(block.local);
      Block& entry = held[block.engine];
      if (entry.sequence != *before) {
        entry = {.sequence = *before, .copies = {}};
      }
      ++entry.copies[static_cast<std::size_t>(tier)];
    }
    return StoreOutcome::Stored;
  }

  std::size_t remove(TargetId target, Tier tier, std::span<const EngineHash> blocks) {
    auto& held = targets[target];
    std::size_t removed = 0;
    for (const EngineHash engine : blocks) {
      const auto found = held.find(engine);
      if (found == held.end() || found->second.copies[static_cast<std::size_t>(tier)] == 0) {
        continue;
      }
      ++removed;
      --found->second.copies[static_cast<std::size_t>(tier)];
      if (found->second.copies == TierCopies{}) {
        held.erase(found);
      }
    }
    return removed;
  }

  std::vector<Overlap> find(std::span<const SequenceHash> prompt) const {
    std::vector<Overlap> out;
    for (const auto& [target, held] : targets) {
      std::array<std::set<SequenceHash>, 3> tiers;
      for (const auto& [engine, block] : held) {
        for (std::size_t tier = 0; tier < 3; ++tier) {
          if (block.copies[tier] > 0) {
            tiers[tier].insert(block.sequence);
          }
        }
      }
      std::array<std::uint32_t, 3> depths{};
      for (std::size_t most = 0; most < 3; ++most) {
        for (const SequenceHash hash : prompt) {
          bool any = false;
          for (std::size_t tier = 0; tier <= most; ++tier) {
            any = any || tiers[tier].contains(hash);
          }
          if (!any) {
            break;
          }
          ++depths[most];
        }
      }
      if (depths[2] > 0) {
        out.push_back({.target = target,
                       .device = depths[0],
                       .host = depths[1] - depths[0],
                       .disk = depths[2] - depths[1]});
      }
    }
    return out;
  }

  std::map<TargetId, std::map<EngineHash, Block>> targets;
};

/// The index's answer in the order of targets.
inline std::vector<Overlap> sorted_find(const KvIndex& index,
                                        std::span<const SequenceHash> prompt) {
  std::vector<Overlap> found;
  index.find(prompt, found);
  std::ranges::sort(found, {}, &Overlap::target);
  return found;
}

}  // namespace fairlead::kv::testing
