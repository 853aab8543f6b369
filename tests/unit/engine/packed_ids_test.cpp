#include "engine/packed_ids.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace fairlead::engine {
namespace {

// As protobuf defines it.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value > 0x7F; value >>= 7) {
    out += static_cast<char>(0x80 | (value & 0x7F));
  }
  return out += static_cast<char>(value);
}

TEST(PackedIds, AreVarintsBehindTheirLength) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids(random() % 300);
    // One round in four has ids of all 32 bits.
    const unsigned widest = random() % 4 == 0 ? 33 : 29;
    for (TokenId& id : ids) {
      const unsigned bits = random() % widest;
      id = static_cast<TokenId>((std::uint64_t{1} << bits) - 1 + random() % 3);
    }
    std::string expected;
    for (const TokenId id : ids) {
      expected += varint(id);
    }
    const std::uint32_t size = packed_size(ids);
    ASSERT_EQ(size, expected.size());
    std::string out = "before";
    append_packed(out, ids, size);
    ASSERT_EQ(out, "before" + varint(size) + expected);
  }
}

}  // namespace
}  // namespace fairlead::engine
