#include "kv/target_blocks.hpp"

#include <algorithm>
#include <limits>
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

}  // namespace

void TargetBlocks::prefetch_tables(SequenceHash sequence, Tier tier) const {
  if (tier != Tier::External) {
    shared_.tables[static_cast<std::size_t>(tier)]->place(sequence);
  }
}

TierCopies TargetBlocks::copies_of(const BlockMap::Slot* slot) const {
  const std::uint8_t mark = blocks_.mark(slot);
  return mark == kManyCopies ? many_copies_.at(slot->key) : copies_in(mark);
}

bool TargetBlocks::set_copies(const BlockMap::Slot* slot, const TierCopies& copies) {
  const std::uint8_t old = blocks_.mark(slot);
  const std::uint8_t mark = mark_of(copies);
  if (mark == kManyCopies) {
    if (old != kManyCopies && !shared_.budget.take(kSideEntry)) {
      return false;
    }
    many_copies_[slot->key] = copies;
  } else if (old == kManyCopies) {
    forget_copies(slot);
  }
  if (mark != old) {
    blocks_.set_mark(slot, mark);
  }
  return true;
}

void TargetBlocks::forget_copies(const BlockMap::Slot* slot) {
  if (blocks_.mark(slot) == kManyCopies) {
    many_copies_.erase(slot->key);
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

void TargetBlocks::lose_all(const BlockMap::Slot* slot) {
  const TierCopies copies = copies_of(slot);
  for (std::size_t tier = 0; tier < copies.size(); ++tier) {
    if (copies[tier] > 0) {
      lose(slot->value, static_cast<Tier>(tier));
    }
  }
}

bool TargetBlocks::put(EngineHash engine, SequenceHash sequence, Tier tier, std::uint32_t copies) {
  const auto at = static_cast<std::size_t>(tier);
  bool added = false;
  BlockMap::Slot* const slot = blocks_.find_or_add(engine, added);
  if (!slot) {
    return false;
  }
  TierCopies now{};
  if (!added && slot->value != sequence) {
    // The engine gave the name to other content, so a removal was lost: believe the newer one.
    lose_all(slot);
    forget_copies(slot);
    blocks_.set_mark(slot, 0);
    ++counts_.renamed;
    added = true;
  } else if (!added) {
    now = copies_of(slot);
  }
  const bool first = now[at] == 0;
  now[at] = add_saturated(now[at], copies);
  slot->value = sequence;
  if (first && !gain(sequence, tier)) {
    if (added) {
      blocks_.erase(slot);
    }
    return false;
  }
  if (!set_copies(slot, now)) {
    if (first) {
      lose(sequence, tier);
    }
    if (added) {
      blocks_.erase(slot);
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
    const BlockMap::Slot* const slot = blocks_.find(*parent);
    if (!slot) {
      ++counts_.unknown_parents;
      counts_.orphans += blocks.size();
      return std::nullopt;
    }
    before = slot->value;
  }
  std::array<SequenceHash, kChunk> sequences;
  std::size_t stored = 0;
  while (stored < blocks.size()) {
    const auto chunk = blocks.subspan(stored, std::min(kChunk, blocks.size() - stored));
    const Epochs::Guard guard = shared_.epochs.enter();
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const LocalHash local = chunk[i].local;
      sequences[i] = before ? extend_hash(*before, local) : root_hash(local);
      before = sequences[i];
      blocks_.prefetch(chunk[i].engine);
      prefetch_tables(sequences[i], tier);
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
  for (std::size_t done = 0; done < blocks.size(); ++done) {
    for (std::size_t tier = 0; tier < kTierCount; ++tier) {
      const HeldBlock& block = blocks[done];
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
    std::array<std::size_t, kChunk> positions;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const BlockMap::Slot* const slot = blocks_.find(chunk[i]);
      positions[i] = slot ? blocks_.position(slot) : 0;
      if (slot) {
        prefetch_tables(slot->value, tier);
      }
    }
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      BlockMap::Slot* const slot = blocks_.find_near(chunk[i], positions[i]);
      TierCopies copies = slot ? copies_of(slot) : TierCopies{};
      if (copies[at] == 0) {
        ++counts_.unknown_removals;
        continue;
      }
      ++removed;
      if (--copies[at] == 0) {
        lose(slot->value, tier);
      }
      if (copies == TierCopies{}) {
        forget_copies(slot);
        blocks_.erase(slot);
      } else {
        set_copies(slot, copies);  // fewer copies need no memory
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
      if (blocks_.slot(i).key != 0) {
        prefetch_tables(blocks_.slot(i).value, Tier::Device);
      }
    }
    for (std::size_t i = start; i < end; ++i) {
      if (blocks_.slot(i).key != 0) {
        lose_all(&blocks_.slot(i));
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
    const BlockMap::Slot& slot = blocks_.slot(i);
    if (slot.key != 0) {
      out.push_back({slot.key, slot.value, copies_of(&slot)});
    }
  }
}

std::ptrdiff_t TargetBlocks::take_change(Tier tier) {
  return tier == Tier::External ? 0 : std::exchange(changes_[static_cast<std::size_t>(tier)], 0);
}

}  // namespace fairlead::kv
