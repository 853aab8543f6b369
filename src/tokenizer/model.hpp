#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// A model of the general path: words to tokens by their spelling. Immutable, shared by all
/// threads.
class Model {
 public:
  virtual ~Model() = default;

  /// Appends the ids of one piece of the pre-tokenizer, which is well-formed UTF-8. Fails with
  /// `InvalidRequest` where the reference's encode fails, for instance at an unknown word when
  /// there is no unknown token; with `ClientGone` soon after `stop` is requested. After a failure
  /// what was appended means nothing.
  virtual Result<> encode(std::string_view piece, std::vector<TokenId>& out,
                          const std::stop_token& stop) const = 0;
  /// The id of a spelling in the model's vocabulary.
  virtual std::optional<TokenId> find(std::string_view spelling) const = 0;
  /// The spelling of an id; nothing when the model has no such token.
  virtual std::optional<std::string_view> spelling(TokenId id) const = 0;
  /// Number of entries as the reference counts them; added tokens are numbered from here.
  virtual std::size_t size() const = 0;
  /// Highest id + 1.
  virtual std::size_t id_limit() const = 0;
  /// So many characters of a piece become one token at most; 0 when it may be any number of them,
  /// or some become nothing.
  virtual std::size_t longest_token() const { return 0; }
};

}  // namespace fairlead::tokenizer
