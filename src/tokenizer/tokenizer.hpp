#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace fairlead::tokenizer {

class TokenDecoder;
struct AddedIds;
struct LengthRules;

/// A token's number.
using TokenId = std::uint32_t;

/// The special tokens that `tokenizer_config.json` names; chat templates read them as variables.
struct SpecialTokens {
  std::vector<std::pair<std::string, std::string>> named;  ///< `bos_token` … `mask_token` that are
                                                           ///< set, then named extra ones.
  std::vector<std::string> additional;                     ///< Unnamed additional special tokens.

  /// The text of a named token, or null.
  const std::string* find(std::string_view name) const;
};

/// Text to token ids and back, exactly as the reference library (`tokenizers` 0.23) does it for the
/// same `tokenizer.json`. A file with a component that is not supported exactly does not load.
/// Truncation and padding of the file are left to whoever wants them (`length_rules`), as
/// `transformers` switches them off.
/// Immutable after loading and shared by all threads.
class Tokenizer {
 public:
  /// Loads a folder (the tokenizer file that `find_tokenizer_file` gives and, when there,
  /// `tokenizer_config.json`) or one tokenizer file, whose kind its contents tell.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& path);
  /// Builds from the contents of a tokenizer file of this name, of any kind. With a config, which
  /// may be empty, it is the file of a folder, otherwise one by itself.
  static Result<std::shared_ptr<const Tokenizer>> parse_file(
      const std::filesystem::path& name, std::string text,
      std::optional<std::string_view> tokenizer_config_json);
  /// Builds from the files' texts. Special tokens of the config's `added_tokens_decoder` that the
  /// tokenizer lacks are added. The config may be empty.
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view tokenizer_json,
                                                        std::string_view tokenizer_config_json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Appends the ids of `text`. Special tokens spelled out in the text are recognised. Fails with
  /// `InvalidRequest`, leaving `out` as it was, when the text is not valid UTF-8 or is larger than
  /// 1 GiB, or when a regex of the tokenizer gives up on it; with `ClientGone` soon after `stop` is
  /// requested.
  Result<> encode(std::string_view text, bool add_special_tokens, std::vector<TokenId>& out,
                  const std::stop_token& stop = {}) const;
  /// A count of tokens that `encode` certainly reaches, from the text's size and the longest token;
  /// 0 when it may drop text or make one token of any amount of it. `text` is valid UTF-8.
  std::size_t min_tokens(std::string_view text) const;
  /// The text of the ids; unknown ids are skipped and ill-formed bytes become U+FFFD.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  /// Highest id + 1, added tokens included.
  std::size_t vocab_size() const;
  /// The id of a token by its spelling in the vocabulary or its added content.
  std::optional<TokenId> token_to_id(std::string_view token) const;
  /// The bytes that the token adds to a text; not always whole characters. Empty for unknown ids.
  std::string_view token_bytes(TokenId id) const;
  /// The token as the model's files spell it, as `convert_ids_to_tokens` of transformers gives it:
  /// the reverse of `token_to_id`. Empty for unknown ids.
  std::string token_spelling(TokenId id) const;
  /// How tokens become text; null when their bytes behind each other are the text.
  const TokenDecoder* decoder() const;
  /// The token as `decoder` takes it; empty for unknown ids, and for all without a decoder.
  std::string_view decoder_token(TokenId id) const;
  /// True for tokens that `skip_special_tokens` leaves out.
  bool is_special(TokenId id) const;
  /// True when the id has a token.
  bool is_known(TokenId id) const;
  /// What `encode` puts around the ids of a text when special tokens are added.
  const AddedIds& ids_around() const;
  /// What the file says about truncation and padding, which `encode` does not apply.
  const LengthRules& length_rules() const;
  /// The special tokens named in `tokenizer_config.json`.
  const SpecialTokens& special_tokens() const;

 private:
  struct Parts;

  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace fairlead::tokenizer
