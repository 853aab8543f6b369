#include "kv/block_table.hpp"

#include <bit>
#include <new>

namespace fairlead::kv {
namespace {

constexpr unsigned kShardBits = 6;

std::size_t shard_of(std::uint64_t spread) { return spread >> (64U - kShardBits); }

constexpr std::size_t kSteps = 8;

// How far a search goes from one bucket to the next, `kSteps` times: differently for different
// blocks, so that full buckets do not become long rows, in which what comes last lies far from its
// own bucket; but near, for the sake of the TLB.
constexpr std::size_t step_of(std::uint64_t spread) { return 1 + (spread & 62U); }

// Where a search goes on after `seen` buckets and this one. It sees all in the end.
constexpr std::size_t next_bucket(std::size_t bucket, std::size_t step, std::size_t seen,
                                  std::size_t buckets) {
  bucket += seen < kSteps ? step : 1;
  return bucket < buckets ? bucket : bucket % buckets;
}

// The part of a spread hash that chooses the bucket: the shard's bits are used up.
constexpr std::size_t own_bucket(std::uint64_t spread, std::size_t buckets) {
  return bucket_of(spread << kShardBits, buckets);
}

// Which slots of a bucket have a key (or set), as bits. Without branches: where it lies is random.
template <class Words>
unsigned slots_with(const Words& words, std::uint64_t word) {
  unsigned slots = 0;
  for (unsigned i = 0; i < kBucketSlots; ++i) {
    slots |= static_cast<unsigned>(words[i].load(std::memory_order_acquire) == word) << i;
  }
  return slots;
}

}  // namespace

BlockTable::~BlockTable() {
  static_assert(kShards == std::size_t{1} << kShardBits);
  for (Shard& shard : shards_) {
    Table* const table = shard.table.load(std::memory_order_relaxed);
    if (!table) {
      continue;
    }
    for (std::size_t bucket = 0; bucket < table->buckets; ++bucket) {
      for (const auto& set : table->data()[bucket].sets) {
        const std::uint64_t word = set.load(std::memory_order_relaxed);
        if (set_word::is_large(word)) {
          memory_.budget.release(set_word::large(word), set_word::large(word)->bytes());
        }
      }
    }
    memory_.budget.release(table, Table::bytes(table->buckets));
  }
}

void BlockTable::fetch(const Place& place) {
  const auto* const data = static_cast<const Bucket*>(place.data);
  std::size_t bucket = place.bucket;
  for (std::size_t i = 0; i < kFetched; ++i) {
    __builtin_prefetch(data + bucket);
    bucket = next_bucket(bucket, place.step, place.seen + i, place.buckets);
  }
}

BlockTable::Place BlockTable::place(SequenceHash hash) const {
  const std::uint64_t key = slot_key(hash);
  const std::uint64_t spread = mix_hash(key);
  const Table* const table = shards_[shard_of(spread)].table.load(std::memory_order_seq_cst);
  if (!table) {
    return {};  // without buckets, a search ends at once
  }
  const Place place{.data = table->data(),
                    .buckets = table->buckets,
                    .bucket = own_bucket(spread, table->buckets),
                    .step = step_of(spread),
                    .seen = 0,
                    .key = key};
  fetch(place);
  return place;
}

bool BlockTable::look(Place& place, std::uint64_t& set) {
  const auto* const data = static_cast<const Bucket*>(place.data);
  set = 0;
  for (const std::size_t until = place.seen + kFetched; place.seen < until;) {
    if (place.buckets == 0 || place.seen >= place.buckets + kSteps) {
      return true;
    }
    const Bucket& bucket = data[place.bucket];
    // In this order: a block that takes a free slot meanwhile counts as after.
    const unsigned free = slots_with(bucket.keys, 0);
    if (const unsigned slots = slots_with(bucket.keys, place.key); slots != 0) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(slots));
      const std::uint64_t word = bucket.sets[slot].load(std::memory_order_seq_cst);
      if (bucket.keys[slot].load(std::memory_order_relaxed) == place.key) {
        set = word;
        return true;
      }
    }
    if (free != 0) {
      return true;
    }
    place.bucket = next_bucket(place.bucket, place.step, place.seen++, place.buckets);
  }
  fetch(place);
  return false;
}

void BlockTable::prefetch_further(Place& place) {
  const auto* const data = static_cast<const Bucket*>(place.data);
  const auto ends = [&] {
    // Slots are taken from the first on, so the last one tells most often and costs one load.
    const Bucket& bucket = data[place.bucket];
    return bucket.keys.back().load(std::memory_order_relaxed) == 0 ||
           slots_with(bucket.keys, place.key) != 0;
  };
  for (std::size_t i = 0; i < kFetched; ++i) {
    if (place.buckets == 0 || ends()) {
      return;
    }
    place.bucket = next_bucket(place.bucket, place.step, place.seen++, place.buckets);
  }
  fetch(place);
}

std::uint64_t BlockTable::find(Place place) {
  std::uint64_t set = 0;
  while (!look(place, set)) {
  }
  return set;
}

// Under the shard's lock, so nobody writes what is compared.
BlockTable::Spot BlockTable::search(Table& table, std::uint64_t key) {
  const std::uint64_t spread = mix_hash(key);
  std::size_t at = own_bucket(spread, table.buckets);
  Spot vacant{.bucket = nullptr, .slot = 0, .found = false};
  for (std::size_t seen = 0;; ++seen) {
    Bucket& bucket = table.data()[at];
    if (const unsigned slots = words_with(bucket.keys.data(), key); slots != 0) {
      return {&bucket, static_cast<unsigned>(std::countr_zero(slots)), true};
    }
    if (!vacant.bucket) {
      if (const unsigned slots = words_with(bucket.sets.data(), 0); slots != 0) {
        vacant = {&bucket, static_cast<unsigned>(std::countr_zero(slots)), false};
      }
    }
    if (words_with(bucket.keys.data(), 0) != 0) {
      return vacant;
    }
    at = next_bucket(at, step_of(spread), seen, table.buckets);
  }
}

bool BlockTable::rebuild(Shard& shard, std::size_t capacity) {
  Table* const old = shard.table.load(std::memory_order_relaxed);
  const std::size_t buckets = capacity / kBucketSlots;
  Table* table = nullptr;
  if (buckets > 0) {
    void* const bytes = memory_.budget.allocate(Table::bytes(buckets));
    if (!bytes) {
      return false;
    }
    table = new (bytes) Table{.buckets = buckets};
    for (std::size_t i = 0; i < buckets; ++i) {
      new (table->data() + i) Bucket{};
    }
  }
  for (std::size_t bucket = 0; old && bucket < old->buckets; ++bucket) {
    for (std::size_t slot = 0; slot < kBucketSlots; ++slot) {
      const std::uint64_t word = old->data()[bucket].sets[slot].load(std::memory_order_relaxed);
      if (word == 0) {
        continue;
      }
      const std::uint64_t key = old->data()[bucket].keys[slot].load(std::memory_order_relaxed);
      const std::uint64_t spread = mix_hash(key);
      std::size_t at = own_bucket(spread, buckets);
      unsigned free = 0;
      for (std::size_t seen = 0; (free = words_with(table->data()[at].keys.data(), 0)) == 0;
           ++seen) {
        at = next_bucket(at, step_of(spread), seen, buckets);
      }
      const auto to = static_cast<std::size_t>(std::countr_zero(free));
      table->data()[at].keys[to].store(key, std::memory_order_relaxed);
      table->data()[at].sets[to].store(word, std::memory_order_relaxed);
    }
  }
  shard.dead = 0;
  shard.table.store(table, std::memory_order_seq_cst);
  if (old) {
    memory_.epochs.retire(old, Table::bytes(old->buckets));
  }
  return true;
}

bool BlockTable::make_room(Shard& shard) {
  const Table* const table = shard.table.load(std::memory_order_relaxed);
  const std::size_t capacity = table ? table->capacity() : 0;
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
  Table* table = shard.table.load(std::memory_order_relaxed);
  Spot spot = table ? search(*table, key) : Spot{};
  if (spot.found) {
    std::atomic<std::uint64_t>& set = spot.bucket->sets[spot.slot];
    const bool dead = set.load(std::memory_order_relaxed) == 0;
    const set_word::Added added = set_word::add(set, target, memory_);
    if (dead && added == set_word::Added::New) {
      --shard.dead;
      ++shard.live;
    }
    return added;
  }
  const bool free = !table || spot.bucket->keys[spot.slot].load(std::memory_order_relaxed) == 0;
  if (free && (!table || shard.live + shard.dead + 1 > slots_usable(table->capacity()))) {
    if (!make_room(shard)) {
      return set_word::Added::NoMemory;
    }
    table = shard.table.load(std::memory_order_relaxed);
    spot = search(*table, key);
  }
  std::atomic<std::uint64_t>& taken = spot.bucket->keys[spot.slot];
  shard.dead -= taken.load(std::memory_order_relaxed) != 0 ? 1U : 0U;
  taken.store(key, std::memory_order_release);
  ++shard.live;
  return set_word::add(spot.bucket->sets[spot.slot], target, memory_);  // one id: needs no memory
}

void BlockTable::bury(Shard& shard, const Spot& spot) {
  --shard.live;
  ++shard.dead;
  if (words_with(spot.bucket->keys.data(), 0) != 0) {
    spot.bucket->keys[spot.slot].store(0, std::memory_order_release);
    --shard.dead;
  }
}

bool BlockTable::remove(SequenceHash hash, TargetId target) {
  const std::uint64_t key = slot_key(hash);
  Shard& shard = shards_[shard_of(mix_hash(key))];
  const std::lock_guard lock(shard.mutex);
  Table* const table = shard.table.load(std::memory_order_relaxed);
  const Spot spot = table ? search(*table, key) : Spot{};
  if (!spot.found || !set_word::remove(spot.bucket->sets[spot.slot], target, memory_)) {
    return false;
  }
  if (spot.bucket->sets[spot.slot].load(std::memory_order_relaxed) == 0) {
    bury(shard, spot);
  }
  return true;
}

void BlockTable::compact() {
  for (Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    const Table* const table = shard.table.load(std::memory_order_relaxed);
    const std::size_t capacity = slots_for(shard.live);
    if (table && capacity < table->capacity()) {
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
