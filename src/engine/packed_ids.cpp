#include "engine/packed_ids.hpp"

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
    char* at = data + start;
    for (const TokenId id : ids) {
      at = write_varint(at, id);
    }
    return static_cast<std::size_t>(at - data);
  });
}

}  // namespace fairlead::engine
