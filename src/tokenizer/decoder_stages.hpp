#pragma once

#include <memory>
#include <string_view>

#include "tokenizer/decoder_pipeline.hpp"
#include "tokenizer/decoder_step.hpp"

namespace fairlead::tokenizer {

/// What the stages of a pipeline share: a stage hands on unchanged what it has no business with.
class DecoderStage : public TokenReceiver {
 public:
  /// Hands on to `next`, which must outlive the stage.
  explicit DecoderStage(TokenReceiver& next) : next_(next) {}
  void text(std::string_view piece) override { next_.text(piece); }
  void end_token() override { next_.end_token(); }
  void finish() override { next_.finish(); }

 protected:
  /// Hands on a piece that may be empty.
  void send(std::string_view piece) {
    if (!piece.empty()) {
      next_.text(piece);
    }
  }
  /// Hands on the rest of a token and its end.
  void send_token(std::string_view token) {
    send(token);
    next_.end_token();
  }

  TokenReceiver& next_;  ///< The stage behind this one.
};

/// The stage of a step. The step must outlive it.
using StagePointer = std::unique_ptr<TokenReceiver>;

/// Replaces a literal, holding back what may be the beginning of one.
StagePointer replace_stage(const Literal& literal, std::string_view content, TokenReceiver& next);
/// The stages of the steps of the same names, here and below.
StagePointer make_stage(const decoder_step::Intersperse& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::RegexReplace& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::Strip& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::Metaspace& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::ByteFallback& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::ByteLevel& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::Fuse& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::Join& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::DropRepeated& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::DropEmpty& step, TokenReceiver& next);
StagePointer make_stage(const decoder_step::WordEnd& step, TokenReceiver& next);

}  // namespace fairlead::tokenizer
