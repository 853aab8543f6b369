#include "kv/index.hpp"

#include <algorithm>
#include <functional>

#include "kv/prefix_walk.hpp"

namespace fairlead::kv {

struct KvIndex::Target {
  Target(TargetId id, SharedTables shared) : blocks(id, shared) {}

  mutable std::mutex mutex;
  bool active = false;
  TargetBlocks blocks;
  std::atomic<std::size_t> size{0};
};

KvIndex::KvIndex(IndexOptions options)
    : options_(options),
      budget_(options.max_bytes),
      epochs_(budget_),
      memory_{.budget = budget_, .epochs = epochs_},
      tables_{BlockTable(memory_), BlockTable(memory_), BlockTable(memory_)},
      mask_(std::min(options.max_targets, kMaxTargets)) {
  options_.max_targets = std::min(options.max_targets, kMaxTargets);
  targets_ = std::make_unique<std::atomic<Target*>[]>(options_.max_targets);
}

KvIndex::~KvIndex() {
  for (std::size_t id = 0; id < known_ids_; ++id) {
    delete targets_[id].load(std::memory_order_relaxed);
  }
}

KvIndex::Target* KvIndex::target(TargetId id) const {
  return id < options_.max_targets ? targets_[id].load(std::memory_order_acquire) : nullptr;
}

Result<TargetId> KvIndex::add_target() {
  const std::lock_guard lock(ids_mutex_);
  std::erase_if(leaving_ids_, [this](const auto& leaving) {
    if (!epochs_.passed(leaving.second)) {
      return false;
    }
    free_ids_.push_back(leaving.first);
    std::ranges::push_heap(free_ids_, std::greater{});
    return true;
  });
  TargetId id = 0;
  if (!free_ids_.empty()) {
    std::ranges::pop_heap(free_ids_, std::greater{});
    id = free_ids_.back();
    free_ids_.pop_back();
  } else if (known_ids_ < options_.max_targets && budget_.take(sizeof(Target))) {
    id = static_cast<TargetId>(known_ids_++);
    const SharedTables shared{
        .tables = {&tables_[0], &tables_[1], &tables_[2]}, .budget = budget_, .epochs = epochs_};
    targets_[id].store(new Target(id, shared), std::memory_order_release);
  } else {
    return fail(ErrorCode::Overloaded, "the KV index has no room for another target");
  }
  Target& added = *target(id);
  const std::lock_guard target_lock(added.mutex);
  added.active = true;
  mask_.set(id, true);
  ++target_count_;
  return id;
}

void KvIndex::remove_target(TargetId id) {
  Target* const leaving = target(id);
  if (!leaving) {
    return;
  }
  {
    // The order of locks is that of `add_target`.
    const std::lock_guard lock(ids_mutex_);
    const std::lock_guard target_lock(leaving->mutex);
    if (!leaving->active) {
      return;
    }
    leaving->active = false;
    mask_.set(id, false);
    --target_count_;
  }
  {
    const std::lock_guard target_lock(leaving->mutex);
    leaving->blocks.clear();
    note_changes(*leaving);
  }
  for (BlockTable& table : tables_) {
    table.compact();
  }
  const std::lock_guard lock(ids_mutex_);
  leaving_ids_.emplace_back(id, epochs_.now());
}

void KvIndex::note_changes(Target& of) {
  of.size.store(of.blocks.size(), std::memory_order_relaxed);
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    if (const std::ptrdiff_t change = of.blocks.take_change(tier); change != 0) {
      held_[static_cast<std::size_t>(tier)].fetch_add(change, std::memory_order_release);
    }
  }
}

StoreOutcome KvIndex::store(TargetId id, Tier tier, std::optional<EngineHash> parent,
                            std::span<const StoredBlock> blocks) {
  Target* const to = target(id);
  if (!to) {
    return StoreOutcome::UnknownTarget;
  }
  const std::lock_guard lock(to->mutex);
  if (!to->active) {
    return StoreOutcome::UnknownTarget;
  }
  const std::optional<std::size_t> stored = to->blocks.store(tier, parent, blocks);
  note_changes(*to);
  if (!stored) {
    return StoreOutcome::UnknownParent;
  }
  return *stored == blocks.size() ? StoreOutcome::Stored : StoreOutcome::Full;
}

StoreOutcome KvIndex::restore(TargetId id, std::span<const HeldBlock> blocks) {
  Target* const to = target(id);
  if (!to) {
    return StoreOutcome::UnknownTarget;
  }
  const std::lock_guard lock(to->mutex);
  if (!to->active) {
    return StoreOutcome::UnknownTarget;
  }
  const std::size_t stored = to->blocks.restore(blocks);
  note_changes(*to);
  return stored == blocks.size() ? StoreOutcome::Stored : StoreOutcome::Full;
}

std::size_t KvIndex::remove(TargetId id, Tier tier, std::span<const EngineHash> blocks) {
  Target* const from = target(id);
  if (!from) {
    return 0;
  }
  const std::lock_guard lock(from->mutex);
  const std::size_t removed = from->blocks.remove(tier, blocks);
  note_changes(*from);
  return removed;
}

void KvIndex::clear(TargetId id) {
  if (Target* const cleared = target(id)) {
    const std::lock_guard lock(cleared->mutex);
    cleared->blocks.clear();
    note_changes(*cleared);
  }
}

void KvIndex::find(std::span<const SequenceHash> prompt, std::vector<Overlap>& out) const {
  thread_local std::vector<Overlap> depths;
  thread_local std::vector<Overlap> by_target;
  std::array<const BlockTable*, kIndexedTiers> tables{&tables_[0]};
  std::size_t tiers = 1;
  for (const std::size_t tier : {std::size_t{1}, std::size_t{2}}) {
    if (held_[tier].load(std::memory_order_acquire) > 0) {
      tables[tiers++] = &tables_[tier];
    }
  }
  const Epochs::Guard guard = epochs_.enter();
  if (tiers == 1) {
    walk_prefix(std::span(tables).first(1), prompt, mask_, out);
    return;
  }
  // Each walk adds a tier to those before it; a target's depths can only grow.
  out.clear();
  by_target.assign(mask_.words() * 64, Overlap{});
  for (std::size_t walk = 1; walk <= tiers; ++walk) {
    walk_prefix(std::span(tables).first(walk), prompt, mask_, depths);
    for (const Overlap& found : depths) {
      if (found.target >= by_target.size()) {
        continue;  // added meanwhile
      }
      Overlap& overlap = by_target[found.target];
      const std::uint32_t before = overlap.device + overlap.host + overlap.disk;
      const std::uint32_t more = found.device > before ? found.device - before : 0;
      if (walk == 1) {
        overlap.device = more;
      } else if (tables[walk - 1] == &tables_[1]) {
        overlap.host = more;
      } else {
        overlap.disk = more;
      }
      if (walk == tiers) {
        overlap.target = found.target;
        out.push_back(overlap);
      }
    }
  }
}

void KvIndex::snapshot(TargetId id, std::vector<HeldBlock>& out) const {
  if (const Target* const of = target(id)) {
    const std::lock_guard lock(of->mutex);
    of->blocks.snapshot(out);
  }
}

std::size_t KvIndex::blocks(TargetId id) const {
  const Target* const of = target(id);
  return of ? of->size.load(std::memory_order_relaxed) : 0;
}

IndexStats KvIndex::stats() const {
  IndexStats stats;
  stats.bytes = budget_.used();
  stats.max_bytes = budget_.limit();
  stats.retired_bytes = epochs_.pending_bytes();
  stats.distinct_blocks = tables_[0].blocks();
  std::size_t known = 0;
  {
    const std::lock_guard lock(ids_mutex_);
    stats.targets = target_count_;
    known = known_ids_;
  }
  for (std::size_t id = 0; id < known; ++id) {
    const Target& of = *targets_[id].load(std::memory_order_acquire);
    const std::lock_guard lock(of.mutex);
    const IndexCounts& counts = of.blocks.counts();
    stats.held_blocks += of.blocks.size();
    stats.counts.stored += counts.stored;
    stats.counts.copies += counts.copies;
    stats.counts.removed += counts.removed;
    stats.counts.unknown_removals += counts.unknown_removals;
    stats.counts.unknown_parents += counts.unknown_parents;
    stats.counts.orphans += counts.orphans;
    stats.counts.renamed += counts.renamed;
    stats.counts.full += counts.full;
    stats.counts.refused += counts.refused;
    stats.counts.clears += counts.clears;
  }
  return stats;
}

}  // namespace fairlead::kv
