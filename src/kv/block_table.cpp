#include "kv/block_table.hpp"

#include <cstdlib>
#include <new>

namespace fairlead::kv {
namespace {

// The part of a spread hash that chooses the slot: the shard's bits are used up.
constexpr std::uint64_t slot_bits(std::uint64_t spread, unsigned shard_bits) {
  return spread << shard_bits;
}

}  // namespace

BlockTable::~BlockTable() {
  for (Shard& shard : shards_) {
    Table* const table = shard.table.load(std::memory_order_relaxed);
    if (!table) {
      continue;
    }
    for (std::size_t i = 0; i < table->capacity; ++i) {
      const std::uint64_t word = table->slots()[i].set.load(std::memory_order_relaxed);
      if (set_word::is_large(word)) {
        std::free(set_word::large(word));
      }
    }
    std::free(table);
  }
}

BlockTable::Place BlockTable::place(SequenceHash hash) const {
  const std::uint64_t key = slot_key(hash);
  const std::uint64_t spread = mix_hash(key);
  const Table* const table = shards_[shard_of(spread)].table.load(std::memory_order_seq_cst);
  if (!table) {
    return {nullptr, 0, 0, key};
  }
  const std::size_t first = slot_of(slot_bits(spread, kShardBits), table->capacity);
  // Searches at full tables mostly go on into the next line.
  __builtin_prefetch(table->slots() + first);
  __builtin_prefetch(table->slots() + first + 4);
  return {table->slots(), table->capacity, first, key};
}

std::uint64_t BlockTable::find(const Place& place) const {
  const auto* const slots = static_cast<const Slot*>(place.slots);
  std::size_t i = place.first;
  for (std::size_t seen = 0; seen < place.capacity; ++seen) {
    const std::uint64_t key = slots[i].key.load(std::memory_order_acquire);
    if (key == 0) {
      return 0;
    }
    if (key == place.key) {
      const std::uint64_t word = slots[i].set.load(std::memory_order_seq_cst);
      if (slots[i].key.load(std::memory_order_relaxed) == key) {
        return word;
      }
    }
    i = i + 1 == place.capacity ? 0 : i + 1;
  }
  return 0;
}

BlockTable::Slot* BlockTable::search(const Shard& shard, std::uint64_t key, Slot** vacant) {
  Table* const table = shard.table.load(std::memory_order_relaxed);
  *vacant = nullptr;
  if (!table) {
    return nullptr;
  }
  Slot* const slots = table->slots();
  std::size_t i = slot_of(slot_bits(mix_hash(key), kShardBits), table->capacity);
  while (true) {
    const std::uint64_t found = slots[i].key.load(std::memory_order_relaxed);
    if (found == key) {
      return slots + i;
    }
    if (found == 0) {
      *vacant = *vacant ? *vacant : slots + i;
      return nullptr;
    }
    if (!*vacant && slots[i].set.load(std::memory_order_relaxed) == 0) {
      *vacant = slots + i;
    }
    i = i + 1 == table->capacity ? 0 : i + 1;
  }
}

bool BlockTable::rebuild(Shard& shard, std::size_t capacity) {
  Table* const old = shard.table.load(std::memory_order_relaxed);
  Table* table = nullptr;
  if (capacity > 0) {
    void* const bytes = memory_.budget.allocate(Table::bytes(capacity));
    if (!bytes) {
      return false;
    }
    table = new (bytes) Table{.capacity = capacity};
    for (std::size_t i = 0; i < capacity; ++i) {
      new (table->slots() + i) Slot{.key = 0, .set = 0};
    }
  }
  for (std::size_t i = 0; old && i < old->capacity; ++i) {
    const std::uint64_t word = old->slots()[i].set.load(std::memory_order_relaxed);
    if (word == 0) {
      continue;
    }
    const std::uint64_t key = old->slots()[i].key.load(std::memory_order_relaxed);
    std::size_t to = slot_of(slot_bits(mix_hash(key), kShardBits), capacity);
    while (table->slots()[to].key.load(std::memory_order_relaxed) != 0) {
      to = to + 1 == capacity ? 0 : to + 1;
    }
    table->slots()[to].key.store(key, std::memory_order_relaxed);
    table->slots()[to].set.store(word, std::memory_order_relaxed);
  }
  shard.dead = 0;
  shard.table.store(table, std::memory_order_seq_cst);
  if (old) {
    memory_.epochs.retire(old, Table::bytes(old->capacity));
  }
  return true;
}

bool BlockTable::make_room(Shard& shard) {
  const Table* const table = shard.table.load(std::memory_order_relaxed);
  const std::size_t capacity = table ? table->capacity : 0;
  // With many dead slots the same size will do for a while.
  const bool stuffed = shard.live + 1 + capacity / 16 > slots_usable(capacity);
  if (rebuild(shard, stuffed ? slots_above(capacity) : capacity)) {
    return true;
  }
  memory_.epochs.collect();
  if (rebuild(shard, stuffed ? slots_above(capacity) : capacity)) {
    return true;
  }
  return capacity > 0 && shard.live + shard.dead + 2 <= capacity - capacity / 16;
}

set_word::Added BlockTable::add(SequenceHash hash, TargetId target) {
  const std::uint64_t key = slot_key(hash);
  Shard& shard = shards_[shard_of(mix_hash(key))];
  const std::lock_guard lock(shard.mutex);
  Slot* vacant = nullptr;
  Slot* slot = search(shard, key, &vacant);
  if (!slot) {
    const bool uses_free_slot = !vacant || vacant->key.load(std::memory_order_relaxed) == 0;
    const Table* const table = shard.table.load(std::memory_order_relaxed);
    if (uses_free_slot && (!table || shard.live + shard.dead + 1 > slots_usable(table->capacity))) {
      if (!make_room(shard)) {
        return set_word::Added::NoMemory;
      }
      search(shard, key, &vacant);
    }
    slot = vacant;
    shard.dead -= slot->key.load(std::memory_order_relaxed) != 0 ? 1U : 0U;
    slot->key.store(key, std::memory_order_release);
    ++shard.live;
    return set_word::add(slot->set, target, memory_);  // one id: needs no memory
  }
  const bool dead = slot->set.load(std::memory_order_relaxed) == 0;
  const set_word::Added added = set_word::add(slot->set, target, memory_);
  if (dead && added == set_word::Added::New) {
    --shard.dead;
    ++shard.live;
  }
  return added;
}

void BlockTable::bury(Shard& shard, Slot* slot) {
  --shard.live;
  ++shard.dead;
  Table* const table = shard.table.load(std::memory_order_relaxed);
  Slot* const slots = table->slots();
  std::size_t i = static_cast<std::size_t>(slot - slots);
  const std::size_t next = i + 1 == table->capacity ? 0 : i + 1;
  if (slots[next].key.load(std::memory_order_relaxed) != 0) {
    return;
  }
  while (slots[i].set.load(std::memory_order_relaxed) == 0 &&
         slots[i].key.load(std::memory_order_relaxed) != 0) {
    slots[i].key.store(0, std::memory_order_release);
    --shard.dead;
    i = i == 0 ? table->capacity - 1 : i - 1;
  }
}

bool BlockTable::remove(SequenceHash hash, TargetId target) {
  const std::uint64_t key = slot_key(hash);
  Shard& shard = shards_[shard_of(mix_hash(key))];
  const std::lock_guard lock(shard.mutex);
  Slot* vacant = nullptr;
  Slot* const slot = search(shard, key, &vacant);
  if (!slot || !set_word::remove(slot->set, target, memory_)) {
    return false;
  }
  if (slot->set.load(std::memory_order_relaxed) == 0) {
    bury(shard, slot);
  }
  return true;
}

void BlockTable::compact() {
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    const Table* const table = shard.table.load(std::memory_order_relaxed);
    const std::size_t capacity = slots_for(shard.live);
    if (table && capacity < table->capacity) {
      rebuild(shard, capacity);  // without memory for it, the table stays as it is
    }
  }
  memory_.epochs.collect();
}

std::size_t BlockTable::blocks() const {
  std::size_t blocks = 0;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    blocks += shard.live;
  }
  return blocks;
}

}  // namespace fairlead::kv
