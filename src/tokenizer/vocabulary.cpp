#include "tokenizer/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"

namespace fairlead::tokenizer {

namespace {

constexpr std::uint64_t kSeed1 = 0xA0761D6478BD642F;
constexpr std::uint64_t kSeed2 = 0xE7037ED1A0B428DB;

// Longer tokens are rare and live in an ordinary map.
constexpr std::size_t kMaxSlotBytes = 255;

std::uint64_t load64(const char* p) {
  std::uint64_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t load32(const char* p) {
  std::uint32_t value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Up to 8 bytes as a number; different bytes of one length give different numbers.
std::uint64_t pack(const char* p, std::size_t size) {
  if (size >= 4) {
    return load32(p) | load32(p + size - 4) << 32;
  }
  if (size == 0) {
    return 0;
  }
  const auto byte = [p](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(p[i])}; };
  return byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
}

}  // namespace

std::uint64_t hash_bytes(const char* data, std::size_t size) {
  std::uint64_t hash = kSeed1 ^ size;
  while (size > 16) {
    hash = mix(load64(data) ^ kSeed2, load64(data + 8) ^ hash);
    data += 16;
    size -= 16;
  }
  if (size > 8) {
    return mix(load64(data) ^ kSeed2, load64(data + size - 8) ^ hash);
  }
  return mix(pack(data, size) ^ kSeed2, hash);
}

std::uint64_t token_key(std::string_view bytes) {
  return bytes.size() <= 8 ? pack(bytes.data(), bytes.size())
                           : hash_bytes(bytes.data(), bytes.size());
}

std::size_t token_slot(std::uint64_t key, std::size_t length, std::size_t mask) {
  return mix(key ^ kSeed1, kSeed2 + length) & mask;
}

Result<> Vocabulary::check_room(std::size_t bytes, TokenId id) const {
  if (id > kMaxTokenId) {
    return fail(ErrorCode::InvalidRequest, fmt::format("token id {} is above {}", id, kMaxTokenId),
                "model.vocab");
  }
  if (text_.size() + bytes > INT32_MAX) {
    return fail(ErrorCode::InvalidRequest, "the vocabulary is larger than 2 GiB", "model.vocab");
  }
  return {};
}

Result<> Vocabulary::add_bytes(std::string_view bytes, TokenId id) {
  if (Result<> room = check_room(bytes.size(), id); !room) {
    return room;
  }
  pending_.push_back({static_cast<std::uint32_t>(text_.size()),
                      static_cast<std::uint32_t>(bytes.size()), id, true});
  text_ += bytes;
  return {};
}

Result<> Vocabulary::add(std::string_view spelling, TokenId id) {
  if (Result<> room = check_room(spelling.size(), id); !room) {
    return room;
  }
  const auto offset = static_cast<std::uint32_t>(text_.size());
  const bool byte_level = !spelling.empty() && append_byte_level_bytes(text_, spelling);
  if (!byte_level) {
    text_ += spelling;
  }
  pending_.push_back({offset, static_cast<std::uint32_t>(text_.size() - offset), id, byte_level});
  return {};
}

std::size_t Vocabulary::probe(std::string_view bytes, std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = token_slot(key, bytes.size(), mask);; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.length == 0 || (slot.key == key && slot.length == bytes.size() &&
                             (bytes.size() <= 8 || std::memcmp(text_.data() + slot.offset,
                                                               bytes.data(), bytes.size()) == 0))) {
      return i;
    }
  }
}

Result<> Vocabulary::define(TokenId id, std::uint32_t offset, std::size_t length) {
  tokens_.resize(std::max<std::size_t>(tokens_.size(), std::size_t{id} + 1));
  Token& token = tokens_[id];
  if (token.known) {
    return fail(ErrorCode::InvalidRequest, fmt::format("two tokens have the id {}", id),
                "model.vocab");
  }
  token.offset = offset;
  token.length = static_cast<std::uint32_t>(length) & INT32_MAX;
  token.known = 1;
  ++count_;
  return {};
}

Result<> Vocabulary::finish() {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(pending_.size() * 3 / 2, 16)), {});
  tokens_.reserve(pending_.size());
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    constexpr std::size_t kAhead = 16;
    const Pending& ahead = pending_[std::min(i + kAhead, pending_.size() - 1)];
    __builtin_prefetch(
        &slots_[token_slot(token_key(std::string_view(text_).substr(ahead.offset, ahead.length)),
                           ahead.length, slots_.size() - 1)]);
    const Pending& entry = pending_[i];
    const std::string_view bytes = std::string_view(text_).substr(entry.offset, entry.length);
    if (!entry.byte_level) {
      other_spellings_[std::string(bytes)] = {entry.id, entry.offset};
      continue;
    }
    max_bytes_ = std::max(max_bytes_, bytes.size());
    if (bytes.size() > kMaxSlotBytes) {
      long_tokens_[std::string(bytes)] = {entry.id, entry.offset};
      continue;
    }
    const std::uint64_t key = token_key(bytes);
    Slot& slot = slots_[probe(bytes, key)];
    slot.key = key;
    slot.offset = entry.offset;
    slot.id = entry.id & kMaxTokenId;
    slot.length = entry.length & 0xFF;
  }
  pending_ = {};
  text_.shrink_to_fit();
  Result<> result;
  for (const Slot& slot : slots_) {
    if (slot.length != 0 && result) {
      result = define(slot.id, slot.offset, slot.length);
    }
  }
  for (const SlowMap* map : {&long_tokens_, &other_spellings_}) {
    for (const auto& [text, found] : *map) {
      if (result) {
        result = define(found.id, found.offset, text.size());
      }
    }
  }
  return result;
}

std::optional<TokenId> Vocabulary::find_bytes(std::string_view bytes) const {
  if (bytes.empty() || bytes.size() > max_bytes_) {
    return std::nullopt;
  }
  if (bytes.size() > kMaxSlotBytes) {
    const auto it = long_tokens_.find(std::string(bytes));
    return it == long_tokens_.end() ? std::nullopt : std::optional(it->second.id);
  }
  const Slot& slot = slots_[probe(bytes, token_key(bytes))];
  return slot.length == 0 ? std::nullopt : std::optional<TokenId>(slot.id);
}

void Vocabulary::find_bytes(std::span<const std::string_view> several,
                            std::span<TokenId> ids) const {
  constexpr std::size_t kTogether = 32;
  std::array<std::uint64_t, kTogether> keys;  // NOLINT: filled below
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t from = 0; from < several.size(); from += kTogether) {
    const auto some = several.subspan(from, std::min(kTogether, several.size() - from));
    for (std::size_t i = 0; i < some.size(); ++i) {
      keys[i] = token_key(some[i]);
      __builtin_prefetch(&slots_[token_slot(keys[i], some[i].size(), mask)]);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (some[i].size() > 8) {  // its bytes are compared
        __builtin_prefetch(text_.data() + slots_[token_slot(keys[i], some[i].size(), mask)].offset);
      }
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (some[i].empty() || some[i].size() > kMaxSlotBytes) {
        ids[from + i] = find_bytes(some[i]).value_or(kNoToken);
        continue;
      }
      const Slot& slot = slots_[probe(some[i], keys[i])];
      ids[from + i] = slot.length != 0 ? slot.id : kNoToken;
    }
  }
}

std::optional<TokenId> Vocabulary::find_spelling(std::string_view spelling) const {
  std::string bytes;
  if (!spelling.empty() && append_byte_level_bytes(bytes, spelling)) {
    return find_bytes(bytes);
  }
  const auto it = other_spellings_.find(std::string(spelling));
  return it == other_spellings_.end() ? std::nullopt : std::optional(it->second.id);
}

std::string Vocabulary::spelling(TokenId id) const {
  const std::string_view text = bytes(id);
  if (find_bytes(text) != id) {
    return std::string(text);
  }
  std::string out;
  for (const char byte : text) {
    utf8::append(out, byte_level_char(static_cast<unsigned char>(byte)));
  }
  return out;
}

}  // namespace fairlead::tokenizer
