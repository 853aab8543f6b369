#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// Most ids that a padded text may have.
inline constexpr std::uint64_t kMaxPaddedIds = std::uint64_t{1} << 24;

/// How a `tokenizer.json` cuts texts of too many tokens.
struct Truncation {
  std::uint64_t max_length = 0;  ///< In tokens, with those that are put around the text.
  std::uint64_t stride = 0;      ///< What parts of a cut text share; ids do not show it.
  bool only_second = false;      ///< Cuts the second text of a pair alone.
  bool at_front = false;         ///< Cuts off the text's beginning instead of its end.
};

/// How a `tokenizer.json` fills texts of too few tokens.
struct Padding {
  std::optional<std::uint64_t> length;  ///< In tokens; none: as long as the longest of a batch.
  std::uint64_t multiple = 0;           ///< What the length must be a multiple of; 0: of nothing.
  TokenId id = 0;                       ///< The token to fill with.
  bool at_front = false;                ///< Fills before the text instead of behind it.
};

/// What a `tokenizer.json` says about the lengths of texts.
struct LengthRules {
  std::optional<Truncation> truncation;  ///< None: texts are not cut.
  std::optional<Padding> padding;        ///< None: texts are not filled.
};

/// Interprets the members `truncation` and `padding`, each null or an object. Fails with
/// `InvalidRequest` on what the reference does not load.
Result<LengthRules> read_length_rules(const json::Value& truncation, const json::Value& padding);

/// Cuts and fills the ids of one text, `before` and `behind` of which were put around it, as the
/// reference's `encode` does. Fails with `InvalidRequest` where that fails, and above
/// `kMaxPaddedIds`.
Result<> apply_length_rules(const LengthRules& rules, std::size_t before, std::size_t behind,
                            std::vector<TokenId>& ids);

}  // namespace fairlead::tokenizer
