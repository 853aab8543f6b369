#pragma once

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

 private:
  std::optional<std::uint32_t> first_value(std::string_view chunk) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace fairlead::tokenizer
