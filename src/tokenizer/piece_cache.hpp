#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// What texts between added tokens became, so that the turns of a conversation that were there
/// before need not be encoded again. The texts are kept and compared in full: what is found is what
/// encoding gives, whoever chose the texts. The least recently used go first. Any thread.
class PieceCache {
 public:
  /// Shorter texts are encoded about as fast as they are found.
  static constexpr std::size_t kMinBytes = 512;
  /// Until something else is set.
  static constexpr std::size_t kDefaultLimit = std::size_t{64} << 20;

  /// All that the ids of a text depend on. The text is borrowed.
  struct Key {
    std::uint32_t tokenizer;  ///< Number of the tokenizer, which no other one of the process has.
    bool at_start;            ///< Whether the text begins the input.
    std::string_view text;    ///< Before normalization.
    std::uint64_t hash;       ///< Of all of that.
  };
  /// Counts since the start, and the memory in use.
  struct Stats {
    std::uint64_t hits = 0;    ///< Texts that were found.
    std::uint64_t misses = 0;  ///< Texts that were not.
    std::size_t bytes = 0;     ///< Of all entries, texts and ids.
  };

  /// `limit`: bytes that the entries may take; 0 keeps nothing.
  explicit PieceCache(std::size_t limit = kDefaultLimit);
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  /// The one that all tokenizers use.
  static PieceCache& of_process();
  /// A number for a tokenizer.
  static std::uint32_t new_tokenizer();

  /// Sets how many bytes the entries may take, and drops what is above.
  void set_limit(std::size_t bytes);
  /// Whether it is worth while to ask for a text of this size.
  bool takes(std::size_t text_bytes) const {
    return text_bytes >= kMinBytes && limit_.load(std::memory_order_relaxed) != 0;
  }
  /// The key of a text.
  Key key(std::uint32_t tokenizer, bool at_start, std::string_view text) const;
  /// Appends the ids of a text that is kept; false when it is not.
  bool find(const Key& key, std::vector<TokenId>& out);
  /// Keeps what a text became, unless that alone is more than a quarter of the limit.
  void keep(const Key& key, std::span<const TokenId> ids);
  /// The counts.
  Stats stats() const;

 private:
  struct Entry {
    std::uint64_t hash;
    std::uint32_t tokenizer;
    bool at_start;
    std::string text;
    std::vector<TokenId> ids;

    std::size_t bytes() const;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  using Entries = std::list<EntryPtr>;
  // A part of the entries, so that threads seldom wait for each other. Texts and ids are read and
  // freed without the lock.
  struct Shard {
    mutable std::mutex mutex;
    Entries entries;  // most recently used first
    std::unordered_map<std::uint64_t, Entries::iterator> by_hash;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
  };
  static constexpr std::size_t kShards = 16;

  Shard& shard_of(std::uint64_t hash) { return shards_[hash % kShards]; }
  void remove(Shard& shard, Entries::iterator entry, Entries& removed);
  void shrink(std::size_t first_shard, std::size_t spared);

  const std::uint64_t secret_;  // so that nobody can choose texts whose entries push each other out
  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> bytes_{0};
  std::array<Shard, kShards> shards_;
};

}  // namespace fairlead::tokenizer
