#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/component_config.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/scanners.hpp"
#include "tokenizer/unicode.hpp"

namespace fairlead::tokenizer {

/// What `Split` does with the parts its pattern matches.
enum class SplitBehavior : std::uint8_t {
  Removed,             ///< They vanish.
  Isolated,            ///< Each is a piece of its own.
  MergedWithPrevious,  ///< Each ends the piece before it.
  MergedWithNext,      ///< Each begins the piece after it.
  Contiguous,          ///< Adjacent ones form one piece.
};

/// One `Split` step.
class Split {
 public:
  /// Takes a piece, which is not empty; a failure ends the splitting.
  using Sink = std::function<Result<>(const Span&)>;

  /// A regex, run by a hand-written scanner when one equals it (not with `force_regex`, which is
  /// for comparing the two).
  static Result<Split> from_regex(std::string_view pattern, SplitBehavior behavior, bool invert,
                                  bool force_regex = false);
  /// A literal; an empty one matches between any two characters.
  static Result<Split> from_string(std::string_view literal, SplitBehavior behavior, bool invert);
  /// Single characters that are not 0 in a table, which must outlive the object.
  static Split from_characters(const CodePointTable& characters, SplitBehavior behavior);

  /// Passes on the pieces of `text` in order. Fails once `stop` is requested.
  Result<> each(std::string_view text, const Sink& sink, const std::stop_token& stop = {}) const;
  /// Appends the pieces of `text`, offset by `base`.
  Result<> apply(std::string_view text, std::size_t base, std::vector<Span>& out,
                 const std::stop_token& stop = {}) const;
  /// True when the pieces always cover the whole text.
  bool keeps_text() const {
    return behavior_ != SplitBehavior::Removed || scanner_ != Scanner::None;
  }

  /// The scanner that may replace `apply`: its words are the pieces. `None` when the behaviour or
  /// the pattern needs `apply`.
  Scanner scanner() const { return scanner_; }

 private:
  template <class Found>
  Result<> find(std::string_view text, Found&& found, const std::stop_token& stop) const;

  std::optional<Regex> regex_;
  std::string literal_;
  const CodePointTable* characters_ = nullptr;
  SplitBehavior behavior_ = SplitBehavior::Isolated;
  bool invert_ = false;
  Scanner scanner_ = Scanner::None;
};

/// The member `behavior` of a component.
Result<SplitBehavior> read_behavior(const ComponentConfig& config);
/// A `Split` by its configuration, of which the caller has read `invert`.
Result<Split> read_split(const ComponentConfig& config, const Result<bool>& invert);

/// `Digits`: isolates numeric characters, or runs of them.
Split split_digits(bool individual);

}  // namespace fairlead::tokenizer
