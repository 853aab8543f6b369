#include "mock/kv_events.hpp"

#include <xxhash.h>

#include "mock/msgpack.hpp"

namespace fairlead::mock {
namespace {

constexpr std::string_view kMedium = "GPU";

// What events of both families are made of.
class EventEncoder {
 public:
  EventEncoder(std::string& out, std::uint32_t block_size, KvEventLayout layout)
      : writer_(out), block_size_(block_size), map_(layout == KvEventLayout::Map) {}

  msgpack::Writer& writer() { return writer_; }
  void operator()(const AllBlocksCleared&) { begin("AllBlocksCleared", 0); }

 protected:
  void begin(std::string_view type, std::uint32_t fields) {
    if (map_) {
      writer_.map(fields + 1).string("type");
    } else {
      writer_.array(fields + 1);
    }
    writer_.string(type);
  }
  void key(std::string_view name) {
    if (map_) {
      writer_.string(name);
    }
  }
  void content(const BlocksStored& event) {
    key("token_ids");
    writer_.array(static_cast<std::uint32_t>(event.tokens.size()));
    for (const TokenId token : event.tokens) {
      writer_.integer(token);
    }
    key("block_size");
    writer_.integer(block_size_);
  }

  msgpack::Writer writer_;
  std::uint32_t block_size_;
  bool map_;
};

class VllmEncoder : public EventEncoder {
 public:
  using EventEncoder::EventEncoder;
  using EventEncoder::operator();

  void operator()(const BlocksStored& event) {
    const bool session = map_ && !event.key.session_id.empty();
    begin("BlockStored", map_ ? (session ? 11U : 10U) : 9U);
    key("block_hashes");
    hashes(event.hashes);
    key("parent_block_hash");
    event.parent ? writer_.integer(*event.parent) : writer_.nil();
    content(event);
    key("lora_id");
    event.key.lora.empty() ? writer_.nil() : writer_.integer(event.key.lora_id);
    key("medium");
    writer_.string(kMedium);
    key("lora_name");
    event.key.lora.empty() ? writer_.nil() : writer_.string(event.key.lora);
    key("extra_keys");
    extra_keys(event);
    key("group_idx");
    writer_.integer(0);
    if (map_) {
      key("kv_cache_spec_kind");
      writer_.string("full_attention");
    }
    if (session) {
      key("session_id");
      writer_.string(event.key.session_id);
    }
  }

  void operator()(const BlockRemoved& event) {
    begin("BlockRemoved", 3);
    key("block_hashes");
    hashes(std::span(&event.hash, 1));
    key("medium");
    writer_.string(kMedium);
    key("group_idx");
    writer_.integer(0);
  }

 private:
  void hashes(std::span<const std::uint64_t> values) {
    writer_.array(static_cast<std::uint32_t>(values.size()));
    for (const std::uint64_t value : values) {
      writer_.integer(value);
    }
  }
  void extra_keys(const BlocksStored& event) {
    writer_.array(static_cast<std::uint32_t>(event.hashes.size()));
    for (std::size_t i = 0; i < event.hashes.size(); ++i) {
      const bool salted = i == 0 && !event.parent && !event.key.salt.empty();
      const std::uint32_t count = (event.key.lora.empty() ? 0U : 1U) + (salted ? 1U : 0U);
      if (count == 0) {
        writer_.nil();
        continue;
      }
      writer_.array(count);
      if (!event.key.lora.empty()) {
        writer_.string(event.key.lora);
      }
      if (salted) {
        writer_.string(event.key.salt);
      }
    }
  }
};

// Fields in the order of the releases that sent arrays; the optional ones are maps' only.
class SglangEncoder : public EventEncoder {
 public:
  using EventEncoder::EventEncoder;
  using EventEncoder::operator();

  void operator()(const BlocksStored& event) {
    const std::uint64_t mask = adapter_mask(event.key.lora);
    const bool session = map_ && !event.key.session_id.empty();
    begin("BlockStored", session ? 7U : 6U);
    key("block_hashes");
    writer_.array(static_cast<std::uint32_t>(event.hashes.size()));
    for (const std::uint64_t hash : event.hashes) {
      writer_.signed_integer(static_cast<std::int64_t>(hash ^ mask));
    }
    key("parent_block_hash");
    event.parent ? writer_.signed_integer(static_cast<std::int64_t>(*event.parent ^ mask))
                 : writer_.nil();
    content(event);
    key("lora_id");
    writer_.nil();
    key("medium");
    writer_.string(kMedium);
    if (session) {
      key("session_id");
      writer_.string(event.key.session_id);
    }
  }

  void operator()(const BlockRemoved& event) {
    begin("BlockRemoved", 2);
    key("block_hashes");
    writer_.array(1).signed_integer(
        static_cast<std::int64_t>(event.hash ^ adapter_mask(event.lora)));
    key("medium");
    writer_.string(kMedium);
  }
};

template <class AnyEncoder>
void encode(AnyEncoder encoder, std::span<const KvEvent> events, double timestamp,
            std::uint32_t rank) {
  encoder.writer().array(3).number(timestamp);
  encoder.writer().array(static_cast<std::uint32_t>(events.size()));
  for (const KvEvent& event : events) {
    std::visit(encoder, event);
  }
  encoder.writer().integer(rank);
}

}  // namespace

std::uint64_t adapter_mask(std::string_view lora) {
  return lora.empty() ? 0 : XXH3_64bits(lora.data(), lora.size());
}

std::string encode_kv_batch(std::span<const KvEvent> events, std::uint32_t block_size,
                            double timestamp, std::uint32_t rank, KvEventLayout layout,
                            KvEventFlavor flavor) {
  std::string out;
  if (flavor == KvEventFlavor::Sglang) {
    encode(SglangEncoder(out, block_size, layout), events, timestamp, rank);
  } else {
    encode(VllmEncoder(out, block_size, layout), events, timestamp, rank);
  }
  return out;
}

}  // namespace fairlead::mock
