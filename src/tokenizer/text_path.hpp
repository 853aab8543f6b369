#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/tokenizer_json.hpp"

namespace fairlead::tokenizer {

/// What stands between normalized text and ids: pre-tokenizer, model and decoder of one tokenizer.
/// Immutable, shared by all threads.
class TextPath {
 public:
  virtual ~TextPath() = default;

  /// Appends the ids of a piece of normalized text that holds no added token. `start_bytes`: how
  /// many bytes at its front stand for the first character of the input. Fails as the reference
  /// does, with `ClientGone` soon after `stop` is requested; then what was appended means nothing.
  virtual Result<> encode(std::string_view text, std::size_t start_bytes, std::vector<TokenId>& out,
                          const std::stop_token& stop) const = 0;
  /// The id of a token of the model by its spelling.
  virtual std::optional<TokenId> find(std::string_view spelling) const = 0;
  /// Whether the model has the id.
  virtual bool contains(TokenId id) const = 0;
  /// The model's entries as the reference counts them; added tokens are numbered from here.
  virtual std::size_t size() const = 0;
  /// Highest id of the model + 1.
  virtual std::size_t id_limit() const = 0;
  /// The bytes of the longest token of the model; 0 when a token may stand for any amount of text.
  virtual std::size_t longest_token() const = 0;
  /// So many characters of normalized text become one token of the model at most; 0 when it may be
  /// any number of them, or some become nothing.
  virtual std::size_t longest_token_characters() const { return longest_token(); }

  /// Null when decoding puts the tokens' bytes behind each other.
  virtual const TokenDecoder* decoder() const { return nullptr; }
  /// A token of the model as `decoder` takes it; empty for unknown ids and without a decoder.
  virtual std::string_view decoder_token(TokenId /*id*/) const { return {}; }
  /// A token of the model as the model's files spell it; empty for unknown ids.
  virtual std::string spelling(TokenId id) const = 0;
  /// The bytes that a token of the model adds in the middle of a text; empty for unknown ids.
  virtual std::string_view bytes(TokenId id) const = 0;
  /// The bytes that an added token of this content adds in the middle of a text.
  virtual std::string added_bytes(std::string_view content) const = 0;
};

/// The fast path when the file is that of a byte-level BPE, else the general one. Takes the model
/// out of `file`. What is not exactly supported is an error naming the component.
Result<std::unique_ptr<const TextPath>> make_text_path(const TokenizerFile& file);

}  // namespace fairlead::tokenizer
