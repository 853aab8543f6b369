#include "tokenizer/spellings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

static_assert(kMaxTokenId < 1U << 22, "a slot keeps ids in 22 bits");

Result<> Spellings::add(std::string_view spelling, TokenId id) {
  if (id > kMaxTokenId) {
    return fail(ErrorCode::InvalidRequest, fmt::format("token id {} is above {}", id, kMaxTokenId),
                "model.vocab");
  }
  if (text_.size() + spelling.size() > INT32_MAX) {
    return fail(ErrorCode::InvalidRequest, "the vocabulary is larger than 2 GiB", "model.vocab");
  }
  pending_.push_back(
      {static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(spelling.size()), id});
  text_ += spelling;
  return {};
}

std::size_t Spellings::probe(std::string_view spelling, std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = token_slot(key, spelling.size(), mask);; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.length == 0 ||
        (slot.key == key && slot.length == spelling.size() &&
         (spelling.size() <= 8 ||
          std::memcmp(text_.data() + slot.offset, spelling.data(), spelling.size()) == 0))) {
      return i;
    }
  }
}

// True when the spelling is new.
bool Spellings::insert(const Pending& entry) {
  const std::string_view spelling = view(entry);
  if (spelling.empty() || spelling.size() > kMaxSlotBytes) {
    return odd_.insert_or_assign(std::string(spelling), entry.id).second;
  }
  const std::uint64_t key = token_key(spelling);
  Slot& slot = slots_[probe(spelling, key)];
  const bool is_new = slot.length == 0;
  slot.key = key;
  slot.offset = entry.offset;
  slot.id = entry.id;
  slot.length = static_cast<std::uint32_t>(spelling.size()) & kMaxSlotBytes;
  return is_new;
}

void Spellings::finish() {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(pending_.size() * 2, 16)), {});
  std::size_t limit = 0;
  for (const Pending& entry : pending_) {
    size_ += insert(entry) ? 1 : 0;
    limit = std::max<std::size_t>(limit, std::size_t{entry.id} + 1);
    max_bytes_ = std::max<std::size_t>(max_bytes_, entry.length);
  }
  const bool repeated = size_ != pending_.size();
  std::size_t ids = 0;
  if (repeated) {  // the ids of all but the last one of a spelling are gone
    limit = 0;
    std::erase_if(pending_, [this](const Pending& entry) { return find(view(entry)) != entry.id; });
    for (const Pending& entry : pending_) {
      limit = std::max<std::size_t>(limit, std::size_t{entry.id} + 1);
    }
  }
  by_id_.resize(limit);
  for (const Pending& entry : pending_) {
    ids += by_id_[entry.id].offset == kUnknown ? 1 : 0;
    by_id_[entry.id] = {entry.offset, entry.length};
  }
  one_to_one_ = ids == size_;
  pending_ = {};
}

std::optional<TokenId> Spellings::find(std::string_view spelling) const {
  if (spelling.empty() || spelling.size() > kMaxSlotBytes) {
    const auto it = odd_.find(std::string(spelling));
    return it != odd_.end() ? std::optional(it->second) : std::nullopt;
  }
  const Slot& slot = slots_[probe(spelling, token_key(spelling))];
  return slot.length != 0 ? std::optional<TokenId>(slot.id) : std::nullopt;
}

void Spellings::find(std::span<const std::string_view> spellings, std::span<TokenId> ids) const {
  constexpr std::size_t kTogether = 32;
  std::array<std::uint64_t, kTogether> keys;  // NOLINT: filled below
  for (std::size_t from = 0; from < spellings.size(); from += kTogether) {
    const auto some = spellings.subspan(from, std::min(kTogether, spellings.size() - from));
    for (std::size_t i = 0; i < some.size(); ++i) {
      keys[i] = token_key(some[i]);
      __builtin_prefetch(&slots_[token_slot(keys[i], some[i].size(), slots_.size() - 1)]);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (some[i].empty() || some[i].size() > kMaxSlotBytes) {
        ids[from + i] = find(some[i]).value_or(kNoId);
        continue;
      }
      const Slot& slot = slots_[probe(some[i], keys[i])];
      ids[from + i] = slot.length != 0 ? slot.id : kNoId;
    }
  }
}

std::optional<std::string_view> Spellings::spelling(TokenId id) const {
  if (id >= by_id_.size() || by_id_[id].offset == kUnknown) {
    return std::nullopt;
  }
  return std::string_view(text_).substr(by_id_[id].offset, by_id_[id].length);
}

}  // namespace fairlead::tokenizer
