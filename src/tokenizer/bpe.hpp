#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/bpe_paths.hpp"
#include "tokenizer/merges.hpp"
#include "tokenizer/vocabulary.hpp"
#include "tokenizer/word_cache.hpp"

namespace fairlead::tokenizer {

/// Options of a `BPE` model that change its result.
struct BpeOptions {
  std::string unk_token;       ///< Stands for bytes without a token; they vanish when it is empty.
  bool fuse_unk = false;       ///< Adjacent unknown tokens become one.
  bool byte_fallback = false;  ///< Bytes without a token become `<0xNN>` tokens when those exist.
  bool ignore_merges = false;  ///< A word that is a token is that token, whatever the merges say.
};

/// A byte-level byte-pair-encoding model. Build it with `add_merge` in rank order, then `finish`;
/// afterwards immutable but for a memo of whole words, and shared by all threads.
class BpeModel {
 public:
  /// Takes a finished vocabulary.
  static Result<BpeModel> create(Vocabulary vocabulary, const BpeOptions& options);

  /// Adds the merge of two tokens given by their spelling; each next one has a higher rank. Fails
  /// when one of them or their concatenation is no token.
  Result<> add_merge(std::string_view left, std::string_view right);
  /// The same for many.
  Result<> add_merges(std::span<const SpelledMerge> merges);
  /// The same by ids, all of which are of tokens.
  void add_merge(const BpePaths::Pair& pair);
  /// Makes `encode` possible.
  void finish();

  /// Appends the ids of one word, that is of the bytes between two boundaries of the pre-tokenizer.
  /// Time grows linearly, or with n log n where the merges allow no
  /// better. The word is shorter than 1 GiB. Once `stop` is requested, what is
  /// appended for a long word means nothing.
  void encode(std::string_view word, std::vector<TokenId>& out,
              const std::stop_token& stop = {}) const;
  /// The same for words that lie behind each other in `text`: the first one begins at `begin`,
  /// each ends at one of `ends`, of which there are 1 to `kBatch`.
  void encode(std::string_view text, std::size_t begin, std::span<const std::size_t> ends,
              std::vector<TokenId>& out, const std::stop_token& stop = {}) const;
  /// Most words that are encoded together.
  static constexpr std::size_t kBatch = WordCache::kBatch;
  /// True when every byte of a word ends up in some token, so that no token stands for more bytes
  /// than the longest one has.
  bool keeps_bytes() const;

  /// The tokens.
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  enum class Whole : std::uint8_t { Unknown, Yes, No };

  explicit BpeModel(Vocabulary vocabulary, const BpeOptions& options)
      : vocabulary_(std::move(vocabulary)), options_(options) {}

  Result<> prepare();
  void encode_new(std::string_view word, std::vector<TokenId>& out,
                  const std::stop_token& stop) const;
  void encode_whole(std::string_view word, TokenId id, std::vector<TokenId>& out,
                    const std::stop_token& stop) const;
  void merge_word(std::string_view word, std::vector<TokenId>& out,
                  const std::stop_token& stop) const;
  void append_symbols(std::string_view word, std::vector<TokenId>& symbols) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::array<TokenId, 256> byte_ids_{};
  std::array<std::array<TokenId, 2>, 256> fallback_ids_{};
  bool all_bytes_ = false;
  TokenId unk_id_ = kNoToken;
  std::vector<BpePaths::Pair> pairs_;  // until `finish`
  MergeTable merges_;
  BpePaths paths_;
  bool has_paths_ = false;
  std::vector<std::uint64_t> arises_;  // a bit for each token that `paths_` knows to arise
  std::uint32_t serial_ = 0;           // of this model in the threads' word caches
  std::string scratch_;
  // Whether a token's bytes, as a word, encode to that token alone. Filled on first use; every
  // thread computes the same value, so racing writes are harmless.
  std::unique_ptr<std::atomic<Whole>[]> whole_;
};

}  // namespace fairlead::tokenizer
