#include <algorithm>
#include <string>
#include <utility>

#include "tokenizer/decoder_stages.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

// Holds back what may be the beginning of an occurrence.
class ReplaceStage final : public DecoderStage {
 public:
  ReplaceStage(const Literal& literal, std::string_view content, TokenReceiver& next)
      : DecoderStage(next), search_(literal), content_(content) {}

  void text(std::string_view piece) override {
    scratch_.clear();
    while (search_.next(piece, scratch_)) {
      scratch_ += content_;
    }
    send(scratch_);
  }
  void end_token() override {
    send(search_.held());
    search_.reset();
    next_.end_token();
  }

 private:
  LiteralSearch search_;
  std::string_view content_;
  std::string scratch_;
};

class IntersperseStage final : public DecoderStage {
 public:
  IntersperseStage(std::string_view content, bool in_empty_tokens, TokenReceiver& next)
      : DecoderStage(next), content_(content), in_empty_tokens_(in_empty_tokens) {}

  void text(std::string_view piece) override {
    empty_ = false;
    std::string out = intersperse(piece, content_);
    out.resize(out.size() - content_.size());  // the next piece or the end brings it
    send(out);
  }
  void end_token() override {
    send_token(!empty_ || in_empty_tokens_ ? content_ : std::string_view());
    empty_ = true;
  }

 private:
  std::string_view content_;
  bool in_empty_tokens_;
  bool empty_ = true;
};

// A match may depend on all of its token, so it is held back to its end.
class RegexStage final : public DecoderStage {
 public:
  RegexStage(const step::RegexReplace& replace, TokenReceiver& next)
      : DecoderStage(next), replace_(replace) {}

  void text(std::string_view piece) override { token_ += piece; }
  void end_token() override {
    replace_matches(replace_, token_);
    send_token(token_);
    token_.clear();
  }

 private:
  const step::RegexReplace& replace_;
  std::string token_;
};

// Holds back, as a count, the characters that the token's end would take.
class StripStage final : public DecoderStage {
 public:
  StripStage(const step::Strip& strip, TokenReceiver& next)
      : DecoderStage(next), strip_(strip), left_(strip.start) {}

  void text(std::string_view piece) override {
    const std::string& content = strip_.content;
    for (; left_ != 0 && piece.starts_with(content); --left_) {
      piece.remove_prefix(content.size());
    }
    if (piece.empty()) {
      return;
    }
    left_ = 0;
    if (strip_.stop == 0) {
      return next_.text(piece);
    }
    std::string_view body = piece;
    std::size_t copies = 0;
    for (; body.ends_with(content); ++copies) {
      body.remove_suffix(content.size());
    }
    scratch_.clear();
    if (!body.empty()) {
      append_copies(std::exchange(held_, 0));
      scratch_ += body;
    }
    held_ += copies;
    append_copies(held_ - std::min(held_, strip_.stop));
    held_ = std::min(held_, strip_.stop);
    send(scratch_);
  }
  void end_token() override {
    left_ = strip_.start;
    held_ = 0;
    next_.end_token();
  }

 private:
  void append_copies(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      scratch_ += strip_.content;
    }
  }

  const step::Strip& strip_;
  std::size_t left_;      // copies that the token's start may still lose
  std::size_t held_ = 0;  // copies at the end of what came so far, not passed on
  std::string scratch_;
};

class MetaspaceStage final : public DecoderStage {
 public:
  MetaspaceStage(const step::Metaspace& metaspace, TokenReceiver& next)
      : DecoderStage(next), replacement_(metaspace.replacement), drop_(metaspace.drop_in_first) {}

  void text(std::string_view piece) override {
    scratch_ = piece;
    replacement_.replace_in(scratch_, drop_ ? "" : " ");
    send(scratch_);
  }
  void end_token() override {
    drop_ = false;
    next_.end_token();
  }

 private:
  const Literal& replacement_;
  bool drop_;  // in the first token
  std::string scratch_;
};

}  // namespace

StagePointer replace_stage(const Literal& literal, std::string_view content, TokenReceiver& next) {
  return std::make_unique<ReplaceStage>(literal, content, next);
}

StagePointer make_stage(const step::Intersperse& step, TokenReceiver& next) {
  return std::make_unique<IntersperseStage>(step.content, step.in_empty_tokens, next);
}

StagePointer make_stage(const step::RegexReplace& step, TokenReceiver& next) {
  return std::make_unique<RegexStage>(step, next);
}

StagePointer make_stage(const step::Strip& step, TokenReceiver& next) {
  return std::make_unique<StripStage>(step, next);
}

StagePointer make_stage(const step::Metaspace& step, TokenReceiver& next) {
  return std::make_unique<MetaspaceStage>(step, next);
}

}  // namespace fairlead::tokenizer
