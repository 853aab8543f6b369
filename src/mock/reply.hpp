#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "mock/token_formula.hpp"

namespace fairlead::mock {

/// Where generated tokens come from.
enum class ReplyMode : std::uint8_t {
  Formula,  ///< `TokenFormula`; never ends by itself.
  Chain,    ///< `TokenChain`; never ends by itself.
  Echo,     ///< The prompt's own tokens; ends behind them.
  Script,   ///< Prepared lists, one per request in order, repeated; each ends behind its list.
  Forced,   ///< One token for ever, by a logits processor.
};

/// Marks the beginning of an answer as reasoning.
struct ReasoningOptions {
  TokenId start_token = 0;  ///< First token of the answer.
  TokenId end_token = 0;    ///< Last token of the reasoning.
  double ratio = 0;         ///< Part of the longest possible answer that is reasoning, 0 to 1.
};

/// The tokens of one answer before stop rules are applied. Cheap to copy.
class Reply {
 public:
  /// Formula tokens of a request.
  Reply(TokenFormula formula, std::uint64_t vocabulary);
  /// Chain tokens.
  Reply(TokenChain chain, std::uint64_t vocabulary);
  /// Echo: the tokens are the first `prompt_tokens` of the span given to `at`.
  static Reply echo();
  /// A prepared list.
  static Reply script(std::shared_ptr<const std::vector<TokenId>> list);

  /// The token at `position`; none when the answer has ended. `prompt` is the request's,
  /// `previous` the token before that place.
  std::optional<TokenId> at(std::uint64_t position, std::span<const TokenId> prompt,
                            TokenId previous = 0) const;
  /// The token at `position` of an answer that begins again when it has ended; none when it is
  /// empty.
  std::optional<TokenId> repeated_at(std::uint64_t position, std::span<const TokenId> prompt,
                                     TokenId previous = 0) const;
  /// Puts reasoning marks around the first tokens of an answer of at most `longest` tokens.
  void add_reasoning(const ReasoningOptions& options, std::uint64_t longest);
  /// Every token is this one; nothing else has a say, and the answer does not end by itself.
  void force(TokenId token);
  /// Puts a token at a place, whatever else were there.
  void put(std::uint64_t position, TokenId token);
  /// Restricts the tokens to these.
  void restrict_to(std::vector<TokenId> allowed);

 private:
  Reply() = default;
  std::optional<std::uint64_t> length(std::span<const TokenId> prompt) const;
  TokenId pick(std::uint64_t position, std::span<const TokenId> prompt, TokenId previous) const;

  ReplyMode mode_ = ReplyMode::Echo;
  TokenFormula formula_{0, {}};
  TokenChain chain_{0};
  std::uint64_t vocabulary_ = 0;
  std::shared_ptr<const std::vector<TokenId>> list_;
  std::shared_ptr<const std::vector<TokenId>> allowed_;
  ReasoningOptions reasoning_;
  std::uint64_t reasoning_tokens_ = 0;  // marks included
  TokenId forced_ = 0;
  std::optional<std::pair<std::uint64_t, TokenId>> put_;
};

/// Deals out replies to requests.
class ReplySource {
 public:
  /// Formula replies. `vocabulary` 0 means any id.
  ReplySource(std::uint64_t seed, std::uint64_t vocabulary)
      : seed_(seed), vocabulary_(vocabulary) {}
  /// Reads `formula`, `chain`, `echo` or `script:FILE`. Errors name the file and the line.
  static Result<ReplySource> parse(std::string_view text, std::uint64_t seed,
                                   std::uint64_t vocabulary);

  /// The reply of the next request; `lora` is its adapter, empty for the base model.
  Reply next(std::string_view request_id, std::string_view lora = {});

 private:
  std::uint64_t seed_;
  std::uint64_t vocabulary_;
  ReplyMode mode_ = ReplyMode::Formula;
  std::vector<std::shared_ptr<const std::vector<TokenId>>> lists_;
  std::size_t next_list_ = 0;
};

}  // namespace fairlead::mock
