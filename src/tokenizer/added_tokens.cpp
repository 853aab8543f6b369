#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <cstring>

#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

bool ends_with_word(std::string_view text) {
  std::size_t length = 0;
  return !text.empty() && is_added_token_word(decode_valid(
                              text.data() + previous_character(text, text.size()), length));
}

bool starts_with_word(std::string_view text) {
  std::size_t length = 0;
  return !text.empty() && is_added_token_word(decode_valid(text.data(), length));
}

// Start of the white space that ends at `end`.
std::size_t space_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t start = previous_character(text, end);
    std::size_t length = 0;
    if (!is_white_space(decode_valid(text.data() + start, length))) {
      break;
    }
    end = start;
  }
  return end;
}

// End of the white space that starts at `begin`.
std::size_t space_behind(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    std::size_t length = 0;
    if (!is_white_space(decode_valid(text.data() + begin, length))) {
      break;
    }
    begin += length;
  }
  return begin;
}

}  // namespace

void LiteralMatcher::add(std::string_view literal) {
  const std::size_t index = count_++;
  if (literal.empty()) {
    return;
  }
  std::uint32_t node = 0;
  for (const char c : literal) {
    const auto byte = static_cast<unsigned char>(c);
    std::vector<Edge>& edges = nodes_[node].edges;
    const auto it = std::lower_bound(edges.begin(), edges.end(), byte,
                                     [](const Edge& e, unsigned char b) { return e.byte < b; });
    if (it != edges.end() && it->byte == byte) {
      node = it->node;
      continue;
    }
    const auto created = static_cast<std::uint32_t>(nodes_.size());
    edges.insert(it, {byte, created});
    nodes_.emplace_back();
    node = created;
  }
  if (nodes_[node].index < 0) {
    nodes_[node].index = static_cast<std::int64_t>(index);
  }
  const auto first = static_cast<unsigned char>(literal[0]);
  if (!starts_[first]) {
    starts_[first] = true;
    first_bytes_ += literal[0];
  }
}

std::size_t LiteralMatcher::next_candidate(std::string_view text, std::size_t from) const {
  if (from >= text.size()) {
    return text.size();
  }
  if (first_bytes_.size() == 1) {
    const void* found = std::memchr(text.data() + from, first_bytes_[0], text.size() - from);
    return found == nullptr
               ? text.size()
               : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) {
    ++from;
  }
  return from;
}

std::optional<LiteralMatcher::Match> LiteralMatcher::find(std::string_view text,
                                                          std::size_t from) const {
  if (empty()) {
    return std::nullopt;
  }
  for (std::size_t at = next_candidate(text, from); at < text.size();
       at = next_candidate(text, at + 1)) {
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t pos = at; pos < text.size(); ++pos) {
      const std::vector<Edge>& edges = nodes_[node].edges;
      const auto byte = static_cast<unsigned char>(text[pos]);
      const auto it = std::lower_bound(edges.begin(), edges.end(), byte,
                                       [](const Edge& e, unsigned char b) { return e.byte < b; });
      if (it == edges.end() || it->byte != byte) {
        break;
      }
      node = it->node;
      if (nodes_[node].index >= 0) {
        longest = Match{{at, pos + 1}, static_cast<std::size_t>(nodes_[node].index)};
      }
    }
    if (longest) {
      return longest;
    }
  }
  return std::nullopt;
}

void AddedVocabulary::add(
    const std::vector<AddedToken>& tokens, std::size_t model_size,
    const std::function<std::optional<TokenId>(std::string_view)>& find_in_model) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) {
      continue;
    }
    if (token.special) {
      special_contents_.insert(token.content);
    }
    std::optional<TokenId> id = token.id ? token.id : find(token.content);
    if (!id) {
      id = find_in_model(token.content);
    }
    if (!id) {
      id = static_cast<TokenId>(model_size + new_tokens_++);
    }
    ids_[token.content] = *id;
    by_id_[*id] = {token, token.content};
  }
}

std::optional<TokenId> AddedVocabulary::find(std::string_view content) const {
  const auto it = ids_.find(std::string(content));
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

void AddedVocabulary::split(const Matching& matching, std::string_view text,
                            std::vector<TextPart>& out) const {
  std::size_t done = 0;
  // Matching goes on behind the literal itself, not behind the white space it took, so the same
  // text can be produced twice; the reference does so.
  std::size_t from = 0;
  while (const std::optional<LiteralMatcher::Match> match = matching.literals.find(text, from)) {
    from = match->span.end;
    auto [begin, end] = match->span;
    const TokenId id = matching.ids[match->index];
    const AddedToken& token = by_id_.at(id).token;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(space_before(text, begin), done);
    }
    if (token.rstrip) {
      end = space_behind(text, end);
    }
    if (done < begin) {
      out.push_back({{done, begin}, std::nullopt});
    }
    // Nothing is left of a token of white space that the one before has taken; it vanishes.
    if (begin < end) {
      out.push_back({{begin, end}, id});
    }
    done = end;
  }
  if (done < text.size()) {
    out.push_back({{done, text.size()}, std::nullopt});
  }
}

}  // namespace fairlead::tokenizer
