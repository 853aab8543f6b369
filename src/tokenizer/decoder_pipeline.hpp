#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/decoder_step.hpp"

namespace fairlead::tokenizer {

/// Takes a list of tokens whose text may arrive in pieces: each token is any number of `text`
/// calls, none of them empty, and one `end_token`; `finish` follows the last token.
class TokenReceiver {
 public:
  virtual ~TokenReceiver() = default;
  /// More of the current token, whole characters.
  virtual void text(std::string_view piece) = 0;
  /// The current token is complete.
  virtual void end_token() = 0;
  /// There are no more tokens.
  virtual void finish() = 0;
};

/// Decoder steps over a growing list of tokens. Every step passes on what no later token can
/// change.
class DecoderPipeline {
 public:
  /// The steps must outlive the pipeline and stay in place.
  explicit DecoderPipeline(std::span<const DecoderStep> steps);
  ~DecoderPipeline();

  /// Appends the text that becomes certain with one more token, which is well-formed UTF-8.
  void push(std::string_view token, std::string& out);
  /// Ends the list: appends the rest of the text.
  void finish(std::string& out);

 private:
  class Output;

  std::vector<std::unique_ptr<TokenReceiver>> stages_;  // the output, then last step to first
  Output* output_;
};

}  // namespace fairlead::tokenizer
