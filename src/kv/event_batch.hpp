#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kv/hashes.hpp"

// What one message of an engine says, decoded but not yet judged.

namespace fairlead::kv {

/// What happened.
enum class EventKind : std::uint8_t {
  Stored,   ///< `BlockStored`
  Removed,  ///< `BlockRemoved`
  Cleared,  ///< `AllBlocksCleared`
};

/// Something besides tokens that decides what a block holds.
enum class ExtraKeyKind : std::uint8_t {
  Text,        ///< A bare string: the adapter's name, a salt or an object's digest.
  Salt,        ///< Said to be a cache salt.
  Object,      ///< Identifier of a multimodal object.
  ObjectHash,  ///< Hash of a multimodal object.
  Opaque,      ///< Bytes that mean something to the engine alone.
};

/// One key of one block.
struct ExtraKey {
  std::uint32_t block = 0;                 ///< Position of its block in the event.
  ExtraKeyKind kind = ExtraKeyKind::Text;  ///< How to read `text`.
  std::string_view text;                   ///< Of an object's hash the bytes it was in.
  std::uint64_t hash = 0;                  ///< The object's hash.
};

/// A part of one of a batch's lists.
struct Slice {
  std::size_t first = 0;  ///< Position of the first element.
  std::size_t count = 0;  ///< Elements.
};

/// One event. Texts are empty when absent.
struct Event {
  EventKind kind = EventKind::Cleared;  ///< Which of the fields count.
  std::optional<EngineHash> parent;     ///< The block before the first; none at a root.
  Slice hashes;                         ///< Of `EventBatch::hashes`.
  Slice tokens;                         ///< Of `EventBatch::tokens`.
  Slice extra_keys;                     ///< Of `EventBatch::extra_keys`.
  std::uint32_t block_size = 0;         ///< Tokens per block.
  bool bigram = false;                  ///< The tokens came as EAGLE pairs.
  std::string_view medium;              ///< Where the blocks lie.
  std::string_view lora_name;           ///< Adapter.
  std::string_view cache_salt;          ///< Namespace of all blocks.
  std::string_view locality;            ///< Whether the blocks are the publisher's own.
  std::string_view spec_kind;           ///< Kind of attention of the blocks' group.
  std::optional<std::int64_t> group;    ///< KV-cache group; -1 for one beyond 63 bits.
};

/// A decoded message, made to be reused. Its texts point into the payload, which must outlive them.
struct EventBatch {
  double timestamp = 0;               ///< Unix seconds at the engine.
  std::optional<std::uint32_t> rank;  ///< Data-parallel rank, if the engine names one.
  std::vector<Event> events;          ///< In order.
  std::uint64_t ignored = 0;          ///< Events of unknown types.
  std::vector<EngineHash> hashes;     ///< Of all events.
  /// Of all events. Of EAGLE pairs the first tokens, then the second one of the last pair.
  std::vector<std::uint32_t> tokens;
  std::vector<ExtraKey> extra_keys;  ///< Of all events.

  /// Names of the event's blocks.
  std::span<const EngineHash> hashes_of(const Event& event) const {
    return std::span(hashes).subspan(event.hashes.first, event.hashes.count);
  }
  /// Tokens of the event's blocks, one after the other.
  std::span<const std::uint32_t> tokens_of(const Event& event) const {
    return std::span(tokens).subspan(event.tokens.first, event.tokens.count);
  }
  /// Keys of the event's blocks.
  std::span<const ExtraKey> extra_keys_of(const Event& event) const {
    return std::span(extra_keys).subspan(event.extra_keys.first, event.extra_keys.count);
  }
};

}  // namespace fairlead::kv
