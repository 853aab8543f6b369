#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/request.hpp"

namespace fairlead::engine {

/// Bytes of a protobuf varint.
constexpr std::size_t varint_size(std::uint32_t value) {
  // Without branches, so that sizing a long prompt is vectorized.
  return 1U + (value >= 1U << 7) + (value >= 1U << 14) + (value >= 1U << 21) + (value >= 1U << 28);
}

/// Appends a protobuf varint.
void append_varint(std::string& out, std::uint32_t value);

/// Bytes of the ids of a packed field, without its tag and length.
std::uint32_t packed_size(std::span<const TokenId> ids);

/// Appends the length and the ids of a packed field, whose size is `packed_size`: straight from a
/// request, so that a long prompt is not copied into a message first.
void append_packed(std::string& out, std::span<const TokenId> ids, std::uint32_t size);

}  // namespace fairlead::engine
