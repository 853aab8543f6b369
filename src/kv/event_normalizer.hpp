#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/event_batch.hpp"
#include "kv/hashes.hpp"
#include "kv/namespace_memory.hpp"
#include "kv/tier.hpp"

namespace fairlead::kv {

/// Takes what an engine's events mean for the view of its cache. Spans last for the call.
class EventSink {
 public:
  virtual ~EventSink() = default;
  /// Blocks in the order of their chain, the first one behind `parent` or at a chain's start.
  virtual void stored(Tier tier, std::optional<EngineHash> parent,
                      std::span<const StoredBlock> blocks) = 0;
  /// One copy of each block is gone.
  virtual void removed(Tier tier, std::span<const EngineHash> blocks) = 0;
  /// Everything is gone, in all tiers.
  virtual void cleared() = 0;
};

/// Why an event, or a part of it, does not count.
enum class DropReason : std::uint8_t {
  IgnoredEvent,             ///< Of an unknown type.
  AmbiguousCacheNamespace,  ///< Behind a block that was seen under two cache salts.
  NonMainAttentionKind,     ///< Of a sliding-window, state-space or cross-attention cache.
  UnknownKind,              ///< Of a kind of cache that is not known.
  NonMainAttentionGroup,    ///< Of a cache group whose kind does not count.
  UnlearnedGroup,           ///< Of a cache group whose kind was never named.
  NotLocal,                 ///< Of blocks that are not the publisher's own.
  UnknownMedium,            ///< In a place that is not known.
  BlockSizeMismatch,        ///< Blocks of another size than the worker's.
  MissingTokens,            ///< Fewer tokens than the blocks hold; the blocks before them count.
  SurplusTokens,            ///< More tokens than the blocks hold: whose they are is unknown.
  SelfReference,            ///< A chain with a block twice, or with its own parent.
  NamespaceMemoryFull,      ///< Salted blocks beyond what is remembered.
};

/// Number of `DropReason` values.
inline constexpr int kDropReasonCount = static_cast<int>(DropReason::NamespaceMemoryFull) + 1;

/// Name for metric labels, e.g. `ignored_event`.
std::string_view drop_reason_name(DropReason reason);

/// Salted blocks that are remembered of one source, unless its options say otherwise.
inline constexpr std::size_t kMaxSaltedBlocks = std::size_t{1} << 18U;

/// What one engine (and rank) is known by.
struct NormalizerOptions {
  std::uint32_t block_size = 0;  ///< Tokens per block; events of other sizes are dropped. 0: all
                                 ///< are, but it is learned what size they have.
  std::uint32_t rank = 0;        ///< Data-parallel rank of the socket.
  std::string label = {};        ///< Names the source in warnings.
  /// The model's only image token. With it, placeholders are replaced by pad values; without it,
  /// hashes of objects are appended to their blocks.
  std::optional<std::uint32_t> image_token = {};
  /// Salted blocks remembered for their children, 80 bytes each. Those beyond are dropped, so their
  /// children have no known parent and are dropped by the index: prefixes are missed, but salted
  /// blocks never pass for public ones.
  std::size_t max_salted_blocks = kMaxSaltedBlocks;
};

/// Cache groups of one engine whose kind is kept.
inline constexpr std::size_t kMaxGroups = 256;

/// What a normalizer has learned of its engine, as it is handed to a peer.
struct NormalizerMemory {
  std::optional<bool> bigram = {};  ///< As of `EventNormalizer::bigram`.
  /// Cache groups, and whether they count.
  std::vector<std::pair<std::int64_t, bool>> groups = {};
  /// Salted blocks, in no particular order.
  std::vector<std::pair<EngineHash, NamespaceMemory::Entry>> salted = {};
  /// Equality of all.
  bool operator==(const NormalizerMemory&) const = default;
};

/// Turns one source's decoded events into what they mean: which blocks of which content lie where.
/// The rules are in docs/kv-events.md. One thread applies; counters may be read by any.
class EventNormalizer {
 public:
  /// Nothing is known of the engine yet.
  explicit EventNormalizer(NormalizerOptions options);

  /// Hands the batch's events to `sink` in their order. Removals in a row are handed over together:
  /// engines send one event per block, and the index is faster with many at once.
  void apply(const EventBatch& batch, EventSink& sink);

  /// Forgets what was learned of the engine: it restarted, or its view is built anew.
  void reset();
  /// What was learned; the thread that applies.
  NormalizerMemory memory() const;
  /// Goes on with what another one has learned of this engine. Before anything is applied; of what
  /// is beyond the bounds nothing is kept.
  void restore(const NormalizerMemory& memory);

  /// Whether the engine's keys are pairs of tokens; unknown before its first block.
  std::optional<bool> bigram() const;
  /// The size of the blocks that were announced first, where it was not known; 0 before that.
  std::uint32_t learned_block_size() const {
    return learned_block_size_.load(std::memory_order_relaxed);
  }
  /// Events (for `MissingTokens` and `NamespaceMemoryFull`: blocks) dropped for `reason`.
  std::uint64_t dropped(DropReason reason) const;
  /// Blocks handed on as stored.
  std::uint64_t blocks_stored() const { return blocks_stored_.load(std::memory_order_relaxed); }
  /// Blocks handed on as removed.
  std::uint64_t blocks_removed() const { return blocks_removed_.load(std::memory_order_relaxed); }
  /// Batches that named another rank than their socket's.
  std::uint64_t rank_mismatches() const { return rank_mismatches_.load(std::memory_order_relaxed); }
  /// Salted blocks remembered.
  std::size_t salted_blocks() const { return salted_.size(); }

 private:
  using Counter = std::atomic<std::uint64_t>;

  static void add(Counter& counter, std::uint64_t count);
  void drop(DropReason reason, std::uint64_t count = 1);
  void stored(const EventBatch& batch, const Event& event, EventSink& sink);
  void removed(const EventBatch& batch, const Event& event, EventSink& sink);
  void flush_removed(EventSink& sink);
  std::optional<Tier> tier_of(const Event& event);
  bool counts(const Event& event);
  bool main_attention(const Event& event);
  bool fits(const EventBatch& batch, const Event& event);
  bool refers_to_itself(std::span<const EngineHash> hashes, std::optional<EngineHash> parent);
  std::optional<std::uint64_t> namespace_of(const Event& event);
  void convert(const EventBatch& batch, const Event& event, std::uint64_t seed, std::size_t blocks);
  void collect_keys(const EventBatch& batch, const Event& event);
  LocalHash hash_with_objects(std::span<const std::uint32_t> window, std::uint64_t seed,
                              std::span<const ExtraKey> keys);
  void remember(std::uint64_t salt);
  void warn_block_size(const Event& event);

  NormalizerOptions options_;
  NamespaceMemory salted_;
  /// Cache groups whose kind an event named, and whether it counts.
  std::map<std::int64_t, bool> groups_;
  int warnings_ = 0;
  std::atomic<int> bigram_{-1};
  std::atomic<std::uint32_t> learned_block_size_{0};
  std::array<Counter, kDropReasonCount> drops_{};
  Counter blocks_stored_{0};
  Counter blocks_removed_{0};
  Counter rank_mismatches_{0};
  // Kept between events for their memory.
  std::vector<StoredBlock> blocks_;
  std::vector<EngineHash> removed_;  // not handed over yet
  Tier removed_tier_ = Tier::Device;
  std::vector<ExtraKey> keys_;
  std::vector<std::uint64_t> objects_;
  std::vector<std::uint32_t> window_;
  std::vector<std::uint32_t> places_;
};

}  // namespace fairlead::kv
