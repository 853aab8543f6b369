#include "kv/event_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "kv/extra_key_decoder.hpp"

namespace fairlead::kv {
namespace {

using msgpack::Integer;
using msgpack::Type;

/// Elements of an array behind those of fixed positions, as far as anything is known of them.
constexpr std::size_t kTailSlots = 5;

std::int64_t group_number(Integer value) {
  const auto number = static_cast<std::int64_t>(value.bits);
  return value.negative == (number < 0) ? number : -1;
}

}  // namespace

bool EventFields::read(EventField field) {
  switch (field) {
    case EventField::BlockHashes: return block_hashes();
    case EventField::Parent:
      seen_.parent = true;
      event_.parent.reset();
      if (!reader_.nil()) {
        return hash(event_.parent.emplace());
      }
      return true;
    case EventField::TokenIds: return token_ids();
    case EventField::BlockSize:
      seen_.block_size = true;
      return reader_.u32(event_.block_size) || refuse("a block_size that is no number");
    case EventField::Medium: return text(event_.medium, "medium");
    case EventField::LoraName: return text(event_.lora_name, "lora_name");
    case EventField::ExtraKeys:
      return decode_extra_keys(reader_, out_.extra_keys, event_.extra_keys) ||
             refuse("extra_keys that are no list or too many");
    case EventField::Group: return group();
    case EventField::SpecKind: return text(event_.spec_kind, "kv_cache_spec_kind");
    case EventField::Locality: return text(event_.locality, "locality");
    case EventField::CacheSalt: return text(event_.cache_salt, "cache_salt");
    case EventField::MmInfos:
      return decode_mm_infos(reader_, out_.extra_keys, event_.extra_keys) ||
             refuse("block_mm_infos cut off or too many");
    case EventField::LoraId:  // Says nothing that two engines would agree on.
    case EventField::Other: break;
  }
  return skip();
}

bool EventFields::text(std::string_view& out, std::string_view name) {
  out = {};
  if (reader_.nil() || reader_.string(out)) {
    return true;
  }
  wrong_field_ = fmt::format("a {} that is no string", name);
  return refuse(wrong_field_);
}

bool EventFields::group() {
  event_.group.reset();
  if (reader_.nil()) {
    return true;
  }
  Integer value;
  if (!reader_.integer(value)) {
    return refuse("a group_idx that is no number");
  }
  event_.group = group_number(value);
  return true;
}

// An integer of either sign, or a digest of which the last 64 bits are the integer that the same
// engine would send.
bool EventFields::hash(EngineHash& out) {
  Integer value;
  if (reader_.integer(value)) {
    out = value.bits;
    return true;
  }
  std::string_view bytes;
  if (!(reader_.binary(bytes) || reader_.string(bytes)) || bytes.empty()) {
    return refuse("a block hash that is neither number nor bytes");
  }
  out = 0;
  for (const char byte : bytes.substr(bytes.size() - std::min(bytes.size(), sizeof(out)))) {
    out = out << 8U | static_cast<unsigned char>(byte);
  }
  return true;
}

bool EventFields::block_hashes() {
  seen_.hashes = true;
  std::uint32_t count = 0;
  if (!reader_.array(count)) {
    return refuse("block_hashes that are no list");
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

bool EventFields::token_ids() {
  seen_.tokens = true;
  std::uint32_t count = 0;
  if (!reader_.array(count)) {
    return refuse("token_ids that are no list");
  }
  const std::size_t first = out_.tokens.size();
  event_.bigram = reader_.next() == Type::Array && count > 0;
  if (event_.bigram) {
    return token_pairs(first, count);
  }
  out_.tokens.resize(first + count);
  event_.tokens = {first, count};
  return reader_.u32s(count, out_.tokens.data() + first) || refuse("a token that is no number");
}

// EAGLE keys: each token with the one behind it.
bool EventFields::token_pairs(std::size_t first, std::uint32_t count) {
  out_.tokens.resize(first + count + 1);
  std::uint32_t* at = out_.tokens.data() + first;
  for (std::uint32_t i = 0; i < count; ++i, ++at) {
    std::array<std::uint32_t, 2> pair{};
    std::uint32_t size = 0;
    if (!reader_.array(size) || size != pair.size() || !reader_.u32s(pair.size(), pair.data())) {
      return refuse("a token that is no pair");
    }
    if (i > 0 && *at != pair[0]) {
      return refuse("pairs of tokens that do not follow each other");
    }
    at[0] = pair[0];
    at[1] = pair[1];
  }
  event_.tokens = {first, std::size_t{count} + 1};
  return true;
}

bool EventFields::read_namespace() {
  std::uint32_t pairs = 0;
  if (!reader_.map(pairs)) {
    return refuse("a value cut off");
  }
  for (std::uint32_t i = 0; i < pairs; ++i) {
    std::string_view key;
    if (!reader_.string(key)) {
      if (!skip() || !skip()) {
        return false;
      }
      continue;
    }
    const EventField which = event_field_of(key);
    if (which == EventField::CacheSalt || which == EventField::LoraName ? !read(which) : !skip()) {
      return false;
    }
  }
  return true;
}

bool EventFields::read_tail(std::uint32_t count, bool stored) {
  std::array<Slot, kTailSlots> slots;
  std::size_t filled = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    Slot slot{.type = reader_.next(), .number = {}, .text = {}};
    bool ok = true;
    switch (slot.type) {
      case Type::Integer: ok = reader_.integer(slot.number) || skip(); break;
      case Type::String: ok = reader_.string(slot.text) || skip(); break;
      case Type::Array: ok = stored ? read(EventField::MmInfos) : skip(); break;
      case Type::Map: ok = read_namespace(); break;
      default: ok = skip(); break;
    }
    if (!ok) {
      return false;
    }
    if (filled < slots.size() && slot.type != Type::Map) {
      slots[filled++] = slot;
    }
  }
  apply_tail(std::span(slots).first(filled));
  return true;
}

void EventFields::apply_tail(std::span<const Slot> slots) {
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

}  // namespace fairlead::kv
