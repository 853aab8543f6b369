#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_decoder.hpp"
#include "tokenizer/tokenizer.hpp"

namespace fairlead::tokenizer {

/// Turns one growing sequence of token ids into text, token by token. The pieces together equal the
/// decoding of all ids, and no piece shows a character before all its bytes are there. Constant
/// time per token, no allocation beyond `out`'s own growth, unless the tokenizer has a decoder
/// (`Tokenizer::decoder`): then `TokenDecoder::Stream` says what is held back and where it differs.
/// One object per sequence, one thread at a time.
class IncrementalDecoder {
 public:
  /// `prompt` is what precedes the first pushed id. When it ends inside a character, that character
  /// appears as a whole once pushed ids complete it; its own ill-formed bytes never appear. The
  /// tokenizer must outlive the decoder.
  IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                     std::span<const TokenId> prompt = {});

  /// Appends the text that `id` completes, which may be none. Ill-formed bytes appear as U+FFFD as
  /// soon as they are known to be so; unknown ids are skipped.
  void push(TokenId id, std::string& out);

  /// Ends the sequence: appends U+FFFD for a character that was begun and never completed.
  void flush(std::string& out);

 private:
  bool skipped(TokenId id) const { return skip_special_ && tokenizer_->is_special(id); }
  std::vector<std::string_view> prompt_tail(std::span<const TokenId> prompt) const;
  std::string_view complete_pending(std::string_view bytes, std::string& out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::optional<TokenDecoder::Stream> stream_;  // when the tokenizer has a decoder
  std::array<char, 4> pending_{};               // a character begun and not yet complete
  std::size_t pending_size_ = 0;
  std::size_t pending_prompt_ = 0;  // how many of its bytes are the prompt's
};

}  // namespace fairlead::tokenizer
