#include "kv/extra_key_decoder.hpp"

namespace fairlead::kv {
namespace {

using msgpack::Integer;
using msgpack::Reader;
using msgpack::Type;

/// Appends keys to the part of the list that `slice` is.
class Keys {
 public:
  Keys(std::vector<ExtraKey>& out, Slice& slice) : out_(out), slice_(slice) {
    if (slice.count == 0) {
      slice.first = out.size();
    }
  }

  /// False when the batch holds too many.
  bool add(ExtraKey key) {
    if (out_.size() >= kMaxBatchExtraKeys) {
      return false;
    }
    out_.push_back(key);
    ++slice_.count;
    return true;
  }

 private:
  std::vector<ExtraKey>& out_;
  Slice& slice_;
};

/// The bytes between two positions of readers of the same payload.
std::string_view between(const Reader& from, const Reader& to) {
  return {from.position(), static_cast<std::size_t>(to.position() - from.position())};
}

/// A key as a tuple: `(identifier, offset)` of an object, or with a tag in front. False when it is
/// none of these.
bool tuple_key(Reader reader, ExtraKey& key, bool& counts) {
  std::uint32_t size = 0;
  std::string_view first;
  if (!reader.array(size) || size < 2 || !reader.string(first)) {
    return false;
  }
  Integer offset;
  if (reader.integer(offset)) {
    key.kind = ExtraKeyKind::Object;
    key.text = first;
    return true;
  }
  if (first == "lora") {
    counts = false;
    return true;
  }
  key.kind = first == "cache_salt" ? ExtraKeyKind::Salt : ExtraKeyKind::Object;
  return (first == "cache_salt" || first == "mm") && reader.string(key.text);
}

/// A key as a map with a `type`. False when it is of no known one.
bool typed_key(Reader reader, ExtraKey& key, bool& counts) {
  std::uint32_t pairs = 0;
  if (!reader.map(pairs)) {
    return false;
  }
  std::string_view type;
  std::string_view salt;
  std::string_view hash;
  std::string_view value;
  for (std::uint32_t i = 0; i < pairs; ++i) {
    std::string_view name;
    if (!reader.string(name)) {
      return false;
    }
    std::string_view text;
    if (!reader.string(text) && !reader.skip()) {
      return false;
    }
    if (name == "type") {
      type = text;
    } else if (name == "salt") {
      salt = text;
    } else if (name == "hash") {
      hash = text;
    } else if (name == "value") {
      value = text;
    }
  }
  if (type == "lora") {
    counts = false;
    return true;
  }
  if (type == "cache_salt") {
    key.kind = ExtraKeyKind::Salt;
    key.text = salt;
  } else if (type == "mm") {
    key.kind = ExtraKeyKind::Object;
    key.text = hash;
  } else if (type == "legacy") {
    key.kind = ExtraKeyKind::Text;
    key.text = value;
  }
  return !key.text.empty();
}

/// One key of a block. A key of unknown form still makes the engine's block another one, so its
/// bytes count; numbers (an adapter's id) and nils do not.
bool block_key(Reader& reader, std::uint32_t block, Keys& keys) {
  const Reader start = reader;
  const Type type = reader.next();
  if (!reader.skip()) {
    return false;
  }
  ExtraKey key{.block = block, .kind = ExtraKeyKind::Opaque, .text = {}, .hash = 0};
  Reader value = start;
  bool counts = true;
  bool known = true;
  switch (type) {
    case Type::String:
      key.kind = ExtraKeyKind::Text;
      value.string(key.text);
      break;
    case Type::Binary: value.binary(key.text); break;
    case Type::Array: known = tuple_key(value, key, counts); break;
    case Type::Map: known = typed_key(value, key, counts); break;
    case Type::Extension: known = false; break;
    default: counts = false; break;
  }
  if (!known) {
    key.kind = ExtraKeyKind::Opaque;
    key.text = between(start, reader);
  }
  return !counts || keys.add(key);
}

/// Passes over one object; true with its hash if it is a map with `mm_hash` or a list that begins
/// with it.
bool object_hash(Reader& reader, std::uint64_t& hash) {
  Reader object = reader;
  reader.skip();
  std::uint32_t count = 0;
  Integer value;
  if (object.array(count)) {
    const bool found = count > 0 && object.integer(value);
    hash = value.bits;
    return found;
  }
  if (!object.map(count)) {
    return false;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    std::string_view name;
    const bool text = object.string(name);
    if (text && name == "mm_hash" && object.integer(value)) {
      hash = value.bits;
      return true;
    }
    if (!(text || object.skip()) || !object.skip()) {
      return false;
    }
  }
  return false;
}

/// The list of a block's objects: the value itself holds it first, or under `mm_objects`.
bool objects_of(Reader& reader, std::uint32_t& count) {
  std::uint32_t size = 0;
  if (reader.array(size)) {
    return size > 0 && reader.array(count);
  }
  if (!reader.map(size)) {
    return false;
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    std::string_view name;
    if (!reader.string(name)) {
      return false;
    }
    if (name == "mm_objects") {
      return reader.array(count);
    }
    if (!reader.skip()) {
      return false;
    }
  }
  return false;
}

}  // namespace

bool decode_extra_keys(Reader& reader, std::vector<ExtraKey>& out, Slice& slice) {
  if (reader.nil()) {
    return true;
  }
  std::uint32_t blocks = 0;
  if (!reader.array(blocks)) {
    return false;
  }
  Keys keys(out, slice);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    std::uint32_t count = 0;
    if (reader.nil()) {
      continue;
    }
    if (!reader.array(count)) {
      return false;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      if (!block_key(reader, block, keys)) {
        return false;
      }
    }
  }
  return true;
}

bool decode_mm_infos(Reader& reader, std::vector<ExtraKey>& out, Slice& slice) {
  Reader value = reader;
  if (!reader.skip()) {
    return false;
  }
  std::uint32_t blocks = 0;
  if (!value.array(blocks)) {
    return true;
  }
  Keys keys(out, slice);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    Reader info = value;
    std::uint32_t objects = 0;
    if (objects_of(info, objects)) {
      for (std::uint32_t i = 0; i < objects; ++i) {
        const Reader object = info;
        ExtraKey key{.block = block, .kind = ExtraKeyKind::ObjectHash, .text = {}, .hash = 0};
        const bool found = object_hash(info, key.hash);
        key.text = between(object, info);
        if (found && !keys.add(key)) {
          return false;
        }
      }
    }
    value.skip();
  }
  return true;
}

}  // namespace fairlead::kv
