#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/regex.hpp"
#include "tokenizer/vocabulary.hpp"

namespace fairlead::tokenizer {

/// A token recognised in the text itself, before the model sees it.
struct AddedToken {
  std::string content;       ///< The text it stands for.
  bool single_word = false;  ///< Only when no word character touches it.
  bool lstrip = false;       ///< Takes the white space before it.
  bool rstrip = false;       ///< Takes the white space behind it.
  bool normalized = false;   ///< Matched in normalized instead of raw text.
  bool special = false;      ///< Left out by `skip_special_tokens`.
  /// Its id, where the kind of file fixes it. Otherwise the reference's rules number the token.
  std::optional<TokenId> id = {};

  /// Member-wise.
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

/// Finds the longest of several literals at the leftmost place.
class LiteralMatcher {
 public:
  /// A match: where, and the index of the literal.
  struct Match {
    Span span;          ///< Bytes of the text.
    std::size_t index;  ///< In the order of `add`.
  };

  /// Adds a literal. Of equal ones the first counts; an empty one is never found.
  void add(std::string_view literal);
  /// The first match that begins at or after `from`.
  std::optional<Match> find(std::string_view text, std::size_t from) const;
  /// True when there is no literal.
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Edge {
    unsigned char byte;
    std::uint32_t node;
  };
  struct Node {
    std::vector<Edge> edges;  // sorted by byte
    std::int64_t index = -1;
  };

  std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};
  std::string first_bytes_;
  std::size_t count_ = 0;
};

/// A part of a text: an added token, or text between them.
struct TextPart {
  Span span;                  ///< Bytes; parts may overlap when `rstrip` is in play.
  std::optional<TokenId> id;  ///< Nothing for text.
};

/// The added tokens of a tokenizer with the reference's rules for their ids and matching.
class AddedVocabulary {
 public:
  /// Adds tokens as one call of the reference does: one that the model or an earlier token spells
  /// keeps that id; the others are numbered from the size of the model's vocabulary on, even when
  /// that id is taken. Tokens with an id of their own have that. `find_in_model` gives the model's
  /// id of a spelling, `model_size` its entries.
  void add(const std::vector<AddedToken>& tokens, std::size_t model_size,
           const std::function<std::optional<TokenId>(std::string_view)>& find_in_model);

  /// Prepares matching. `normalize` gives the normalized form of a content. Of two tokens with the
  /// same form the one with the lower id counts (the reference takes either, by chance).
  template <class Normalize>
  void finish(Normalize&& normalize) {
    for (auto& [id, entry] : by_id_) {
      if (entry.token.normalized) {
        entry.text = normalize(entry.token.content);
      }
      Matching& matching = entry.token.normalized ? normalized_ : raw_;
      matching.literals.add(entry.text);
      matching.ids.push_back(id);
    }
  }

  /// Cuts raw text at the tokens that are matched there; nothing is appended for empty text.
  void split_raw(std::string_view text, std::vector<TextPart>& out) const {
    split(raw_, text, out);
  }
  /// Likewise for normalized text.
  void split_normalized(std::string_view text, std::vector<TextPart>& out) const {
    split(normalized_, text, out);
  }
  /// True when no token is matched in normalized text.
  bool none_normalized() const { return normalized_.literals.empty(); }

  /// One token with its id.
  struct Entry {
    AddedToken token;  ///< As added.
    std::string text;  ///< What it decodes to: the normalized content where that is matched.
  };

  /// The id of a content.
  std::optional<TokenId> find(std::string_view content) const;
  /// Whether decoding may skip tokens that decode to this text.
  bool is_special(const std::string& text) const { return special_contents_.contains(text); }
  /// All tokens by id.
  const std::map<TokenId, Entry>& tokens() const { return by_id_; }

 private:
  struct Matching {
    LiteralMatcher literals;
    std::vector<TokenId> ids;  // by index of the literal
  };

  void split(const Matching& matching, std::string_view text, std::vector<TextPart>& out) const;

  std::unordered_map<std::string, TokenId> ids_;
  std::map<TokenId, Entry> by_id_;
  std::unordered_set<std::string> special_contents_;
  std::size_t new_tokens_ = 0;  // that the model does not have
  Matching raw_;
  Matching normalized_;
};

}  // namespace fairlead::tokenizer
