#include "tokenizer/piece_cache.hpp"

#include <xxhash.h>

#include <iterator>
#include <random>

namespace fairlead::tokenizer {

namespace {

// The lists' and the table's nodes, and what the allocator adds to the texts and ids.
constexpr std::size_t kOverhead = 192;

std::uint64_t random_secret() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

PieceCache::PieceCache(std::size_t limit) : secret_(random_secret()), limit_(limit) {}

PieceCache& PieceCache::of_process() {
  static PieceCache cache;
  return cache;
}

std::uint32_t PieceCache::new_tokenizer() {
  static std::atomic<std::uint32_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::size_t PieceCache::Entry::bytes() const {
  return sizeof(Entry) + kOverhead + text.size() + ids.size() * sizeof(TokenId);
}

void PieceCache::set_limit(std::size_t bytes) {
  limit_.store(bytes, std::memory_order_relaxed);
  shrink(0, 0);
}

PieceCache::Key PieceCache::key(std::uint32_t tokenizer, bool at_start,
                                std::string_view text) const {
  const std::uint64_t seed = secret_ ^ (std::uint64_t{tokenizer} << 1 | (at_start ? 1 : 0));
  return {tokenizer, at_start, text, XXH3_64bits_withSeed(text.data(), text.size(), seed)};
}

bool PieceCache::find(const Key& key, std::vector<TokenId>& out) {
  Shard& shard = shard_of(key.hash);
  EntryPtr entry;
  {
    const std::lock_guard lock(shard.mutex);
    const auto found = shard.by_hash.find(key.hash);
    if (found == shard.by_hash.end()) {
      ++shard.misses;
      return false;
    }
    shard.entries.splice(shard.entries.begin(), shard.entries, found->second);
    entry = *found->second;
    ++shard.hits;
  }
  if (entry->tokenizer != key.tokenizer || entry->at_start != key.at_start ||
      entry->text != key.text) {
    return false;
  }
  out.insert(out.end(), entry->ids.begin(), entry->ids.end());
  return true;
}

void PieceCache::keep(const Key& key, std::span<const TokenId> ids) {
  const std::size_t most = limit_.load(std::memory_order_relaxed) / 4;
  if (key.text.size() + ids.size_bytes() + sizeof(Entry) + kOverhead > most) {
    return;
  }
  Entries added;
  added.push_back(std::make_shared<const Entry>(Entry{
      key.hash, key.tokenizer, key.at_start, std::string(key.text), {ids.begin(), ids.end()}}));
  Entries removed;
  Shard& shard = shard_of(key.hash);
  {
    const std::lock_guard lock(shard.mutex);
    if (const auto found = shard.by_hash.find(key.hash); found != shard.by_hash.end()) {
      remove(shard, found->second, removed);
    }
    bytes_.fetch_add(added.front()->bytes(), std::memory_order_relaxed);
    shard.by_hash.emplace(key.hash, added.begin());
    shard.entries.splice(shard.entries.begin(), added);
  }
  shrink(key.hash % kShards, 1);
}

void PieceCache::remove(Shard& shard, Entries::iterator entry, Entries& removed) {
  bytes_.fetch_sub((*entry)->bytes(), std::memory_order_relaxed);
  shard.by_hash.erase((*entry)->hash);
  removed.splice(removed.begin(), shard.entries, entry);
}

// Texts spread evenly over the parts, so the one that has just grown is as good as any to begin
// with. Its newest `spared` entries stay.
void PieceCache::shrink(std::size_t first_shard, std::size_t spared) {
  const std::size_t limit = limit_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kShards && bytes_.load(std::memory_order_relaxed) > limit; ++i) {
    Entries removed;  // freed behind the lock
    Shard& shard = shards_[(first_shard + i) % kShards];
    const std::lock_guard lock(shard.mutex);
    while (shard.entries.size() > spared && bytes_.load(std::memory_order_relaxed) > limit) {
      remove(shard, std::prev(shard.entries.end()), removed);
    }
    spared = 0;
  }
}

PieceCache::Stats PieceCache::stats() const {
  Stats stats;
  for (const Shard& shard : shards_) {
    const std::lock_guard lock(shard.mutex);
    stats.hits += shard.hits;
    stats.misses += shard.misses;
  }
  stats.bytes = bytes_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace fairlead::tokenizer
