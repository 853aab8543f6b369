#include "engine/packed_ids.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace fairlead::engine {
namespace {

/// What `write_varint` may touch.
constexpr std::size_t kVarintRoom = 8;

/// Writes a varint into kVarintRoom bytes, of which it uses varint_size.
char* write_varint(char* at, std::uint32_t value) {
  static_assert(std::endian::native == std::endian::little);
  const std::size_t size = varint_size(value);
  const std::uint64_t wide = value;
  const std::uint64_t groups = (wide & 0x7F) | (wide & 0x3F80) << 1 | (wide & 0x1F'C000) << 2 |
                               (wide & 0xFE0'0000) << 3 | (wide & 0xF000'0000) << 4;
  // A continuation bit in every byte but the last.
  const std::uint64_t bytes = groups | (0x80'8080'8080 & ((1ULL << (8 * (size - 1))) - 1));
  std::memcpy(at, &bytes, sizeof bytes);
  return at + size;
}

/// Ids of a vocabulary need no more than four bytes each.
constexpr TokenId kFourBytes = TokenId{1} << 28;
constexpr std::size_t kBlock = 64;

/// Writes one block, of which every id is below kFourBytes. What does not depend on where an id
/// comes to stand is done for several at once, which the compiler sees to in the first loop.
char* write_block(char* at, std::span<const TokenId, kBlock> ids) {
  std::array<std::uint32_t, kBlock> bytes;
  std::array<std::uint32_t, kBlock> sizes;
  for (std::size_t i = 0; i < kBlock; ++i) {
    // Signed, because SSE2 compares nothing else; all are positive.
    const auto id = static_cast<std::int32_t>(ids[i]);
    const std::int32_t more1 = -static_cast<std::int32_t>(id > 0x7F);
    const std::int32_t more2 = -static_cast<std::int32_t>(id > 0x3FFF);
    const std::int32_t more3 = -static_cast<std::int32_t>(id > 0x1F'FFFF);
    bytes[i] = static_cast<std::uint32_t>((id & 0x7F) | (id & 0x3F80) << 1 | (id & 0x1F'C000) << 2 |
                                          (id & 0xFE0'0000) << 3 | (more1 & 0x80) |
                                          (more2 & 0x8000) | (more3 & 0x80'0000));
    sizes[i] = static_cast<std::uint32_t>(1 - more1 - more2 - more3);
  }
  for (std::size_t i = 0; i < kBlock; ++i) {
    std::memcpy(at, &bytes[i], sizeof bytes[i]);
    at += sizes[i];
  }
  return at;
}

char* write_ids(char* at, std::span<const TokenId> ids) {
  for (; ids.size() >= kBlock; ids = ids.subspan(kBlock)) {
    const auto block = ids.first<kBlock>();
    TokenId all = 0;
    for (const TokenId id : block) {
      all |= id;
    }
    if (all < kFourBytes) {
      at = write_block(at, block);
      continue;
    }
    for (const TokenId id : block) {
      at = write_varint(at, id);
    }
  }
  for (const TokenId id : ids) {
    at = write_varint(at, id);
  }
  return at;
}

}  // namespace

void append_varint(std::string& out, std::uint32_t value) {
  char room[kVarintRoom];
  out.append(room, write_varint(room, value));
}

std::uint32_t packed_size(std::span<const TokenId> ids) {
  std::size_t size = 0;
  for (const TokenId id : ids) {
    size += varint_size(id);
  }
  return static_cast<std::uint32_t>(size);
}

void append_packed(std::string& out, std::span<const TokenId> ids, std::uint32_t size) {
  append_varint(out, size);
  const std::size_t start = out.size();
  out.resize_and_overwrite(start + size + kVarintRoom, [&](char* data, std::size_t) {
    return static_cast<std::size_t>(write_ids(data + start, ids) - data);
  });
}

}  // namespace fairlead::engine
