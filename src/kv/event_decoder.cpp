#include "kv/event_decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "kv/extra_key_decoder.hpp"
#include "kv/msgpack_reader.hpp"

namespace fairlead::kv {
namespace {

using msgpack::Integer;
using msgpack::Reader;
using msgpack::Type;

/// What a batch's lists may keep allocated for the next one.
constexpr std::size_t kKeptElements = 1UL << 18U;

template <class T>
void reuse(std::vector<T>& list) {
  if (list.capacity() > kKeptElements) {
    list = {};
  }
  list.clear();
}

enum class Tag : std::uint8_t { Stored, Removed, Cleared, Unknown };

Tag tag_of(std::string_view name) {
  if (name == "BlockStored") {
    return Tag::Stored;
  }
  if (name == "BlockRemoved") {
    return Tag::Removed;
  }
  return name == "AllBlocksCleared" ? Tag::Cleared : Tag::Unknown;
}

/// The fields of an event, with their positions in the array layout of `BlockStored`.
enum class Field : std::uint8_t {
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

Field field_of(std::string_view key) {
  struct Row {
    std::string_view key;
    Field field;
  };
  // In the order in which engines send them.
  static constexpr std::array kRows{
      Row{"block_hashes", Field::BlockHashes}, Row{"parent_block_hash", Field::Parent},
      Row{"token_ids", Field::TokenIds},       Row{"block_size", Field::BlockSize},
      Row{"lora_id", Field::LoraId},           Row{"medium", Field::Medium},
      Row{"lora_name", Field::LoraName},       Row{"extra_keys", Field::ExtraKeys},
      Row{"group_idx", Field::Group},          Row{"kv_cache_spec_kind", Field::SpecKind},
      Row{"locality", Field::Locality},        Row{"cache_salt", Field::CacheSalt},
      Row{"block_mm_infos", Field::MmInfos},
  };
  for (const Row& row : kRows) {
    if (row.key == key) {
      return row.field;
    }
  }
  return Field::Other;
}

/// Elements of an array behind those of fixed positions, as far as anything is known of them.
constexpr std::size_t kTailSlots = 5;

class Decoder {
 public:
  Decoder(std::string_view payload, EventBatch& out) : reader_(payload), out_(out) {}

  Result<> run() {
    if (!batch()) {
      return fail(ErrorCode::EngineProtocol, fmt::format("KV events: {} at event {}", wrong_,
                                                         out_.events.size() + out_.ignored));
    }
    return {};
  }

 private:
  bool wrong(std::string_view what) {
    wrong_ = what;
    return false;
  }

  bool batch() {
    std::uint32_t count = 0;
    if (reader_.array(count)) {
      if (count < 2) {
        return wrong("a batch without events");
      }
      if (!timestamp() || !events() || (count > 2 && !rank())) {
        return false;
      }
      for (std::uint32_t i = 3; i < count; ++i) {
        if (!skip()) {
          return false;
        }
      }
    } else if (!reader_.map(count)) {
      return wrong("a batch that is neither array nor map");
    } else if (!batch_map(count)) {
      return false;
    }
    return reader_.at_end() || wrong("bytes behind the batch");
  }

  bool batch_map(std::uint32_t pairs) {
    bool found = false;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      std::string_view key;
      bool read = true;
      if (!reader_.string(key)) {
        read = skip() && skip();
      } else if (key == "ts") {
        read = timestamp();
      } else if (key == "events" && !found) {
        read = found = events();
      } else if (key == "data_parallel_rank" || key == "attn_dp_rank") {
        read = rank();
      } else {
        read = skip();
      }
      if (!read) {
        return false;
      }
    }
    return found || wrong("a batch without events");
  }

  bool skip() { return reader_.skip() || wrong("a value cut off"); }

  bool timestamp() {
    return reader_.number(out_.timestamp) || wrong("a timestamp that is no number");
  }

  bool rank() {
    if (reader_.nil()) {
      return true;
    }
    std::uint32_t value = 0;
    if (!reader_.u32(value)) {
      return wrong("a rank that is no number");
    }
    out_.rank = value;
    return true;
  }

  bool events() {
    std::uint32_t count = 0;
    if (!reader_.array(count)) {
      return wrong("events that are no list");
    }
    if (count > kMaxBatchEvents) {
      return wrong("too many events");
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!event()) {
        return false;
      }
    }
    return true;
  }

  bool event() {
    event_ = {};
    seen_ = {};
    std::uint32_t count = 0;
    if (reader_.array(count)) {
      return event_array(count);
    }
    return reader_.map(count) ? event_map(count) : wrong("an event that is neither array nor map");
  }

  /// Takes the event's type. Of unknown types nothing else is looked at.
  bool begin(std::string_view name) {
    tag_ = tag_of(name);
    switch (tag_) {
      case Tag::Stored: event_.kind = EventKind::Stored; break;
      case Tag::Removed: event_.kind = EventKind::Removed; break;
      case Tag::Cleared: event_.kind = EventKind::Cleared; break;
      case Tag::Unknown: ++out_.ignored; break;
    }
    return tag_ == Tag::Stored || tag_ == Tag::Removed;
  }

  bool finish() {
    const bool stored = tag_ == Tag::Stored;
    if (tag_ == Tag::Unknown) {
      return true;
    }
    if ((stored || tag_ == Tag::Removed) && !seen_.hashes) {
      return wrong("an event without block_hashes");
    }
    // A parent left out must not pass for a root.
    if (stored && (!seen_.parent || !seen_.tokens || !seen_.block_size)) {
      return wrong("a BlockStored without parent_block_hash, token_ids or block_size");
    }
    out_.events.push_back(event_);
    return true;
  }

  bool event_map(std::uint32_t pairs) {
    std::string_view name;
    if (!type_of_map(pairs, name)) {
      return false;
    }
    const bool fields = begin(name);
    for (std::uint32_t i = 0; i < pairs; ++i) {
      std::string_view key;
      if (!fields || !reader_.string(key)) {
        if (!skip() || !skip()) {
          return false;
        }
      } else if (!field(field_of(key))) {
        return false;
      }
    }
    return finish();
  }

  /// The value of the key `type`, which engines send first, wherever it stands.
  bool type_of_map(std::uint32_t pairs, std::string_view& name) {
    Reader ahead = reader_;
    for (std::uint32_t i = 0; i < pairs; ++i) {
      std::string_view key;
      const bool text = ahead.string(key);
      if (text && key == "type") {
        return ahead.string(name) || wrong("an event whose type is no string");
      }
      if (!(text || ahead.skip()) || !ahead.skip()) {
        return wrong("a value cut off");
      }
    }
    return wrong("an event without a type");
  }

  bool event_array(std::uint32_t count) {
    std::string_view name;
    if (count == 0 || !reader_.string(name)) {
      return wrong("an event without a type");
    }
    const bool fields = begin(name);
    std::uint32_t i = 1;
    if (fields) {
      const std::uint32_t fixed = tag_ == Tag::Stored ? 8 : 2;
      for (; i < count && i <= fixed; ++i) {
        const Field at = tag_ == Tag::Removed && i == 2 ? Field::Medium : static_cast<Field>(i);
        if (at == Field::LoraName && reader_.next() == Type::Map) {
          // SGLang's array form holds the salt here.
          if (!namespace_map()) {
            return false;
          }
        } else if (at == Field::ExtraKeys && reader_.next() != Type::Array &&
                   reader_.next() != Type::Nil) {
          break;
        } else if (!field(at)) {
          return false;
        }
      }
      if (!tail(count - i)) {
        return false;
      }
      i = count;
    }
    for (; i < count; ++i) {
      if (!skip()) {
        return false;
      }
    }
    return finish();
  }

  bool field(Field which) {
    switch (which) {
      case Field::BlockHashes: return block_hashes();
      case Field::Parent:
        seen_.parent = true;
        event_.parent.reset();
        if (!reader_.nil()) {
          return hash(event_.parent.emplace());
        }
        return true;
      case Field::TokenIds: return token_ids();
      case Field::BlockSize:
        seen_.block_size = true;
        return reader_.u32(event_.block_size) || wrong("a block_size that is no number");
      case Field::Medium: return text(event_.medium, "medium");
      case Field::LoraName: return text(event_.lora_name, "lora_name");
      case Field::ExtraKeys:
        return decode_extra_keys(reader_, out_.extra_keys, event_.extra_keys) ||
               wrong("extra_keys that are no list or too many");
      case Field::Group: return group();
      case Field::SpecKind: return text(event_.spec_kind, "kv_cache_spec_kind");
      case Field::Locality: return text(event_.locality, "locality");
      case Field::CacheSalt: return text(event_.cache_salt, "cache_salt");
      case Field::MmInfos:
        return decode_mm_infos(reader_, out_.extra_keys, event_.extra_keys) ||
               wrong("block_mm_infos cut off or too many");
      case Field::LoraId:  // Says nothing that two engines would agree on.
      case Field::Other: break;
    }
    return skip();
  }

  bool text(std::string_view& out, std::string_view name) {
    out = {};
    if (reader_.nil() || reader_.string(out)) {
      return true;
    }
    wrong_field_ = fmt::format("a {} that is no string", name);
    return wrong(wrong_field_);
  }

  bool group() {
    event_.group.reset();
    if (reader_.nil()) {
      return true;
    }
    Integer value;
    if (!reader_.integer(value)) {
      return wrong("a group_idx that is no number");
    }
    event_.group = group_number(value);
    return true;
  }

  static std::int64_t group_number(Integer value) {
    const auto number = static_cast<std::int64_t>(value.bits);
    return value.negative == (number < 0) ? number : -1;
  }

  /// An integer of either sign, or a digest of which the last 64 bits are the integer that the same
  /// engine would send.
  bool hash(EngineHash& out) {
    Integer value;
    if (reader_.integer(value)) {
      out = value.bits;
      return true;
    }
    std::string_view bytes;
    if (!(reader_.binary(bytes) || reader_.string(bytes)) || bytes.empty()) {
      return wrong("a block hash that is neither number nor bytes");
    }
    out = 0;
    for (const char byte : bytes.substr(bytes.size() - std::min(bytes.size(), sizeof(out)))) {
      out = out << 8U | static_cast<unsigned char>(byte);
    }
    return true;
  }

  bool block_hashes() {
    seen_.hashes = true;
    std::uint32_t count = 0;
    if (!reader_.array(count)) {
      return wrong("block_hashes that are no list");
    }
    const std::size_t first = out_.hashes.size();
    out_.hashes.resize(first + count);
    for (std::size_t i = first; i < out_.hashes.size(); ++i) {
      if (!hash(out_.hashes[i])) {
        return false;
      }
    }
    event_.hashes = {first, count};
    return true;
  }

  bool token_ids() {
    seen_.tokens = true;
    std::uint32_t count = 0;
    if (!reader_.array(count)) {
      return wrong("token_ids that are no list");
    }
    const std::size_t first = out_.tokens.size();
    event_.bigram = reader_.next() == Type::Array && count > 0;
    if (event_.bigram) {
      return token_pairs(first, count);
    }
    out_.tokens.resize(first + count);
    event_.tokens = {first, count};
    return reader_.u32s(count, out_.tokens.data() + first) || wrong("a token that is no number");
  }

  /// EAGLE keys: each token with the one behind it.
  bool token_pairs(std::size_t first, std::uint32_t count) {
    out_.tokens.resize(first + count + 1);
    std::uint32_t* at = out_.tokens.data() + first;
    for (std::uint32_t i = 0; i < count; ++i, ++at) {
      std::array<std::uint32_t, 2> pair{};
      std::uint32_t size = 0;
      if (!reader_.array(size) || size != pair.size() || !reader_.u32s(pair.size(), pair.data())) {
        return wrong("a token that is no pair");
      }
      if (i > 0 && *at != pair[0]) {
        return wrong("pairs of tokens that do not follow each other");
      }
      at[0] = pair[0];
      at[1] = pair[1];
    }
    event_.tokens = {first, std::size_t{count} + 1};
    return true;
  }

  /// Keys that SGLang appends to an array in a map.
  bool namespace_map() {
    std::uint32_t pairs = 0;
    if (!reader_.map(pairs)) {
      return wrong("a value cut off");
    }
    for (std::uint32_t i = 0; i < pairs; ++i) {
      std::string_view key;
      if (!reader_.string(key)) {
        if (!skip() || !skip()) {
          return false;
        }
        continue;
      }
      const Field which = field_of(key);
      if (which == Field::CacheSalt || which == Field::LoraName ? !field(which) : !skip()) {
        return false;
      }
    }
    return true;
  }

  struct Slot {
    Type type = Type::None;
    Integer number;
    std::string_view text;
  };

  /// What follows an array's fixed positions: four or more slots in the known order (group, kind,
  /// sliding window, locality), if their types allow, else read by type.
  bool tail(std::uint32_t count) {
    std::array<Slot, kTailSlots> slots;
    std::size_t filled = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      Slot slot{.type = reader_.next(), .number = {}, .text = {}};
      bool read = true;
      switch (slot.type) {
        case Type::Integer: read = reader_.integer(slot.number) || skip(); break;
        case Type::String: read = reader_.string(slot.text) || skip(); break;
        case Type::Array: read = tag_ == Tag::Stored ? field(Field::MmInfos) : skip(); break;
        case Type::Map: read = namespace_map(); break;
        default: read = skip(); break;
      }
      if (!read) {
        return false;
      }
      if (filled < slots.size() && slot.type != Type::Map) {
        slots[filled++] = slot;
      }
    }
    read_tail(std::span(slots).first(filled));
    return true;
  }

  void read_tail(std::span<const Slot> slots) {
    const auto fits = [&](std::size_t at, Type type) {
      return slots[at].type == type || slots[at].type == Type::Nil;
    };
    if (slots.size() >= 4 && fits(0, Type::Integer) && fits(1, Type::String) &&
        fits(2, Type::Integer) && fits(3, Type::String)) {
      if (slots[0].type == Type::Integer) {
        event_.group = group_number(slots[0].number);
      }
      event_.spec_kind = slots[1].text;
      event_.locality = slots[3].text;
      return;
    }
    bool done = false;
    for (const Slot& slot : slots) {
      if (slot.type == Type::Integer && !event_.group) {
        event_.group = group_number(slot.number);
      } else if (slot.text == "LOCAL" || slot.text == "REMOTE") {
        event_.locality = slot.text;
        done = true;
      } else if (slot.type == Type::String && event_.spec_kind.empty() && !done) {
        event_.spec_kind = slot.text;
      }
    }
  }

  struct Seen {
    bool hashes = false;
    bool parent = false;
    bool tokens = false;
    bool block_size = false;
  };

  Reader reader_;
  EventBatch& out_;
  Event event_;
  Tag tag_ = Tag::Unknown;
  Seen seen_;
  std::string wrong_field_;
  std::string_view wrong_ = "malformed";
};

}  // namespace

Result<> decode_batch(std::string_view payload, EventBatch& out) {
  out.timestamp = 0;
  out.rank.reset();
  out.ignored = 0;
  reuse(out.events);
  reuse(out.hashes);
  reuse(out.tokens);
  reuse(out.extra_keys);
  if (payload.size() > kMaxBatchBytes) {
    return fail(ErrorCode::EngineProtocol,
                fmt::format("KV events: a batch of {} bytes is too large", payload.size()));
  }
  return Decoder(payload, out).run();
}

}  // namespace fairlead::kv
