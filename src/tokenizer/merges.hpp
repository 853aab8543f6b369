#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// A merge by the spelling of its parts.
struct SpelledMerge {
  std::string_view left;   ///< First token.
  std::string_view right;  ///< Second token, with its prefix if there is one.
  /// Its rank is that of the merge before it. Only for models without prefix and suffix whose
  /// spellings are one to one with their ids.
  bool same_rank = false;
};

/// The merges of a byte-pair model: which neighbours become which token, and in what order. Built
/// with `add` in rank order, then `finish`; afterwards immutable and shared by all threads.
class MergeTable {
 public:
  /// What a pair becomes. Lower ranks go first.
  struct Merge {
    std::uint32_t rank;  ///< Its place among all merges, `kNoRank` when there is none.
    TokenId id;          ///< The token.
  };

  /// The rank of pairs that stay apart.
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  /// Up to this many symbols `merge` needs no memory beside the stack.
  static constexpr std::size_t kShort = 160;

  /// How `merge` treats a pair that has changed since it was queued.
  enum class Stale : std::uint8_t {
    Skipped,       ///< It is left to its new place in the queue.
    JudgedByToken  ///< As the reference: it merges now if its token is still the queued one.
                   ///< Differs only when different spellings share an id or merges may not
                   ///< lengthen.
  };

  /// Which pairs became tokens of interest. One object per text.
  class Witness {
   public:
    /// `watched` tells by id which tokens are of interest; it must outlive the witness.
    explicit Witness(const std::vector<bool>& watched) : watched_(&watched) {}

    /// The two tokens that were last found beside each other and can become `merged`; none when
    /// there were none.
    std::optional<std::pair<TokenId, TokenId>> last(TokenId merged) const {
      const auto it = pairs_.find(merged);
      return it == pairs_.end() ? std::nullopt : std::optional(it->second);
    }

   private:
    friend class MergeTable;

    void see(TokenId left, TokenId right, TokenId merged) {
      if ((*watched_)[merged]) {
        pairs_[merged] = {left, right};
      }
    }

    const std::vector<bool>* watched_;
    std::unordered_map<TokenId, std::pair<TokenId, TokenId>> pairs_;
  };

  /// Makes room for so many merges.
  void reserve(std::size_t merges) { pending_.reserve(merges); }
  /// Adds the next merge; one pair's last merge counts. `same_rank`: its rank is that of the merge
  /// before it, not the next one; only for `Stale::Skipped`.
  void add(TokenId left, TokenId right, TokenId merged, bool same_rank = false);
  /// Makes lookups possible, and room for so many merges more.
  void finish(Stale stale = Stale::Skipped, std::size_t more = 0);
  /// Adds the next merge behind those before `finish`, which made room for it.
  void insert(TokenId left, TokenId right, TokenId merged) {
    insert(pair_key(left, right), {next_rank_, merged});
  }

  /// Whether a pair has been added more than once.
  bool repeated() const { return repeated_; }
  /// The merge of two tokens, `kNoRank` when there is none.
  const Merge& find(TokenId left, TokenId right) const;

  /// Merges the lowest rank, the leftmost of equals, until no pair is left, and appends the result.
  /// Overwrites `symbols`, of which there are less than 2^31. Time grows with n log n. Once `stop`
  /// is requested, what is appended for many symbols means nothing.
  void merge(std::span<TokenId> symbols, std::vector<TokenId>& out,
             const std::stop_token& stop = {}) const;
  /// The same, for tokens below the size of what is watched. `witness` sees all pairs that have a
  /// merge: those of the symbols from left to right, then those that each merge makes, the one on
  /// its left first.
  void merge(std::span<const TokenId> symbols, std::vector<TokenId>& out, Witness& witness,
             const std::stop_token& stop) const {
    merge_long(symbols, out, stop, &witness);
  }

 private:
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  struct Slot {
    std::uint64_t pair = kFree;
    Merge merge{};
  };
  struct Pending {
    std::uint64_t pair;
    Merge merge;
  };
  class Queue;

  static std::uint64_t pair_key(TokenId left, TokenId right) {
    return std::uint64_t{left} << 32 | right;
  }
  void insert(std::uint64_t pair, const Merge& merge);
  void merge_short(std::span<TokenId> symbols, std::vector<TokenId>& out) const;
  void merge_long(std::span<const TokenId> symbols, std::vector<TokenId>& out,
                  const std::stop_token& stop, Witness* witness = nullptr) const;

  std::vector<Pending> pending_;
  std::vector<Slot> slots_;
  std::uint32_t next_rank_ = 0;        // behind those in the slots
  std::vector<std::uint64_t> filter_;  // bits; pairs without theirs have no merge
  bool repeated_ = false;
  std::vector<TokenId> tokens_;  // by rank; only filled for Stale::JudgedByToken
};

}  // namespace fairlead::tokenizer
