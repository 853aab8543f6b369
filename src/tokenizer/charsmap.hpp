#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace fairlead::tokenizer {

/// SentencePiece's `precompiled_charsmap`: a double-array trie of byte strings and what each is
/// replaced by. Immutable.
class Charsmap {
 public:
  /// From the bytes of a model file. Fails when they are cut short or the replacements are not
  /// valid UTF-8.
  static Result<Charsmap> create(std::string_view bytes);
  /// From base64, as `tokenizer.json` has it.
  static Result<Charsmap> from_base64(std::string_view text);

  /// What the reference puts for `chunk`: the replacement of the shortest key that it begins with
  /// (sic). Nothing when there is none.
  std::optional<std::string_view> transform(std::string_view chunk) const;

  /// A key at the start of a text.
  struct Match {
    std::size_t length = 0;        ///< Bytes of the key; 0: there is none.
    std::string_view replacement;  ///< What stands for it.
    /// Whether a longer text that begins with this one may have another match.
    bool may_grow = false;
  };
  /// What SentencePiece takes: the longest key that `text` begins with, of the 32 shortest ones.
  Match longest(std::string_view text) const;
  /// Bytes of the longest replacement.
  std::size_t longest_replacement() const;

 private:
  template <class Visit>
  bool walk(std::string_view text, Visit&& visit) const;
  std::optional<std::string_view> replacement(std::uint32_t begin) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace fairlead::tokenizer
