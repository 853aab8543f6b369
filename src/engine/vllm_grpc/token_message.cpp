#include "engine/vllm_grpc/token_message.hpp"

#include <cstdint>

namespace fairlead::engine::vllm_grpc {
namespace {

constexpr unsigned char kOutputs = 2 << 3 | 2;
constexpr unsigned char kNumTokens = 3 << 3 | 0;
constexpr unsigned char kTokenIds = 4 << 3 | 2;

/// Reads a varint that fits 32 bits; false when it does not or is cut.
inline bool read_varint(const unsigned char*& at, const unsigned char* end, std::uint32_t& out) {
  if (at == end) {
    return false;
  }
  std::uint32_t byte = *at++;
  if (byte < 0x80) [[likely]] {
    out = byte;
    return true;
  }
  std::uint32_t value = byte & 0x7F;
  for (int shift = 7; shift < 28; shift += 7) {
    if (at == end) {
      return false;
    }
    byte = *at++;
    value |= (byte & 0x7F) << shift;
    if (byte < 0x80) {
      out = value;
      return true;
    }
  }
  if (at == end || *at > 0x0F) {
    return false;
  }
  out = value | static_cast<std::uint32_t>(*at++) << 28;
  return true;
}

}  // namespace

bool decode_token_message(std::string_view message, std::vector<TokenId>& ids) {
  const auto* at = reinterpret_cast<const unsigned char*>(message.data());
  const unsigned char* const end = at + message.size();
  const auto expect_tag = [&](unsigned char tag) {
    if (at == end || *at != tag) {
      return false;
    }
    ++at;
    return true;
  };
  std::uint32_t length = 0;
  std::uint32_t num_tokens = 0;
  if (!expect_tag(kOutputs) || !read_varint(at, end, length) ||
      length != static_cast<std::size_t>(end - at) || !expect_tag(kNumTokens) ||
      !read_varint(at, end, num_tokens) || !expect_tag(kTokenIds) ||
      !read_varint(at, end, length) || length != static_cast<std::size_t>(end - at)) {
    return false;
  }
  ids.clear();
  while (at != end) {
    std::uint32_t id = 0;
    if (!read_varint(at, end, id)) {
      return false;
    }
    ids.push_back(id);
  }
  return !ids.empty() && ids.size() == num_tokens;
}

}  // namespace fairlead::engine::vllm_grpc
