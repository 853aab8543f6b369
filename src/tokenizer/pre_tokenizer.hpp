#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/regex.hpp"
#include "tokenizer/scanners.hpp"

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
  /// A regex, run by a hand-written scanner when one equals it (not with `force_regex`, which is
  /// for comparing the two).
  static Result<Split> from_regex(std::string_view pattern, SplitBehavior behavior, bool invert,
                                  bool force_regex = false);
  /// A literal, which must not be empty.
  static Result<Split> from_string(std::string_view literal, SplitBehavior behavior, bool invert);

  /// Appends the non-empty pieces of `text`, offset by `base`. Fails once `stop` is requested.
  Result<> apply(std::string_view text, std::size_t base, std::vector<Span>& out,
                 const std::stop_token& stop = {}) const;
  /// True when the pieces always cover the whole text.
  bool keeps_text() const {
    return behavior_ != SplitBehavior::Removed || scanner_ != Scanner::None;
  }

  /// The scanner that replaces the regex, or `None`.
  Scanner scanner() const { return scanner_; }

 private:
  struct Part {
    Span span;
    bool matched;
  };

  Result<> find_parts(std::string_view text, std::vector<Part>& parts,
                      const std::stop_token& stop) const;

  std::optional<Regex> regex_;
  std::string literal_;
  SplitBehavior behavior_ = SplitBehavior::Isolated;
  bool invert_ = false;
  Scanner scanner_ = Scanner::None;
};

/// The pre-tokenizer of a byte-level model: `Split` and `Digits` steps, then `ByteLevel`.
/// Immutable.
class PreTokenizer {
 public:
  /// From the `pre_tokenizer` member. Anything that is not exactly supported is an error naming the
  /// component.
  static Result<PreTokenizer> create(const json::Value& config);

  /// Appends the ids of a piece of normalized text that holds no added token. Fails once `stop` is
  /// requested.
  Result<> encode(std::string_view text, const BpeModel& model, std::vector<TokenId>& out,
                  const std::stop_token& stop = {}) const;
  /// True when every byte of a text reaches the model.
  bool keeps_text() const;

 private:
  Result<> add(const json::Value& config);
  Result<> add_split(const json::Value& config);
  Result<> add_digits(const json::Value& config);
  Result<> add_byte_level(const json::Value& config);
  Result<> encode_piece(std::string_view piece, const BpeModel& model, std::vector<TokenId>& out,
                        const std::stop_token& stop) const;

  std::vector<Split> splits_;
  std::vector<std::string> isolated_;  // the patterns of Splits that isolate; while building
  Scanner scanner_ = Scanner::None;    // stands for all of `splits_`
  bool byte_level_ = false;
  bool add_prefix_space_ = false;
  bool use_regex_ = false;
};

}  // namespace fairlead::tokenizer
