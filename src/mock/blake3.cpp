#include "mock/blake3.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace fairlead::mock {
namespace {

using Words = std::array<std::uint32_t, 8>;
using Block = std::array<std::uint32_t, 16>;

constexpr std::size_t kBlockBytes = 64;
constexpr std::size_t kChunkBytes = 1024;
constexpr std::uint32_t kChunkStart = 1;
constexpr std::uint32_t kChunkEnd = 2;
constexpr std::uint32_t kParent = 4;
constexpr std::uint32_t kRoot = 8;

constexpr Words kInitial = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                            0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
constexpr std::array<std::size_t, 16> kPermutation = {2, 6,  3,  10, 7, 0,  4,  13,
                                                      1, 11, 12, 5,  9, 14, 15, 8};

void mix(Block& state, std::size_t a, std::size_t b, std::size_t c, std::size_t d, std::uint32_t x,
         std::uint32_t y) {
  state[a] += state[b] + x;
  state[d] = std::rotr(state[d] ^ state[a], 16);
  state[c] += state[d];
  state[b] = std::rotr(state[b] ^ state[c], 12);
  state[a] += state[b] + y;
  state[d] = std::rotr(state[d] ^ state[a], 8);
  state[c] += state[d];
  state[b] = std::rotr(state[b] ^ state[c], 7);
}

// What one compression needs; the root flag is added when it turns out to be the last.
struct Node {
  Words chaining;
  Block block;
  std::uint64_t counter = 0;
  std::uint32_t length = 0;
  std::uint32_t flags = 0;

  Words compress(std::uint32_t extra_flags) const {
    Block state{};
    std::copy(chaining.begin(), chaining.end(), state.begin());
    std::copy(kInitial.begin(), kInitial.begin() + 4, state.begin() + 8);
    state[12] = static_cast<std::uint32_t>(counter);
    state[13] = static_cast<std::uint32_t>(counter >> 32);
    state[14] = length;
    state[15] = flags | extra_flags;
    Block message = block;
    for (int round = 0; round < 7; ++round) {
      for (std::size_t i = 0; i < 4; ++i) {
        mix(state, i, i + 4, i + 8, i + 12, message[2 * i], message[2 * i + 1]);
      }
      for (std::size_t i = 0; i < 4; ++i) {
        mix(state, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, message[8 + 2 * i],
            message[9 + 2 * i]);
      }
      Block permuted{};
      for (std::size_t i = 0; i < 16; ++i) {
        permuted[i] = message[kPermutation[i]];
      }
      message = permuted;
    }
    Words out{};
    for (std::size_t i = 0; i < 8; ++i) {
      out[i] = state[i] ^ state[i + 8];
    }
    return out;
  }
};

Block load(std::string_view bytes) {
  Block block{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    block[i / 4] |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * (i % 4);
  }
  return block;
}

Node chunk(std::string_view bytes, std::uint64_t counter) {
  Node node{kInitial, {}, counter, 0, kChunkStart};
  while (bytes.size() > kBlockBytes) {
    node.block = load(bytes.substr(0, kBlockBytes));
    node.length = kBlockBytes;
    node.chaining = node.compress(0);
    node.flags = 0;
    bytes.remove_prefix(kBlockBytes);
  }
  node.block = load(bytes);
  node.length = static_cast<std::uint32_t>(bytes.size());
  node.flags |= kChunkEnd;
  return node;
}

// The left subtree holds the largest power of two of chunks that leaves something to the right.
Node tree(std::string_view bytes, std::uint64_t counter) {
  if (bytes.size() <= kChunkBytes) {
    return chunk(bytes, counter);
  }
  const std::size_t left_chunks = std::bit_floor((bytes.size() - 1) / kChunkBytes);
  const Words left = tree(bytes.substr(0, left_chunks * kChunkBytes), counter).compress(0);
  const Words right =
      tree(bytes.substr(left_chunks * kChunkBytes), counter + left_chunks).compress(0);
  Node node{kInitial, {}, 0, kBlockBytes, kParent};
  std::copy(left.begin(), left.end(), node.block.begin());
  std::copy(right.begin(), right.end(), node.block.begin() + 8);
  return node;
}

}  // namespace

std::array<unsigned char, 32> blake3(std::string_view input) {
  const Words words = tree(input, 0).compress(kRoot);
  std::array<unsigned char, 32> out{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<unsigned char>(words[i / 4] >> 8 * (i % 4));
  }
  return out;
}

}  // namespace fairlead::mock
