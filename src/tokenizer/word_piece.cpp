#include "tokenizer/word_piece.hpp"

#include <fmt/format.h>

#include "base/utf8.hpp"

namespace fairlead::tokenizer {

WordPieceModel::WordPieceModel(Spellings vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      unk_id_(vocabulary_.find(options_.unk_token)) {
  std::vector<PieceTrie::Piece> keys;
  keys.reserve(vocabulary_.size());
  vocabulary_.each([&](std::string_view text, TokenId id) { keys.push_back({text, id}); });
  trie_ = PieceTrie(keys);
  continuing_ = trie_.walk(PieceTrie::kRoot, options_.continuing_subword_prefix);
}

Result<std::unique_ptr<const Model>> WordPieceModel::create(Spellings vocabulary,
                                                            const WordPieceOptions& options) {
  return std::unique_ptr<const Model>(new WordPieceModel(std::move(vocabulary), options));
}

Result<> WordPieceModel::encode(std::string_view piece, std::vector<TokenId>& out,
                                const std::stop_token& /*stop*/) const {
  const std::size_t before = out.size();
  const std::size_t limit = options_.max_input_chars_per_word;
  const bool short_enough = piece.size() <= limit || utf8::count(piece) <= limit;
  if (short_enough && cut(piece, out)) {
    return {};
  }
  if (!unk_id_) {
    return fail(ErrorCode::InvalidRequest,
                fmt::format("unk_token '{}' is not in the vocabulary", options_.unk_token));
  }
  out.resize(before);
  out.push_back(*unk_id_);
  return {};
}

// False when some part of the word starts no token.
bool WordPieceModel::cut(std::string_view word, std::vector<TokenId>& out) const {
  PieceTrie::Node start = PieceTrie::kRoot;
  for (std::size_t at = 0; at < word.size(); start = continuing_) {
    std::uint32_t longest = PieceTrie::kNoValue;
    std::size_t end = at;
    PieceTrie::Node node = start;
    for (std::size_t next = at; next < word.size() && node != PieceTrie::kNowhere;) {
      node = trie_.step(node, static_cast<unsigned char>(word[next++]));
      if (node != PieceTrie::kNowhere && trie_.value(node) != PieceTrie::kNoValue) {
        longest = trie_.value(node);
        end = next;
      }
    }
    if (longest == PieceTrie::kNoValue) {
      return false;
    }
    out.push_back(longest);
    at = end;
  }
  return true;
}

std::optional<TokenId> WordPieceModel::find(std::string_view spelling) const {
  return vocabulary_.find(spelling);
}

std::optional<std::string_view> WordPieceModel::spelling(TokenId id) const {
  return vocabulary_.spelling(id);
}

}  // namespace fairlead::tokenizer
