#include "kv/target_blocks.hpp"

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>
#include <ranges>
#include <utility>

namespace fairlead::kv {
namespace {

constexpr std::size_t kChunk = 32;         // blocks whose memory is fetched together
constexpr std::size_t kSideEntry = 96;     // bytes booked for an entry of a side table
constexpr std::uint8_t kManyCopies = 255;  // the mark of what only the side table can say

// The mark of an entry: 0 for the common case, one copy on the device; else the copies on device,
// host and disk in 3, 3 and 2 bits, as far as they fit.
std::uint8_t mark_of(const TierCopies& copies) {
  const auto [device, host, disk, external] = copies;
  if (device > 7 || host > 7 || disk > 3 || external > 0) {
    return kManyCopies;
  }
  const std::uint32_t mark = device | host << 3U | disk << 6U;
  return mark == 1 ? std::uint8_t{0} : static_cast<std::uint8_t>(mark);
}

TierCopies copies_in(std::uint8_t mark) {
  if (mark == 0) {
    return {1, 0, 0, 0};
  }
  return {mark & 7U, mark >> 3U & 7U, static_cast<std::uint32_t>(mark >> 6U), 0};
}

std::uint32_t add_saturated(std::uint32_t a, std::uint32_t b) {
  return b > std::numeric_limits<std::uint32_t>::max() - a
             ? std::numeric_limits<std::uint32_t>::max()
             : a + b;
}

/// A step that meets each of `count` places once and at any time has spread them evenly: near the
/// golden section, since the multiples of a plain fraction such as 5/8 fall together again.
std::size_t stride_through(std::size_t count) {
  auto stride = static_cast<std::size_t>(static_cast<double>(count) / std::numbers::phi) + 1;
  while (std::gcd(stride, count) > 1) {
    ++stride;
  }
  return stride;
}

}  // namespace

BlockTable::Place TargetBlocks::place_in_table(SequenceHash sequence, Tier tier) const {
  return tier != Tier::External ? shared_.tables[static_cast<std::size_t>(tier)]->place(sequence)
                                : BlockTable::Place{};
}

TierCopies TargetBlocks::copies_of(std::size_t position) const {
  const std::uint8_t mark = blocks_.mark(position);
  return mark == kManyCopies ? many_copies_.at(blocks_.key(position)) : copies_in(mark);
}

bool TargetBlocks::set_copies(std::size_t position, const TierCopies& copies) {
  const std::uint8_t old = blocks_.mark(position);
  const std::uint8_t mark = mark_of(copies);
  if (mark == kManyCopies) {
    if (old != kManyCopies && !shared_.budget.take(kSideEntry)) {
      return false;
    }
    many_copies_[blocks_.key(position)] = copies;
  } else if (old == kManyCopies) {
    forget_copies(position);
  }
  if (mark != old) {
    blocks_.set_mark(position, mark);
  }
  return true;
}

void TargetBlocks::forget_copies(std::size_t position) {
  if (blocks_.mark(position) == kManyCopies) {
    many_copies_.erase(blocks_.key(position));
    shared_.budget.give(kSideEntry);
  }
}

bool TargetBlocks::gain(SequenceHash sequence, Tier tier) {
  if (tier == Tier::External) {
    return true;
  }
  const auto at = static_cast<std::size_t>(tier);
  switch (shared_.tables[at]->add(sequence, id_)) {
    case set_word::Added::New: ++changes_[at]; return true;
    case set_word::Added::NoMemory: return false;
    case set_word::Added::Present: break;
  }
  if (!aliases_[at].contains(sequence) && !shared_.budget.take(kSideEntry)) {
    return false;
  }
  ++aliases_[at][sequence];
  return true;
}

void TargetBlocks::lose(SequenceHash sequence, Tier tier) {
  if (tier == Tier::External) {
    return;
  }
  const auto at = static_cast<std::size_t>(tier);
  if (!aliases_[at].empty()) {
    if (const auto alias = aliases_[at].find(sequence); alias != aliases_[at].end()) {
      if (--alias->second == 0) {
        aliases_[at].erase(alias);
        shared_.budget.give(kSideEntry);
      }
      return;
    }
  }
  changes_[at] -= shared_.tables[at]->remove(sequence, id_) ? 1 : 0;
}

void TargetBlocks::lose_all(std::size_t position) {
  const TierCopies copies = copies_of(position);
  for (std::size_t tier = 0; tier < copies.size(); ++tier) {
    if (copies[tier] > 0) {
      lose(blocks_.value(position), static_cast<Tier>(tier));
    }
  }
}

bool TargetBlocks::put(EngineHash engine, SequenceHash sequence, Tier tier, std::uint32_t copies) {
  const auto at = static_cast<std::size_t>(tier);
  bool added = false;
  const std::size_t position = blocks_.find_or_add(engine, added);
  if (position == BlockMap::kNone) {
    return false;
  }
  TierCopies now{};
  if (!added && blocks_.value(position) != sequence) {
    // The engine gave the name to other content, so a removal was lost: believe the newer one.
    lose_all(position);
    forget_copies(position);
    blocks_.set_mark(position, 0);
    ++counts_.renamed;
    added = true;
  } else if (!added) {
    now = copies_of(position);
  }
  const bool first = now[at] == 0;
  now[at] = add_saturated(now[at], copies);
  blocks_.set_value(position, sequence);
  if (first && !gain(sequence, tier)) {
    if (added) {
      blocks_.erase(position);
    }
    return false;
  }
  if (!set_copies(position, now)) {
    if (first) {
      lose(sequence, tier);
    }
    if (added) {
      blocks_.erase(position);
    }
    return false;
  }
  ++(first ? counts_.stored : counts_.copies);
  return true;
}

std::optional<std::size_t> TargetBlocks::store(Tier tier, std::optional<EngineHash> parent,
                                               std::span<const StoredBlock> blocks) {
  std::optional<SequenceHash> before;
  if (parent) {
    const std::size_t position = blocks_.find(*parent);
    if (position == BlockMap::kNone) {
      ++counts_.unknown_parents;
      counts_.orphans += blocks.size();
      return std::nullopt;
    }
    before = blocks_.value(position);
  }
  std::array<SequenceHash, kChunk> sequences;
  std::array<BlockTable::Place, kChunk> places;
  std::size_t stored = 0;
  while (stored < blocks.size()) {
    const auto chunk = blocks.subspan(stored, std::min(kChunk, blocks.size() - stored));
    const Epochs::Guard guard = shared_.epochs.enter();
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const LocalHash local = chunk[i].local;
      sequences[i] = before ? extend_hash(*before, local) : root_hash(local);
      before = sequences[i];
      blocks_.prefetch(chunk[i].engine);
      places[i] = place_in_table(sequences[i], tier);
    }
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      blocks_.prefetch_further(chunk[i].engine);
      BlockTable::prefetch_further(places[i]);
    }
    for (std::size_t i = 0; i < chunk.size(); ++i, ++stored) {
      if (!put(chunk[i].engine, sequences[i], tier, 1)) {
        ++counts_.full;
        counts_.refused += blocks.size() - stored;
        return stored;
      }
    }
  }
  return stored;
}

std::size_t TargetBlocks::restore(std::span<const HeldBlock> blocks) {
  // A snapshot has the order of its table. Put in that order, blocks would fill this one's front,
  // which makes one long run of collisions of a table that has yet to grow. So in strides.
  const std::size_t stride = stride_through(blocks.size());
  std::size_t at = 0;
  for (std::size_t done = 0; done < blocks.size(); ++done, at = (at + stride) % blocks.size()) {
    const HeldBlock& block = blocks[at];
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      if (block.copies[tier] > 0 &&
          !put(block.engine, block.sequence, static_cast<Tier>(tier), block.copies[tier])) {
        ++counts_.full;
        counts_.refused += blocks.size() - done;
        return done;
      }
    }
  }
  return blocks.size();
}

std::size_t TargetBlocks::remove(Tier tier, std::span<const EngineHash> blocks) {
  const auto at = static_cast<std::size_t>(tier);
  std::size_t removed = 0;
  for (std::size_t start = 0; start < blocks.size(); start += kChunk) {
    const auto chunk = blocks.subspan(start, std::min(kChunk, blocks.size() - start));
    const Epochs::Guard guard = shared_.epochs.enter();
    for (const EngineHash engine : chunk) {
      blocks_.prefetch(engine);
    }
    for (const EngineHash engine : chunk) {
      blocks_.prefetch_further(engine);
    }
    std::array<std::size_t, kChunk> positions;
    std::array<BlockTable::Place, kChunk> places;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      positions[i] = blocks_.find(chunk[i]);
      places[i] = positions[i] != BlockMap::kNone
                      ? place_in_table(blocks_.value(positions[i]), tier)
                      : BlockTable::Place{};
    }
    for (BlockTable::Place& place : places | std::views::take(chunk.size())) {
      BlockTable::prefetch_further(place);
    }
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const std::size_t position = blocks_.find_near(chunk[i], positions[i]);
      TierCopies copies = position != BlockMap::kNone ? copies_of(position) : TierCopies{};
      if (copies[at] == 0) {
        ++counts_.unknown_removals;
        continue;
      }
      ++removed;
      if (--copies[at] == 0) {
        lose(blocks_.value(position), tier);
      }
      if (copies == TierCopies{}) {
        forget_copies(position);
        blocks_.erase(position);
      } else {
        set_copies(position, copies);  // fewer copies need no memory
      }
    }
  }
  counts_.removed += removed;
  return removed;
}

void TargetBlocks::clear() {
  for (std::size_t start = 0; start < blocks_.capacity(); start += kChunk) {
    const std::size_t end = std::min(start + kChunk, blocks_.capacity());
    const Epochs::Guard guard = shared_.epochs.enter();
    for (std::size_t i = start; i < end; ++i) {
      if (blocks_.key(i) != 0) {
        place_in_table(blocks_.value(i), Tier::Device);
      }
    }
    for (std::size_t i = start; i < end; ++i) {
      if (blocks_.key(i) != 0) {
        lose_all(i);
      }
    }
  }
  shared_.budget.give(many_copies_.size() * kSideEntry);
  std::exchange(many_copies_, {});
  blocks_.release();
  ++counts_.clears;
}

void TargetBlocks::snapshot(std::vector<HeldBlock>& out) const {
  out.reserve(out.size() + blocks_.size());
  for (std::size_t i = 0; i < blocks_.capacity(); ++i) {
    if (blocks_.key(i) != 0) {
      out.push_back({blocks_.key(i), blocks_.value(i), copies_of(i)});
    }
  }
}

std::ptrdiff_t TargetBlocks::take_change(Tier tier) {
  return tier == Tier::External ? 0 : std::exchange(changes_[static_cast<std::size_t>(tier)], 0);
}

}  // namespace fairlead::kv
