#include "kv/prefix_walk.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace fairlead::kv {
namespace {

constexpr std::size_t kMostTables = 3;
constexpr std::size_t kAhead = 32;      // blocks being fetched
constexpr std::size_t kLookAhead = 16;  // blocks looked for where they probably are
constexpr std::size_t kKnownAhead = 8;  // blocks whose set is known, large ones being fetched
constexpr std::size_t kMostWords = kMaxTargets / 64;
constexpr std::size_t kListed = 64;

// The targets that hold every block so far: a bitmap, and a list of them once they are few.
class LiveTargets {
 public:
  LiveTargets(const TargetMask& mask, std::vector<Overlap>& out) : words_(mask.words()), out_(out) {
    for (std::size_t i = 0; i < words_; ++i) {
      bits_[i] = mask.word(i);
      count_ += static_cast<std::size_t>(std::popcount(bits_[i]));
    }
  }

  bool empty() const { return count_ == 0; }

  // Keeps the members of `set`; who drops out has `depth` blocks.
  void keep(std::uint64_t set, std::uint32_t depth) {
    if (set_word::is_large(set)) {
      const LargeSet& large = *set_word::large(set);
      if (large.bitmap_words() > 0) {
        keep_bitmap(large, depth);
      } else {
        keep_list(large, depth);
      }
      return;
    }
    // Neighbouring blocks mostly have the same few targets.
    if (set == last_inline_ && set != 0) {
      return;
    }
    for (unsigned i = 0; i < set_word::inline_size(set); ++i) {
      take(set_word::inline_id(set, i));
    }
    settle(depth);
    last_inline_ = set;
  }

  // The same for the union of several sets.
  void keep_any(std::span<const std::uint64_t> sets, std::uint32_t depth) {
    std::array<std::uint64_t, kMostWords> any;
    std::fill_n(any.begin(), words_, 0);
    for (const std::uint64_t set : sets) {
      add_members(set, any);
    }
    intersect([&any](std::size_t i) { return any[i]; }, depth);
  }

  // Whoever is left has `depth` blocks.
  void finish(std::uint32_t depth) {
    drop_all(depth);
    out_.resize(written_);
  }

 private:
  bool test(TargetId target) const {
    return target / 64U < words_ && (bits_[target / 64U] >> (target % 64U) & 1U) != 0;
  }
  void flip(TargetId target) { bits_[target / 64U] ^= std::uint64_t{1} << (target % 64U); }

  // Room for so many more answers. What a caller's earlier call left in `out_` is written over, so
  // that nothing is cleared first only to be written then.
  Overlap* room(std::size_t more) {
    if (out_.size() < written_ + more) {
      out_.resize(std::max(written_ + more, 2 * out_.size()));
    }
    return out_.data() + std::exchange(written_, written_ + more);
  }

  void emit(TargetId target, std::uint32_t depth) {
    if (depth > 0) {
      *room(1) = {.target = target, .device = depth};
    }
  }

  // Moves a live target to `kept_`. Each at most once, however often a list shows it.
  void take(TargetId target) {
    if (test(target)) {
      flip(target);
      kept_[kept_count_++] = target;
    }
  }

  // Makes `kept_` the live targets; the others drop out.
  void settle(std::uint32_t depth) {
    if (kept_count_ != count_) {
      drop_all(depth);
      ids_ = kept_;
      count_ = kept_count_;
      listed_ = true;
    }
    for (std::size_t i = 0; i < kept_count_; ++i) {
      flip(kept_[i]);
    }
    kept_count_ = 0;
  }

  void drop_all(std::uint32_t depth) {
    if (depth == 0) {
      std::fill_n(bits_.begin(), words_, 0);
    } else if (listed_) {
      for (std::size_t i = 0; i < count_; ++i) {
        if (test(ids_[i])) {
          flip(ids_[i]);
          emit(ids_[i], depth);
        }
      }
    } else {
      for (std::size_t i = 0; i < words_; ++i) {
        emit_word(i, bits_[i], depth);
        bits_[i] = 0;
      }
    }
    count_ = 0;
  }

  // One growth for all: a block that everyone has ends many targets at once.
  void emit_word(std::size_t i, std::uint64_t word, std::uint32_t depth) {
    if (depth == 0 || word == 0) {
      return;
    }
    Overlap* to = room(static_cast<std::size_t>(std::popcount(word)));
    for (; word != 0; word &= word - 1) {
      const auto bit = static_cast<std::size_t>(std::countr_zero(word));
      *to++ = {.target = static_cast<TargetId>(i * 64 + bit), .device = depth};
    }
  }

  void keep_list(const LargeSet& set, std::uint32_t depth) {
    last_inline_ = 0;
    for (std::size_t i = 0; i < set.list_places(); ++i) {
      if (const std::uint16_t place = set.list_place(i); place != 0) {
        take(static_cast<TargetId>(place - 1));
      }
    }
    settle(depth);
  }

  void keep_bitmap(const LargeSet& set, std::uint32_t depth) {
    last_inline_ = 0;
    const std::size_t known = set.bitmap_words();
    if (!listed_) {
      intersect([&](std::size_t i) { return i < known ? set.bitmap_word(i) : 0; }, depth);
      return;
    }
    std::size_t left = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const TargetId target = ids_[i];
      if (set.bitmap_has(target)) {
        ids_[left++] = target;
      } else {
        flip(target);
        emit(target, depth);
      }
    }
    count_ = left;
  }

  template <class Word>
  void intersect(Word&& word, std::uint32_t depth) {
    std::size_t dropped = 0;
    for (std::size_t i = 0; i < words_; ++i) {
      const std::uint64_t gone = bits_[i] & ~word(i);
      if (gone != 0) {
        dropped += static_cast<std::size_t>(std::popcount(gone));
        bits_[i] &= ~gone;
        emit_word(i, depth > 0 ? gone : 0, depth);
      }
    }
    if (dropped == 0) {
      return;
    }
    count_ -= dropped;
    if (count_ <= kListed) {
      list();
    }
  }

  void list() {
    std::size_t count = 0;
    for (std::size_t i = 0; i < words_; ++i) {
      for (std::uint64_t word = bits_[i]; word != 0; word &= word - 1) {
        ids_[count++] =
            static_cast<TargetId>(i * 64 + static_cast<std::size_t>(std::countr_zero(word)));
      }
    }
    listed_ = true;
  }

  void add_members(std::uint64_t set, std::array<std::uint64_t, kMostWords>& any) const {
    const auto add = [&](TargetId target) {
      if (target / 64U < words_) {
        any[target / 64U] |= std::uint64_t{1} << (target % 64U);
      }
    };
    if (set_word::is_large(set)) {
      const LargeSet& large = *set_word::large(set);
      for (std::size_t i = 0; i < std::min(words_, large.bitmap_words()); ++i) {
        any[i] |= large.bitmap_word(i);
      }
      for (std::size_t i = 0; i < large.list_places(); ++i) {
        if (const std::uint16_t place = large.list_place(i); place != 0) {
          add(static_cast<TargetId>(place - 1));
        }
      }
      return;
    }
    for (unsigned i = 0; i < set_word::inline_size(set); ++i) {
      add(set_word::inline_id(set, i));
    }
  }

  const std::size_t words_;
  std::vector<Overlap>& out_;
  std::size_t written_ = 0;  // of it
  std::size_t count_ = 0;
  std::size_t kept_count_ = 0;
  bool listed_ = false;            // `ids_` holds the live targets
  std::uint64_t last_inline_ = 0;  // live targets are among these; 0 = unknown
  std::array<std::uint64_t, kMostWords> bits_;
  std::array<TargetId, kListed> ids_;
  std::array<TargetId, kListed> kept_;
};

void fetch_set(std::uint64_t word) {
  if (set_word::is_large(word)) {
    const auto* const at = reinterpret_cast<const char*>(set_word::large(word));
    __builtin_prefetch(at);
    __builtin_prefetch(at + 64);
    __builtin_prefetch(at + 128);
    __builtin_prefetch(at + 192);
    __builtin_prefetch(at + 256);
  }
}

}  // namespace

void walk_prefix(std::span<const BlockTable* const> tables, std::span<const SequenceHash> prompt,
                 const TargetMask& mask, std::vector<Overlap>& out) {
  LiveTargets live(mask, out);
  const std::size_t blocks = prompt.size();
  const std::size_t tiers = std::min(tables.size(), kMostTables);
  std::array<std::array<BlockTable::Place, kMostTables>, kAhead> places;
  std::array<std::array<std::uint64_t, kMostTables>, kAhead> sets;
  std::array<std::uint8_t, kAhead> open;  // tiers in which the search goes on, as bits
  std::size_t placed = 0;
  std::size_t looked = 0;
  std::size_t known = 0;
  std::size_t depth = 0;
  for (; depth < blocks && !live.empty(); ++depth) {
    for (const std::size_t until = std::min(depth + kAhead, blocks); placed < until; ++placed) {
      for (std::size_t tier = 0; tier < tiers; ++tier) {
        places[placed % kAhead][tier] = tables[tier]->place(prompt[placed]);
      }
    }
    // Slowly at first: many prompts end at their first block.
    for (const std::size_t until = std::min({4 * depth + 1, depth + kLookAhead, blocks});
         looked < until; ++looked) {
      const std::size_t at = looked % kAhead;
      open[at] = 0;
      for (std::size_t tier = 0; tier < tiers; ++tier) {
        const bool ended = BlockTable::look(places[at][tier], sets[at][tier]);
        open[at] |= static_cast<std::uint8_t>(ended ? 0U : 1U << tier);
        fetch_set(sets[at][tier]);
      }
    }
    for (const std::size_t until = std::min({2 * depth + 1, depth + kKnownAhead, blocks});
         known < until; ++known) {
      const std::size_t at = known % kAhead;
      for (std::size_t tier = 0; open[at] != 0 && tier < tiers; ++tier) {
        if ((open[at] >> tier & 1U) != 0) {
          sets[at][tier] = BlockTable::find(places[at][tier]);
          fetch_set(sets[at][tier]);
        }
      }
    }
    const auto& set = sets[depth % kAhead];
    if (tiers == 1) {
      live.keep(set[0], static_cast<std::uint32_t>(depth));
    } else {
      live.keep_any(std::span(set).first(tiers), static_cast<std::uint32_t>(depth));
    }
  }
  live.finish(static_cast<std::uint32_t>(depth));
}

}  // namespace fairlead::kv
