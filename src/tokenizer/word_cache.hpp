#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "tokenizer/tokenizer.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// What short words became, for one thread and all models. A word has one place, which belongs to
/// the last word that came to it, so that the size is fixed: 1 MiB for a thread that uses it.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 26;  ///< Longer words are not kept.
  static constexpr std::size_t kMaxIds = 8;     ///< Nor are those of more tokens.

  /// One word.
  struct Entry {
    std::uint32_t serial = 0;      ///< Number of the model; 0 is none.
    std::uint8_t bytes = 0;        ///< Length of the word.
    std::uint8_t ids = 0;          ///< Number of tokens.
    char word[kMaxBytes] = {};     ///< The word.
    TokenId tokens[kMaxIds] = {};  ///< What it became.

    /// Whether this is what `text` became.
    bool holds(std::uint32_t model, std::string_view text) const {
      return serial == model && bytes == text.size() &&
             std::memcmp(word, text.data(), text.size()) == 0;
    }
    /// Keeps what `text` became, unless that is too much.
    void keep(std::uint32_t model, std::string_view text, std::span<const TokenId> became) {
      if (became.size() > kMaxIds) {
        return;
      }
      serial = model;
      bytes = static_cast<std::uint8_t>(text.size());
      ids = static_cast<std::uint8_t>(became.size());
      std::memcpy(word, text.data(), text.size());
      std::copy(became.begin(), became.end(), tokens);
    }
  };
  static_assert(sizeof(Entry) == 64);

  /// A number for a model, which no other one of the process has.
  static std::uint32_t new_model() {
    static std::atomic<std::uint32_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  /// The cache of this thread.
  static WordCache& of_thread() {
    thread_local WordCache cache;
    return cache;
  }

  /// The place of a word that is not longer than `kMaxBytes`.
  Entry& place(std::uint32_t model, std::string_view word) {
    if (entries_ == nullptr) {
      entries_ = std::make_unique<Entry[]>(kEntries);
    }
    const std::size_t salt = std::size_t{model} * 64;  // models do not share the same places
    return entries_[token_slot(token_key(word), word.size() + salt, kEntries - 1)];
  }

 private:
  static constexpr std::size_t kEntries = 1U << 14;

  std::unique_ptr<Entry[]> entries_;
};

}  // namespace fairlead::tokenizer
