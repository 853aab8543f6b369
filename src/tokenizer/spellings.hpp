#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// The tokens of a model of the general path: spelling → id and id → spelling. Several spellings
/// may share an id, which then stands for the last one added. Built with `add`, then `finish`;
/// afterwards immutable.
class Spellings {
 public:
  /// No id.
  static constexpr TokenId kNoId = ~TokenId{0};

  /// Adds a token; a repeated spelling takes its last id.
  Result<> add(std::string_view spelling, TokenId id);
  /// Makes lookups possible.
  void finish();

  /// The id of a spelling.
  std::optional<TokenId> find(std::string_view spelling) const;
  /// The ids of several spellings, `kNoId` for those that are unknown. Looking up a few dozen at
  /// once takes less time than one after the other, since the memory they lie in is fetched
  /// together.
  void find(std::span<const std::string_view> spellings, std::span<TokenId> ids) const;
  /// The spelling of an id.
  std::optional<std::string_view> spelling(TokenId id) const;
  /// Calls `visit(spelling, id)` for every spelling, in no order.
  template <class Visit>
  void each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.length != 0) {
        visit(std::string_view(text_).substr(slot.offset, slot.length), TokenId{slot.id});
      }
    }
    for (const auto& [spelling, id] : odd_) {
      visit(std::string_view(spelling), id);
    }
  }
  /// Number of different spellings.
  std::size_t size() const { return size_; }
  /// Highest id + 1.
  std::size_t id_limit() const { return by_id_.size(); }
  /// Length in bytes of the longest spelling.
  std::size_t max_bytes() const { return max_bytes_; }
  /// False when several spellings share an id.
  bool one_to_one() const { return one_to_one_; }

 private:
  struct Pending {
    std::uint32_t offset;
    std::uint32_t length;
    TokenId id;
  };
  struct Place {
    std::uint32_t offset = kUnknown;
    std::uint32_t length = 0;
  };
  // Spellings up to 8 bytes are equal when key and length are; longer ones compare their bytes too.
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t offset = 0;
    std::uint32_t id : 22 = 0;
    std::uint32_t length : 10 = 0;  // 0: free
  };

  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  static constexpr std::uint32_t kMaxSlotBytes = 1023;

  std::string_view view(const Pending& entry) const {
    return std::string_view(text_).substr(entry.offset, entry.length);
  }
  std::size_t probe(std::string_view spelling, std::uint64_t key) const;
  bool insert(const Pending& entry);

  std::string text_;
  std::vector<Pending> pending_;
  std::vector<Place> by_id_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, TokenId> odd_;  // the empty one and very long ones
  std::size_t size_ = 0;
  std::size_t max_bytes_ = 0;
  bool one_to_one_ = true;
};

}  // namespace fairlead::tokenizer
