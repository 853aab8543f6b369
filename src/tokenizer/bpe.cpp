#include "tokenizer/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"

namespace fairlead::tokenizer {

namespace {

// Whether merging a word beats following paths: when it is short and its bytes are its characters.
bool merging_is_faster(std::string_view word) {
  return word.empty() || (word.size() < 12 && static_cast<unsigned char>(word.back()) < 0x80);
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
                fmt::format("merge {} ('{}', '{}'): {} is not in the vocabulary", pairs_.size(),
                            left, right,
                            !left_id    ? "its left part"
                            : !right_id ? "its right part"
                                        : "its result"),
                "model.merges");
  }
  add_merge({*left_id, *right_id, *merged_id});
  return {};
}

Result<> BpeModel::add_merges(std::span<const SpelledMerge> merges) {
  constexpr std::size_t kTogether = 16;
  merges_.reserve(merges.size());
  pairs_.reserve(merges.size());
  std::string text;
  std::array<std::size_t, 2 * kTogether + 1> cuts;    // NOLINT: filled below
  std::array<std::string_view, 3 * kTogether> parts;  // left, right, both
  std::array<TokenId, 3 * kTogether> ids;             // NOLINT: filled below
  for (std::size_t from = 0; from < merges.size(); from += kTogether) {
    const auto some = merges.subspan(from, std::min(kTogether, merges.size() - from));
    text.clear();
    for (std::size_t i = 0; i < some.size(); ++i) {
      cuts[2 * i] = text.size();
      bool byte_level = append_byte_level_bytes(text, some[i].left);
      cuts[2 * i + 1] = text.size();
      byte_level = byte_level && append_byte_level_bytes(text, some[i].right);
      text.resize(byte_level ? text.size() : cuts[2 * i]);
      cuts[2 * i + 1] = std::min(cuts[2 * i + 1], text.size());
    }
    cuts[2 * some.size()] = text.size();
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::string_view both =
          std::string_view(text).substr(cuts[2 * i], cuts[2 * i + 2] - cuts[2 * i]);
      const std::size_t left = cuts[2 * i + 1] - cuts[2 * i];
      parts[3 * i] = both.substr(0, left);
      parts[3 * i + 1] = both.substr(left);
      parts[3 * i + 2] = both;
    }
    vocabulary_.find_bytes(std::span(parts).first(3 * some.size()), ids);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const BpePaths::Pair pair{ids[3 * i], ids[3 * i + 1], ids[3 * i + 2]};
      if (pair.left != kNoToken && pair.right != kNoToken && pair.merged != kNoToken) {
        add_merge(pair);
      } else if (Result<> added = add_merge(some[i].left, some[i].right); !added) {
        return added;
      }
    }
  }
  return {};
}

void BpeModel::add_merge(const BpePaths::Pair& pair) {
  merges_.add(pair.left, pair.right, pair.merged);
  pairs_.push_back(pair);
}

void BpeModel::finish() {
  serial_ = WordCache::new_model();
  merges_.finish();
  has_paths_ = all_bytes_ && paths_.build(vocabulary_, byte_ids_, pairs_, merges_);
  arises_.assign(vocabulary_.id_limit() / 64 + 1, 0);
  if (has_paths_) {
    for (TokenId id = 0; id < vocabulary_.id_limit(); ++id) {
      arises_[id / 64] |= std::uint64_t{paths_.arises(id)} << id % 64;
    }
  } else {
    whole_ = std::make_unique<std::atomic<Whole>[]>(vocabulary_.id_limit());
  }
  pairs_ = {};
  scratch_ = {};
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
  const std::size_t end = word.size();
  if (end != 0) {
    encode(word, 0, std::span(&end, 1), out, stop);
  }
}

void BpeModel::encode(std::string_view text, std::size_t begin, std::span<const std::size_t> ends,
                      std::vector<TokenId>& out, const std::stop_token& stop) const {
  WordCache::of_thread().encode(
      serial_, text, begin, ends, out, [&](std::string_view word) { vocabulary_.prefetch(word); },
      [&](std::string_view word, std::vector<TokenId>& into) {
        encode_new(word, into, stop);
        return true;  // a word that can be kept is never cut short by `stop`
      });
}

void BpeModel::encode_new(std::string_view word, std::vector<TokenId>& out,
                          const std::stop_token& stop) const {
  const bool by_paths = has_paths_ && !merging_is_faster(word);
  // Paths find a word that is one token by themselves, unless the merges do not make it.
  if (!by_paths || options_.ignore_merges) {
    if (const std::optional<TokenId> id = vocabulary_.find_bytes(word)) {
      encode_whole(word, *id, out, stop);
      return;
    }
  }
  if (!by_paths || !paths_.encode(word, merges_, out, stop)) {
    merge_word(word, out, stop);
  }
}

void BpeModel::encode_whole(std::string_view word, TokenId id, std::vector<TokenId>& out,
                            const std::stop_token& stop) const {
  if (options_.ignore_merges || (arises_[id / 64] >> id % 64 & 1) != 0) {
    out.push_back(id);
    return;
  }
  if (has_paths_) {
    if (!paths_.encode(word, merges_, out, stop)) {
      merge_word(word, out, stop);
    }
    return;
  }
  std::atomic<Whole>& memo = whole_[id];
  const Whole known = memo.load(std::memory_order_relaxed);
  if (known == Whole::Yes) {
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
  if (all_bytes_ && word.size() <= MergeTable::kShort) {
    std::array<TokenId, MergeTable::kShort> symbols;  // NOLINT: filled below
    for (std::size_t i = 0; i < word.size(); ++i) {
      symbols[i] = byte_ids_[static_cast<unsigned char>(word[i])];
    }
    merges_.merge(std::span(symbols).first(word.size()), out, stop);
    return;
  }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  append_symbols(word, symbols);
  merges_.merge(symbols, out, stop);
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

}  // namespace fairlead::tokenizer
