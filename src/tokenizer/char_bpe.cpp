#include "tokenizer/char_bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/utf8_valid.hpp"
#include "tokenizer/word_cache.hpp"

namespace fairlead::tokenizer {

namespace {

// Bytes of cut words between two looks at whether the result is still wanted.
constexpr std::size_t kStopBytes = 1U << 16;
// Symbols are counted in 32 bits.
constexpr std::size_t kMaxSymbols = std::size_t{1} << 31;

std::unexpected<Error> gone() {
  return fail(ErrorCode::ClientGone, "nobody waits for the tokens any more");
}

char32_t last_character(std::string_view text) {
  std::size_t length = 0;
  return decode_valid(text.data() + previous_character(text, text.size()), length);
}

char32_t first_character(std::string_view text) {
  std::size_t length = 0;
  return decode_valid(text.data(), length);
}

}  // namespace

CharBpeModel::CharBpeModel(Spellings vocabulary, CharBpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  serial_ = WordCache::new_model();
}

Result<std::unique_ptr<const Model>> CharBpeModel::create(Spellings vocabulary,
                                                          std::span<const SpelledMerge> merges,
                                                          CharBpeOptions options) {
  std::unique_ptr<CharBpeModel> model(new CharBpeModel(std::move(vocabulary), std::move(options)));
  model->prepare_characters();
  if (Result<> added = model->add_merges(merges); !added) {
    return std::unexpected(added.error());
  }
  // Without prefix and suffix a token's spelling is that of its symbols in a row, and if no two
  // spellings share an id, so are those of the parts of each merge.
  if (model->vocabulary_.one_to_one() && model->options_.continuing_subword_prefix.empty() &&
      model->options_.end_of_word_suffix.empty()) {
    model->find_cuts(merges);
  }
  return model;
}

// The tables know one spelling for each id; without that words are looked up by their text.
void CharBpeModel::prepare_characters() {
  const std::string& prefix = options_.continuing_subword_prefix;
  for (TokenId id = 0; id < vocabulary_.id_limit(); ++id) {
    const std::optional<std::string_view> spelling = vocabulary_.spelling(id);
    if (!spelling || spelling->empty()) {
      continue;
    }
    if (character_length(static_cast<unsigned char>((*spelling)[0])) == spelling->size()) {
      first_.set(first_character(*spelling), id);
    }
    if (!prefix.empty() && spelling->size() > prefix.size() && spelling->starts_with(prefix)) {
      const std::string_view rest = spelling->substr(prefix.size());
      if (character_length(static_cast<unsigned char>(rest[0])) == rest.size()) {
        continuing_.set(first_character(rest), id);
      }
    }
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    fallback_[byte] = options_.byte_fallback
                          ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoToken)
                          : kNoToken;
  }
  if (options_.unk_token) {
    unk_id_ = vocabulary_.find(*options_.unk_token).value_or(kNoToken);
  }
}

Result<> CharBpeModel::add_merges(std::span<const SpelledMerge> merges) {
  constexpr std::size_t kTogether = 32;
  const std::size_t skip = options_.continuing_subword_prefix.size();
  merges_.reserve(merges.size());
  std::string results;
  std::vector<std::string_view> spellings;
  std::vector<TokenId> ids(3 * kTogether);
  for (std::size_t from = 0; from < merges.size(); from += kTogether) {
    const auto some = merges.subspan(from, std::min(kTogether, merges.size() - from));
    results.clear();
    for (const auto& [left, right, same_rank] : some) {
      results += left;
      results += right.substr(std::min(skip, right.size()));  // whether or not it is the prefix
    }
    spellings.clear();
    std::size_t at = 0;
    for (const auto& [left, right, same_rank] : some) {
      const std::size_t size = left.size() + right.size() - std::min(skip, right.size());
      spellings.insert(spellings.end(), {left, right, std::string_view(results).substr(at, size)});
      at += size;
    }
    vocabulary_.find(spellings, ids);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const TokenId* parts = &ids[3 * i];
      const bool too_short = some[i].right.size() < skip;
      if (parts[0] == kNoToken || parts[1] == kNoToken || parts[2] == kNoToken || too_short) {
        return fail(ErrorCode::InvalidRequest,
                    fmt::format("merge {} ('{}', '{}'): {} is not in the vocabulary", from + i,
                                some[i].left, some[i].right,
                                parts[0] == kNoToken   ? "its left part"
                                : parts[1] == kNoToken ? "its right part"
                                                       : "its result"),
                    "model.merges");
      }
      merges_.add(parts[0], parts[1], parts[2], some[i].same_rank);
    }
  }
  merges_.finish(vocabulary_.one_to_one() && skip == 0 ? MergeTable::Stale::Skipped
                                                       : MergeTable::Stale::JudgedByToken);
  return {};
}

void CharBpeModel::find_cuts(std::span<const SpelledMerge> merges) {
  std::vector<MergeCuts::Pair> joined;
  joined.reserve(merges.size());
  for (const auto& [left, right, same_rank] : merges) {
    if (left.empty() || right.empty()) {
      return;
    }
    joined.push_back({last_character(left), first_character(right)});
  }
  cuts_.build(joined, first_);
}

Result<> CharBpeModel::encode(std::string_view piece, std::vector<TokenId>& out,
                              const std::stop_token& stop) const {
  if (piece.empty()) {
    return {};
  }
  if (options_.ignore_merges) {
    if (const std::optional<TokenId> id = vocabulary_.find(piece)) {
      out.push_back(*id);
      return {};
    }
  }
  std::size_t looked = 0;
  std::array<std::size_t, WordCache::kBatch> ends{piece.size()};
  for (std::size_t begin = 0; begin < piece.size();) {
    const std::size_t count = cuts_.empty() ? 1 : cuts_.cut(piece, begin, ends);
    if (Result<> done = encode_parts(piece, begin, std::span(ends).first(count), out, stop);
        !done) {
      return done;
    }
    begin = ends[count - 1];
    if (begin - looked >= kStopBytes) {
      looked = begin;
      if (stop.stop_requested()) {
        return gone();
      }
    }
  }
  return {};
}

Result<> CharBpeModel::encode_parts(std::string_view word, std::size_t begin,
                                    std::span<const std::size_t> ends, std::vector<TokenId>& out,
                                    const std::stop_token& stop) const {
  Result<> result;
  WordCache::of_thread().encode(
      serial_, word, begin, ends, out, [](std::string_view) {},
      [&](std::string_view part, std::vector<TokenId>& into) {
        Result<> done = result ? encode_word(part, into, stop) : result;
        if (!done) {
          result = done;
        }
        return done.has_value();
      });
  return result;
}

// A place for the symbols of a word: on the stack as long as they are few.
class CharBpeModel::Symbols {
 public:
  void push_back(TokenId id) {
    if (count_ < few_.size()) {
      few_[count_++] = id;
      return;
    }
    if (many_.empty()) {
      many_.assign(few_.begin(), few_.end());
    }
    many_.push_back(id);
  }
  std::span<TokenId> all() {
    return many_.empty() ? std::span<TokenId>(few_).first(count_) : std::span<TokenId>(many_);
  }
  void reserve(std::size_t count) {
    if (count > few_.size()) {
      many_.reserve(count);
    }
  }

 private:
  std::array<TokenId, MergeTable::kShort> few_;  // NOLINT: filled up to count_
  std::size_t count_ = 0;
  std::vector<TokenId> many_;
};

Result<> CharBpeModel::encode_word(std::string_view word, std::vector<TokenId>& out,
                                   const std::stop_token& stop) const {
  Symbols symbols;
  symbols.reserve(word.size());
  if (Result<> done = append_symbols(word, symbols); !done) {
    return done;
  }
  const std::span<TokenId> all = symbols.all();
  if (all.size() >= kMaxSymbols) {
    return fail(ErrorCode::InvalidRequest, "the text is too long for this tokenizer");
  }
  merges_.merge(all, out, stop);
  return all.size() > kStopBytes && stop.stop_requested() ? gone() : Result<>();
}

template <class Sink>
bool CharBpeModel::append_fallback(std::string_view bytes, Sink& sink) const {
  const auto id = [this](char c) { return fallback_[static_cast<unsigned char>(c)]; };
  if (!std::all_of(bytes.begin(), bytes.end(), [&](char c) { return id(c) != kNoToken; })) {
    return false;
  }
  for (const char c : bytes) {
    sink.push_back(id(c));
  }
  return true;
}

template <class Sink>
Result<> CharBpeModel::append_symbols(std::string_view word, Sink& sink) const {
  const std::string& prefix = options_.continuing_subword_prefix;
  const std::string& suffix = options_.end_of_word_suffix;
  std::string spelled;
  bool pending_unk = false;
  std::size_t length = 0;
  for (std::size_t at = 0; at < word.size(); at += length) {
    const char32_t character = decode_valid(word.data() + at, length);
    const bool continuing = at > 0 && !prefix.empty();
    const bool last = at + length == word.size() && !suffix.empty();
    const bool plain = !last && vocabulary_.one_to_one();
    TokenId id = plain ? (continuing ? continuing_ : first_).find(character) : kNoToken;
    std::string_view text = word.substr(at, length);
    if ((continuing || last) && id == kNoToken) {
      spelled.assign(continuing ? std::string_view(prefix) : std::string_view());
      spelled += text;
      spelled += last ? std::string_view(suffix) : std::string_view();
      text = spelled;
    }
    if (!plain) {
      id = vocabulary_.find(text).value_or(kNoToken);
    }
    if (id != kNoToken) {
      if (pending_unk) {
        sink.push_back(unk_id_);
        pending_unk = false;
      }
      sink.push_back(id);
    } else if (options_.byte_fallback && append_fallback(text, sink)) {
      // Overtakes a pending unknown token, as in the reference.
    } else if (options_.unk_token) {
      if (unk_id_ == kNoToken) {
        return fail(ErrorCode::InvalidRequest,
                    fmt::format("unk_token '{}' is not in the vocabulary", *options_.unk_token));
      }
      if (pending_unk && !options_.fuse_unk) {
        sink.push_back(unk_id_);
      }
      pending_unk = true;
    }
  }
  if (pending_unk) {
    sink.push_back(unk_id_);
  }
  return {};
}

// A merged token is spelled as the characters it stands for, or longer: with a suffix, or where a
// byte or an unknown character is part of it.
std::size_t CharBpeModel::longest_token() const {
  const bool bytes = std::ranges::find(fallback_, kNoToken) == fallback_.end();
  const bool unknown = options_.unk_token && !options_.unk_token->empty() && !options_.fuse_unk;
  if (!vocabulary_.one_to_one() || !options_.continuing_subword_prefix.empty() ||
      (!bytes && !unknown)) {
    return 0;
  }
  std::size_t longest = 1;
  vocabulary_.each([&](std::string_view spelling, TokenId /*id*/) {
    longest = std::max(longest, utf8::count(spelling));
  });
  return longest;
}

std::optional<TokenId> CharBpeModel::find(std::string_view spelling) const {
  return vocabulary_.find(spelling);
}

std::optional<std::string_view> CharBpeModel::spelling(TokenId id) const {
  return vocabulary_.spelling(id);
}

}  // namespace fairlead::tokenizer
