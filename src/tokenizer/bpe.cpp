#include "tokenizer/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"

namespace fairlead::tokenizer {

namespace {

// Up to this many symbols, looking at all pairs for each merge beats a heap.
constexpr std::size_t kShortWord = 160;
// Steps of a long word between two looks at whether the result is still wanted; a power of two.
constexpr std::size_t kStopSteps = 1U << 16;

std::uint64_t pair_key(TokenId left, TokenId right) { return std::uint64_t{left} << 32 | right; }

std::size_t pair_slot(std::uint64_t pair, std::size_t mask) {
  const std::uint64_t hash = pair * 0x9E3779B97F4A7C15;
  return (hash >> 32 ^ hash >> 15) & mask;
}

}  // namespace

Result<BpeModel> BpeModel::create(Vocabulary vocabulary, const BpeOptions& options) {
  BpeModel model(std::move(vocabulary), options);
  if (Result<> ready = model.prepare(); !ready) {
    return std::unexpected(ready.error());
  }
  return model;
}

Result<> BpeModel::prepare() {
  all_bytes_ = true;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary_.find_bytes({&c, 1}).value_or(kNoToken);
    fallback_ids_[byte] = {kNoToken, kNoToken};
    if (byte_ids_[byte] != kNoToken) {
      continue;
    }
    all_bytes_ = false;
    if (options_.byte_fallback) {
      // The reference falls back on the bytes of the character that stands for this byte.
      std::string text;
      utf8::append(text, byte_level_char(static_cast<unsigned char>(byte)));
      std::array<TokenId, 2> ids = {kNoToken, kNoToken};
      for (std::size_t i = 0; i < text.size(); ++i) {
        ids[i] = vocabulary_
                     .find_spelling(fmt::format("<0x{:02X}>", static_cast<unsigned char>(text[i])))
                     .value_or(kNoToken);
      }
      if (ids[0] != kNoToken && (text.size() == 1 || ids[1] != kNoToken)) {
        fallback_ids_[byte] = ids;
      }
    }
  }
  if (!all_bytes_ && !options_.unk_token.empty()) {
    const std::optional<TokenId> id = vocabulary_.find_spelling(options_.unk_token);
    if (!id) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("unk_token '{}' is not in the vocabulary", options_.unk_token),
                  "model.unk_token");
    }
    unk_id_ = *id;
  }
  return {};
}

Result<> BpeModel::add_merge(std::string_view left, std::string_view right) {
  scratch_.clear();
  std::optional<TokenId> left_id;
  std::optional<TokenId> right_id;
  std::optional<TokenId> merged_id;
  bool byte_level = append_byte_level_bytes(scratch_, left);
  const std::size_t cut = scratch_.size();
  byte_level = byte_level && append_byte_level_bytes(scratch_, right);
  if (byte_level) {
    const std::string_view bytes = scratch_;
    left_id = vocabulary_.find_bytes(bytes.substr(0, cut));
    right_id = vocabulary_.find_bytes(bytes.substr(cut));
    merged_id = vocabulary_.find_bytes(bytes);
  } else {
    left_id = vocabulary_.find_spelling(left);
    right_id = vocabulary_.find_spelling(right);
    merged_id = vocabulary_.find_spelling(std::string(left) + std::string(right));
  }
  if (!left_id || !right_id || !merged_id) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("merge {} ('{}', '{}'): {} is not in the vocabulary", pending_.size(),
                            left, right,
                            !left_id    ? "its left part"
                            : !right_id ? "its right part"
                                        : "its result"),
                "model.merges");
  }
  pending_.push_back({pair_key(*left_id, *right_id), *merged_id});
  return {};
}

void BpeModel::finish() {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(pending_.size() * 3 / 2, 16)), {});
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t rank = 0; rank < pending_.size(); ++rank) {
    std::size_t i = pair_slot(pending_[rank].pair, mask);
    while (slots_[i].pair != kFree && slots_[i].pair != pending_[rank].pair) {
      i = (i + 1) & mask;
    }
    slots_[i] = {pending_[rank].pair, {static_cast<std::uint32_t>(rank), pending_[rank].id}};
  }
  pending_ = {};
  scratch_ = {};
  whole_ = std::make_unique<std::atomic<Whole>[]>(vocabulary_.id_limit());
}

const BpeModel::Merge& BpeModel::find_merge(TokenId left, TokenId right) const {
  static constexpr Merge kNone{kNoRank, kNoToken};
  const std::uint64_t pair = pair_key(left, right);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = pair_slot(pair, mask);; i = (i + 1) & mask) {
    if (slots_[i].pair == pair) {
      return slots_[i].merge;
    }
    if (slots_[i].pair == kFree) {
      return kNone;
    }
  }
}

bool BpeModel::keeps_bytes() const {
  for (std::size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    const bool unknown = byte_ids_[byte] == kNoToken && fallback_ids_[byte][0] == kNoToken;
    if (unknown && (unk_id_ == kNoToken || options_.fuse_unk)) {
      return false;
    }
  }
  return true;
}

void BpeModel::encode(std::string_view word, std::vector<TokenId>& out,
                      const std::stop_token& stop) const {
  if (word.size() == 1) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(word[0])];
    if (id != kNoToken) {
      out.push_back(id);
      return;
    }
  } else if (const std::optional<TokenId> id = vocabulary_.find_bytes(word)) {
    encode_whole(word, *id, out, stop);
    return;
  }
  merge_word(word, out, stop);
}

void BpeModel::encode_whole(std::string_view word, TokenId id, std::vector<TokenId>& out,
                            const std::stop_token& stop) const {
  std::atomic<Whole>& memo = whole_[id];
  const Whole known = memo.load(std::memory_order_relaxed);
  if (options_.ignore_merges || known == Whole::Yes) {
    out.push_back(id);
    return;
  }
  const std::size_t before = out.size();
  merge_word(word, out, stop);
  if (known == Whole::Unknown && !stop.stop_requested()) {
    const bool whole = out.size() == before + 1 && out.back() == id;
    memo.store(whole ? Whole::Yes : Whole::No, std::memory_order_relaxed);
  }
}

void BpeModel::merge_word(std::string_view word, std::vector<TokenId>& out,
                          const std::stop_token& stop) const {
  if (all_bytes_ && word.size() <= kShortWord) {
    std::array<TokenId, kShortWord> symbols;  // NOLINT: filled below
    for (std::size_t i = 0; i < word.size(); ++i) {
      symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    }
    merge_short(symbols.data(), word.size(), out);
    return;
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  append_symbols(word, symbols);
  if (symbols.size() <= kShortWord) {
    merge_short(symbols.data(), symbols.size(), out);
  } else {
    merge_long(symbols, out, stop);
  }
}

void BpeModel::append_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  bool pending_unk = false;
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte_ids_[byte] != kNoToken) {
      if (pending_unk) {
        symbols.push_back(unk_id_);
        pending_unk = false;
      }
      symbols.push_back(byte_ids_[byte]);
    } else if (fallback_ids_[byte][0] != kNoToken) {
      // Overtakes a pending unknown token, as in the reference.
      for (const TokenId id : fallback_ids_[byte]) {
        if (id != kNoToken) {
          symbols.push_back(id);
        }
      }
    } else if (unk_id_ != kNoToken) {
      if (pending_unk && !options_.fuse_unk) {
        symbols.push_back(unk_id_);
      }
      pending_unk = true;
    }
  }
  if (pending_unk) {
    symbols.push_back(unk_id_);
  }
}

void BpeModel::merge_short(TokenId* symbols, std::size_t count, std::vector<TokenId>& out) const {
  std::array<std::uint32_t, kShortWord> ranks;  // NOLINT: filled below
  std::array<TokenId, kShortWord> merged;       // NOLINT: filled below
  const auto update = [&](std::size_t i) {
    const Merge& merge = find_merge(symbols[i], symbols[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.id;
  };
  for (std::size_t i = 0; i + 1 < count; ++i) {
    update(i);
  }
  while (count > 1) {
    const std::size_t pairs = count - 1;
    std::uint32_t best = kNoRank;
    for (std::size_t i = 0; i < pairs; ++i) {
      best = std::min(best, ranks[i]);
    }
    if (best == kNoRank) {
      break;
    }
    const auto at =
        static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), best) - ranks.begin());
    symbols[at] = merged[at];
    for (std::size_t i = at + 1; i < pairs; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --count;
    if (at > 0) {
      update(at - 1);
    }
    if (at + 1 < count) {
      update(at);
    }
  }
  out.insert(out.end(), symbols, symbols + count);
}

void BpeModel::merge_long(const std::vector<TokenId>& symbols, std::vector<TokenId>& out,
                          const std::stop_token& stop) const {
  constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Node {
    TokenId id;
    std::uint32_t previous;
    std::uint32_t next;
    std::uint32_t rank;  // of the pair that starts here
    TokenId merged;
  };
  const auto count = static_cast<std::uint32_t>(symbols.size());
  std::vector<Node> nodes(count);
  std::vector<std::uint64_t> heap;  // rank << 32 | position: lowest rank first, leftmost on ties
  heap.reserve(count);
  const auto update = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.rank = kNoRank;
    if (node.next != kNone) {
      const Merge& merge = find_merge(node.id, nodes[node.next].id);
      node.rank = merge.rank;
      node.merged = merge.id;
    }
    return node.rank != kNoRank;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, kNoRank, 0};
  }
  const auto entry = [&](std::uint32_t at) { return std::uint64_t{nodes[at].rank} << 32 | at; };
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    if (update(i)) {
      heap.push_back(entry(i));
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  for (std::size_t step = 1; !heap.empty(); ++step) {
    if (step % kStopSteps == 0 && stop.stop_requested()) {
      return;
    }
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    Node& node = nodes[at];
    if (node.rank != top >> 32) {
      continue;  // the pair has changed since
    }
    Node& gone = nodes[node.next];
    gone.rank = kNoRank;
    node.id = node.merged;
    node.next = gone.next;
    if (node.next != kNone) {
      nodes[node.next].previous = at;
    }
    for (const std::uint32_t changed : {node.previous, at}) {
      if (changed != kNone && update(changed)) {
        heap.push_back(entry(changed));
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
      }
    }
  }
  for (std::uint32_t i = 0; i != kNone; i = nodes[i].next) {
    out.push_back(nodes[i].id);
  }
}

}  // namespace fairlead::tokenizer
