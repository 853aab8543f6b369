#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/split.hpp"

namespace fairlead::tokenizer {

/// The pre-tokenizer of a byte-level model: `Split` and `Digits` steps, then `ByteLevel`.
/// Immutable.
class PreTokenizer {
 public:
  /// From the `pre_tokenizer` member. Anything that is not exactly supported is an error naming the
  /// component.
  static Result<PreTokenizer> create(const json::Value& config);
  /// One that cuts text as a scanner does, which is not `None`.
  static PreTokenizer of_scanner(Scanner scanner);
  /// Whether the steps are of kinds that `create` knows, in an order that it takes.
  static bool can_do(const json::Value& config);

  /// Appends the ids of a piece of normalized text that holds no added token. Fails once `stop` is
  /// requested.
  Result<> encode(std::string_view text, const BpeModel& model, std::vector<TokenId>& out,
                  const std::stop_token& stop = {}) const;
  /// True when every byte of a text reaches the model.
  bool keeps_text() const;

 private:
  Result<> add(const ComponentConfig& config);
  Result<> add_split(const ComponentConfig& config);
  Result<> add_digits(const ComponentConfig& config);
  Result<> add_byte_level(const ComponentConfig& config);
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
