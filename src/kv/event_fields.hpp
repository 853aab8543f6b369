#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kv/event_batch.hpp"
#include "kv/msgpack_reader.hpp"

namespace fairlead::kv {

/// The fields of an event, with their positions in the array layout of `BlockStored`.
enum class EventField : std::uint8_t {
  BlockHashes = 1,
  Parent,
  TokenIds,
  BlockSize,
  LoraId,
  Medium,
  LoraName,
  ExtraKeys,
  // Maps only; arrays hold these in their tail.
  Group,
  SpecKind,
  Locality,
  CacheSalt,
  MmInfos,
  Other,
};

/// The field of a map's key; `Other` when nothing is known of it.
inline EventField event_field_of(std::string_view key) {
  struct Row {
    std::string_view key;
    EventField field;
  };
  // In the order in which engines send them.
  static constexpr std::array kRows{
      Row{"block_hashes", EventField::BlockHashes}, Row{"parent_block_hash", EventField::Parent},
      Row{"token_ids", EventField::TokenIds},       Row{"block_size", EventField::BlockSize},
      Row{"lora_id", EventField::LoraId},           Row{"medium", EventField::Medium},
      Row{"lora_name", EventField::LoraName},       Row{"extra_keys", EventField::ExtraKeys},
      Row{"group_idx", EventField::Group},          Row{"kv_cache_spec_kind", EventField::SpecKind},
      Row{"locality", EventField::Locality},        Row{"cache_salt", EventField::CacheSalt},
      Row{"block_mm_infos", EventField::MmInfos},
  };
  for (const Row& row : kRows) {
    if (row.key == key) {
      return row.field;
    }
  }
  return EventField::Other;
}

/// Reads the fields of one event after the other from where a reader stands. Whatever returns false
/// says in `wrong()` why.
class EventFields {
 public:
  /// Reads from `reader`, and appends what events hold lists of to those of `out`.
  EventFields(msgpack::Reader& reader, EventBatch& out) : reader_(reader), out_(out) {}

  /// Which of the fields were there that no event may lack.
  struct Seen {
    bool hashes = false;      ///< `block_hashes`
    bool parent = false;      ///< `parent_block_hash`
    bool tokens = false;      ///< `token_ids`
    bool block_size = false;  ///< `block_size`
  };

  /// Begins with an event of nothing.
  void begin() {
    event_ = {};
    seen_ = {};
  }
  /// Reads the value of a field; of one that does not count it skips it.
  bool read(EventField field);
  /// Keys that SGLang appends to an array in a map.
  bool read_namespace();
  /// What follows an array's fixed positions: four or more slots in the known order (group, kind,
  /// sliding window, locality), if their types allow, else read by type.
  bool read_tail(std::uint32_t count, bool stored);
  /// Skips one value.
  bool skip() { return reader_.skip() || refuse("a value cut off"); }
  /// Notes what is wrong; false.
  bool refuse(std::string_view what) {
    wrong_ = what;
    return false;
  }

  /// What was read.
  Event& event() { return event_; }
  /// Of it.
  const Seen& seen() const { return seen_; }
  /// Why something returned false.
  std::string_view wrong() const { return wrong_; }

 private:
  struct Slot {
    msgpack::Type type = msgpack::Type::None;
    msgpack::Integer number;
    std::string_view text;
  };

  bool text(std::string_view& out, std::string_view name);
  bool group();
  bool hash(EngineHash& out);
  bool block_hashes();
  bool token_ids();
  bool token_pairs(std::size_t first, std::uint32_t count);
  void apply_tail(std::span<const Slot> slots);

  msgpack::Reader& reader_;
  EventBatch& out_;
  Event event_;
  Seen seen_;
  std::string wrong_field_;
  std::string_view wrong_ = "malformed";
};

}  // namespace fairlead::kv
