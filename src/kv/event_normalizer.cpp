#include "kv/event_normalizer.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/log.hpp"

namespace fairlead::kv {
namespace {

/// Frontends may mark a salt with this before they hand it to the engine.
constexpr std::string_view kSaltTag = "dynamo-cache-salt:";
constexpr int kMaxWarnings = 3;
/// Removed blocks handed over at once, apart from the last event's.
constexpr std::size_t kMostGathered = 1024;

std::string_view without_tag(std::string_view salt) {
  return salt.starts_with(kSaltTag) ? salt.substr(kSaltTag.size()) : salt;
}

bool names_salt(const ExtraKey& key) {
  return key.kind == ExtraKeyKind::Salt ||
         (key.kind == ExtraKeyKind::Text && key.text.starts_with(kSaltTag));
}

/// Whether a kind of cache holds every token of a prefix; nothing for an unknown kind.
std::optional<bool> is_main_kind(std::string_view kind) {
  for (const std::string_view main : {"full_attention", "mla_attention", "sink_full_attention"}) {
    if (kind == main) {
      return true;
    }
  }
  for (const std::string_view other :
       {"sliding_window", "sliding_window_mla", "mamba", "chunked_local_attention",
        "encoder_only_attention", "cross_attention"}) {
    if (kind == other) {
      return false;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view drop_reason_name(DropReason reason) {
  static constexpr std::array<std::string_view, kDropReasonCount> kNames{
      "ignored_event",
      "ambiguous_cache_namespace",
      "non_main_attention_kind",
      "unknown_kind",
      "non_main_attention_group",
      "unlearned_group_idx",
      "not_local",
      "unknown_medium",
      "block_size_mismatch",
      "missing_tokens",
      "surplus_tokens",
      "self_reference",
      "namespace_memory_full",
  };
  return kNames[static_cast<std::size_t>(reason)];
}

EventNormalizer::EventNormalizer(NormalizerOptions options)
    : options_(std::move(options)), salted_(options_.max_salted_blocks) {}

void EventNormalizer::add(Counter& counter, std::uint64_t count) {
  // One thread writes, so no read-modify-write is needed.
  counter.store(counter.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
}

void EventNormalizer::drop(DropReason reason, std::uint64_t count) {
  add(drops_[static_cast<std::size_t>(reason)], count);
}

std::uint64_t EventNormalizer::dropped(DropReason reason) const {
  return drops_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
}

std::optional<bool> EventNormalizer::bigram() const {
  const int known = bigram_.load(std::memory_order_relaxed);
  return known < 0 ? std::nullopt : std::optional(known == 1);
}

void EventNormalizer::reset() {
  salted_.clear();
  groups_.clear();
  bigram_.store(-1, std::memory_order_relaxed);
}

NormalizerMemory EventNormalizer::memory() const {
  return {.bigram = bigram(),
          .groups = {groups_.begin(), groups_.end()},
          .salted = {salted_.entries().begin(), salted_.entries().end()}};
}

void EventNormalizer::restore(const NormalizerMemory& memory) {
  reset();
  if (memory.bigram) {
    bigram_.store(*memory.bigram ? 1 : 0, std::memory_order_relaxed);
  }
  for (const auto& [group, counts] : memory.groups) {
    if (groups_.size() < kMaxGroups) {
      groups_.emplace(group, counts);
    }
  }
  for (const auto& [block, entry] : memory.salted) {
    salted_.restore(block, entry);
  }
}

void EventNormalizer::apply(const EventBatch& batch, EventSink& sink) {
  if (batch.rank && *batch.rank != options_.rank) {
    // Engines that share a rank number exist; the socket says whose events these are.
    add(rank_mismatches_, 1);
  }
  if (batch.ignored > 0) {
    drop(DropReason::IgnoredEvent, batch.ignored);
  }
  for (const Event& event : batch.events) {
    switch (event.kind) {
      case EventKind::Stored: stored(batch, event, sink); break;
      case EventKind::Removed: removed(batch, event, sink); break;
      case EventKind::Cleared:
        salted_.clear();
        flush_removed(sink);
        sink.cleared();
        break;
    }
  }
  flush_removed(sink);
}

void EventNormalizer::stored(const EventBatch& batch, const Event& event, EventSink& sink) {
  if (!counts(event)) {
    return;
  }
  const std::optional<Tier> tier = tier_of(event);
  if (!tier || !fits(batch, event)) {
    return;
  }
  collect_keys(batch, event);
  const std::optional<std::uint64_t> salt = namespace_of(event);
  if (!salt) {
    drop(DropReason::AmbiguousCacheNamespace);
    return;
  }
  const HashParams params{.block_size = event.block_size, .bigram = event.bigram};
  const std::size_t blocks =
      std::min(event.hashes.count, complete_blocks(event.tokens.count, params));
  if (blocks < event.hashes.count) {
    drop(DropReason::MissingTokens, event.hashes.count - blocks);
    warn_block_size(event);
  }
  convert(batch, event, hash_seed(event.lora_name, {}) + *salt, blocks);
  remember(*salt);
  if (blocks_.empty()) {
    return;
  }
  bigram_.store(event.bigram ? 1 : 0, std::memory_order_relaxed);
  add(blocks_stored_, blocks_.size());
  flush_removed(sink);
  sink.stored(*tier, event.parent, blocks_);
}

void EventNormalizer::removed(const EventBatch& batch, const Event& event, EventSink& sink) {
  if (!counts(event)) {
    return;
  }
  const std::optional<Tier> tier = tier_of(event);
  const std::span<const EngineHash> hashes = batch.hashes_of(event);
  if (!tier || hashes.empty()) {
    return;
  }
  if (!salted_.empty()) {
    for (const EngineHash hash : hashes) {
      salted_.remove(hash);
    }
  }
  add(blocks_removed_, hashes.size());
  if (*tier != removed_tier_ || removed_.size() >= kMostGathered) {
    flush_removed(sink);
    removed_tier_ = *tier;
  }
  removed_.insert(removed_.end(), hashes.begin(), hashes.end());
}

void EventNormalizer::flush_removed(EventSink& sink) {
  if (!removed_.empty()) {
    sink.removed(removed_tier_, removed_);
    removed_.clear();
  }
}

std::optional<Tier> EventNormalizer::tier_of(const Event& event) {
  const std::optional<Tier> tier = parse_medium(event.medium);
  if (!tier) {
    drop(DropReason::UnknownMedium);
  }
  return tier;
}

/// Whether the event is about blocks that serve prefixes here.
bool EventNormalizer::counts(const Event& event) {
  if (!main_attention(event)) {
    return false;
  }
  if (!event.locality.empty() && event.locality != "LOCAL") {
    drop(DropReason::NotLocal);
    return false;
  }
  return true;
}

bool EventNormalizer::main_attention(const Event& event) {
  if (!event.spec_kind.empty()) {
    const std::optional<bool> main = is_main_kind(event.spec_kind);
    if (event.group && (groups_.size() < kMaxGroups || groups_.contains(*event.group))) {
      groups_[*event.group] = main.value_or(false);
    }
    if (!main.value_or(false)) {
      drop(main ? DropReason::NonMainAttentionKind : DropReason::UnknownKind);
    }
    return main.value_or(false);
  }
  if (!event.group) {
    return true;
  }
  const auto known = groups_.find(*event.group);
  const bool passes = known == groups_.end() ? *event.group == 0 : known->second;
  if (!passes) {
    drop(known == groups_.end() ? DropReason::UnlearnedGroup : DropReason::NonMainAttentionGroup);
  }
  return passes;
}

/// Whether the event's blocks can be told apart and compared with prompts.
bool EventNormalizer::fits(const EventBatch& batch, const Event& event) {
  if (options_.block_size == 0) {
    drop(DropReason::BlockSizeMismatch);
    if (learned_block_size() == 0) {
      learned_block_size_.store(event.block_size, std::memory_order_relaxed);
    }
    return false;
  }
  if (event.block_size != options_.block_size || event.block_size == 0) {
    drop(DropReason::BlockSizeMismatch);
    warn_block_size(event);
    return false;
  }
  const std::size_t tokens = event.tokens.count - (event.bigram ? 1 : 0);
  if (tokens > event.hashes.count * event.block_size) {
    drop(DropReason::SurplusTokens);
    return false;
  }
  if (refers_to_itself(batch.hashes_of(event), event.parent)) {
    drop(DropReason::SelfReference);
    return false;
  }
  return true;
}

bool EventNormalizer::refers_to_itself(std::span<const EngineHash> hashes,
                                       std::optional<EngineHash> parent) {
  if (parent && std::ranges::find(hashes, *parent) != hashes.end()) {
    return true;
  }
  if (hashes.size() < 2) {
    return false;
  }
  // Open addressing over positions + 1, at most half full.
  places_.assign(std::bit_ceil(hashes.size() * 2), 0);
  const std::size_t mask = places_.size() - 1;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    std::size_t place = extend_hash(0, hashes[i]) & mask;
    for (; places_[place] != 0; place = (place + 1) & mask) {
      if (hashes[places_[place] - 1] == hashes[i]) {
        return true;
      }
    }
    places_[place] = static_cast<std::uint32_t>(i + 1);
  }
  return false;
}

/// `salt_seed` of the event's blocks, 0 for none; nothing when it cannot be told.
std::optional<std::uint64_t> EventNormalizer::namespace_of(const Event& event) {
  if (!event.cache_salt.empty()) {
    return salt_seed(without_tag(event.cache_salt));
  }
  // Keys that turn out to be salts leave the list, so that they do not count as objects.
  std::string_view salt;
  const ExtraKey* bare = nullptr;
  for (const ExtraKey& key : keys_) {
    if (key.block > 0) {
      break;
    }
    if (names_salt(key)) {
      salt = without_tag(key.text);
    } else if (key.kind == ExtraKeyKind::Text && !digest_hash(key.text)) {
      bare = &key;
    }
  }
  if (salt.empty() && bare && !event.parent) {
    salt = bare->text;
    keys_.erase(keys_.begin() + (bare - keys_.data()));
  }
  std::erase_if(keys_, names_salt);
  if (!salt.empty()) {
    return salt_seed(salt);
  }
  const NamespaceMemory::Entry* parent =
      event.parent && !salted_.empty() ? salted_.find(*event.parent) : nullptr;
  if (parent && parent->ambiguous) {
    return std::nullopt;
  }
  return parent ? parent->salt : 0;
}

/// The event's keys in the order of their blocks, without the adapter's name.
void EventNormalizer::collect_keys(const EventBatch& batch, const Event& event) {
  const std::span<const ExtraKey> keys = batch.extra_keys_of(event);
  keys_.clear();
  if (keys.empty()) {
    return;
  }
  std::optional<std::uint32_t> named;
  for (const ExtraKey& key : keys) {
    const bool name = key.kind == ExtraKeyKind::Text && !event.lora_name.empty() &&
                      key.text == event.lora_name && named != key.block;
    if (name) {
      named = key.block;
    } else {
      keys_.push_back(key);
    }
  }
  // Within a block as the engine listed them, which is how they stand in the payload.
  std::ranges::sort(keys_, std::less<>(),
                    [](const ExtraKey& key) { return std::pair(key.block, key.text.data()); });
}

void EventNormalizer::convert(const EventBatch& batch, const Event& event, std::uint64_t seed,
                              std::size_t blocks) {
  const std::span<const EngineHash> hashes = batch.hashes_of(event);
  const std::uint32_t* at = batch.tokens_of(event).data();
  const std::size_t length = event.block_size + (event.bigram ? 1U : 0U);
  auto key = keys_.begin();
  blocks_.resize(blocks);
  for (std::size_t i = 0; i < blocks; ++i, at += event.block_size) {
    const std::span window(at, length);
    const auto first = key;
    while (key != keys_.end() && key->block == i) {
      ++key;
    }
    blocks_[i].engine = hashes[i];
    blocks_[i].local = first == key ? local_hash(window, seed)
                                    : hash_with_objects(window, seed, std::span(first, key));
  }
}

LocalHash EventNormalizer::hash_with_objects(std::span<const std::uint32_t> window,
                                             std::uint64_t seed, std::span<const ExtraKey> keys) {
  objects_.clear();
  bool placeholders = options_.image_token.has_value();
  for (const ExtraKey& key : keys) {
    objects_.push_back(key.kind == ExtraKeyKind::ObjectHash ? key.hash : mm_hash(key.text));
    placeholders &= key.kind != ExtraKeyKind::Opaque;
  }
  if (!placeholders) {
    return local_hash(window, seed, objects_);
  }
  window_.assign(window.begin(), window.end());
  pad_image_runs(window_, *options_.image_token, objects_);
  return local_hash(window_, seed);
}

/// Remembers the salts of the blocks to be handed on; without room for one the chain ends there.
void EventNormalizer::remember(std::uint64_t salt) {
  if (salt == 0 && salted_.empty()) {
    return;
  }
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (!salted_.store(blocks_[i].engine, salt)) {
      drop(DropReason::NamespaceMemoryFull, blocks_.size() - i);
      blocks_.resize(i);
    }
  }
}

void EventNormalizer::warn_block_size(const Event& event) {
  if (warnings_ < kMaxWarnings) {
    ++warnings_;
    log::warn(
        "KV events of {}: {} blocks of {} tokens do not fit {} tokens in blocks of {}; they "
        "are left out of routing",
        options_.label, event.hashes.count, event.block_size, event.tokens.count,
        options_.block_size);
  }
}

}  // namespace fairlead::kv
