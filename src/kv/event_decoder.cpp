#include "kv/event_decoder.hpp"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "kv/event_fields.hpp"
#include "kv/msgpack_reader.hpp"

namespace fairlead::kv {
namespace {

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

class Decoder {
 public:
  Decoder(std::string_view payload, EventBatch& out)
      : reader_(payload), out_(out), fields_(reader_, out) {}

  Result<> run() {
    if (!batch()) {
      return fail(ErrorCode::EngineProtocol,
                  fmt::format("KV events: {} at event {}", fields_.wrong(),
                              out_.events.size() + out_.ignored));
    }
    return {};
  }

 private:
  bool wrong(std::string_view what) { return fields_.refuse(what); }

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

  bool skip() { return fields_.skip(); }

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
    fields_.begin();
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
      case Tag::Stored: fields_.event().kind = EventKind::Stored; break;
      case Tag::Removed: fields_.event().kind = EventKind::Removed; break;
      case Tag::Cleared: fields_.event().kind = EventKind::Cleared; break;
      case Tag::Unknown: ++out_.ignored; break;
    }
    return tag_ == Tag::Stored || tag_ == Tag::Removed;
  }

  bool finish() {
    const bool stored = tag_ == Tag::Stored;
    if (tag_ == Tag::Unknown) {
      return true;
    }
    if ((stored || tag_ == Tag::Removed) && !fields_.seen().hashes) {
      return wrong("an event without block_hashes");
    }
    // A parent left out must not pass for a root.
    if (stored &&
        (!fields_.seen().parent || !fields_.seen().tokens || !fields_.seen().block_size)) {
      return wrong("a BlockStored without parent_block_hash, token_ids or block_size");
    }
    out_.events.push_back(fields_.event());
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
      } else if (!fields_.read(event_field_of(key))) {
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
        const EventField at =
            tag_ == Tag::Removed && i == 2 ? EventField::Medium : static_cast<EventField>(i);
        if (at == EventField::LoraName && reader_.next() == Type::Map) {
          // SGLang's array form holds the salt here.
          if (!fields_.read_namespace()) {
            return false;
          }
        } else if (at == EventField::ExtraKeys && reader_.next() != Type::Array &&
                   reader_.next() != Type::Nil) {
          break;
        } else if (!fields_.read(at)) {
          return false;
        }
      }
      if (!fields_.read_tail(count - i, tag_ == Tag::Stored)) {
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

  Reader reader_;
  EventBatch& out_;
  EventFields fields_;
  Tag tag_ = Tag::Unknown;
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
