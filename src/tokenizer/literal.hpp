#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::tokenizer {

/// A non-empty literal to search for, with what a search across pieces of a text needs. Immutable.
class Literal {
 public:
  /// Takes the literal; not empty.
  explicit Literal(std::string text);

  /// The literal itself.
  const std::string& text() const { return text_; }
  /// Replaces every occurrence in `subject`, from the left, by `content`.
  void replace_in(std::string& subject, std::string_view content) const;

 private:
  friend class LiteralSearch;

  std::string text_;
  std::vector<std::uint32_t> borders_;  // by length of a prefix: its longest border
};

/// Finds a literal in a text that arrives in pieces. What is held back between two pieces is a
/// beginning of the literal itself, so its length is all the state there is.
class LiteralSearch {
 public:
  /// The literal must outlive the search.
  explicit LiteralSearch(const Literal& literal) : literal_(&literal) {}

  /// Reads `piece` up to the end of the first occurrence, or whole. Appends to `out` the text
  /// before the occurrence, or all that can no longer begin one. True when one was found; `piece`
  /// is then what follows it.
  bool next(std::string_view& piece, std::string& out);
  /// The text held back, which may still become an occurrence.
  std::string_view held() const { return std::string_view(literal_->text_).substr(0, matched_); }
  /// Forgets what is held back.
  void reset() { matched_ = 0; }

 private:
  const Literal* literal_;
  std::size_t matched_ = 0;
};

}  // namespace fairlead::tokenizer
