#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "tokenizer/byte_level.hpp"
#include "tokenizer/decoder_stages.hpp"
#include "tokenizer/partial_character.hpp"

namespace fairlead::tokenizer {

namespace {

namespace step = decoder_step;

constexpr std::string_view kReplacement = "\uFFFD";

// Holds back a character that is not complete, and a token's start while it may be a byte's name.
class ByteFallbackStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void text(std::string_view piece) override {
    if (plain_) {
      return next_.text(piece);
    }
    constexpr std::string_view kStart = "<0x";
    if (name_size_ + piece.size() <= name_.size()) {
      piece.copy(name_.data() + name_size_, piece.size());
      name_size_ += piece.size();
      if (name().substr(0, kStart.size()) == kStart.substr(0, name_size_)) {
        return;
      }
      piece = {};
    }
    plain_ = true;
    end_run();
    send(name());
    name_size_ = 0;
    send(piece);
  }
  void end_token() override {
    if (std::exchange(plain_, false)) {
      next_.end_token();
    } else if (const std::optional<char> byte = byte_token(name())) {
      push_byte(*byte);
    } else {
      end_run();
      send_token(name());
    }
    name_size_ = 0;
  }
  void finish() override {
    end_run();
    next_.finish();
  }

 private:
  std::string_view name() const { return {name_.data(), name_size_}; }
  void push_byte(char byte) {
    const PartialCharacter::Outcome outcome = partial_.push(byte);
    send_broken(outcome.broken_bytes);
    if (!outcome.character.empty()) {
      in_stretch_ = true;
      next_.text(outcome.character);
    }
  }
  void send_broken(std::size_t count) {
    if (count != 0) {
      end_stretch();
    }
    for (std::size_t i = 0; i < count; ++i) {
      send_token(kReplacement);
    }
  }
  void end_stretch() {
    if (std::exchange(in_stretch_, false)) {
      next_.end_token();
    }
  }
  void end_run() {
    send_broken(partial_.size());
    partial_.clear();
    end_stretch();
  }

  PartialCharacter partial_;
  bool in_stretch_ = false;     // characters of the run went out, and their token is not ended
  bool plain_ = false;          // the current token is no byte's name
  std::array<char, 6> name_{};  // the start of the current token, while it may be a byte's name
  std::size_t name_size_ = 0;
};

// Whether a token is spelled in byte-level characters shows at its end, or at the first character
// that is none.
class ByteLevelStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void text(std::string_view piece) override {
    if (verbatim_) {
      return send_bytes(piece);
    }
    if (append_byte_level_bytes(bytes_, piece)) {
      token_ += piece;
      return;
    }
    verbatim_ = true;
    token_ += piece;
    send_bytes(token_);
  }
  void end_token() override {
    if (!verbatim_) {
      send_bytes(bytes_);
    }
    verbatim_ = false;
    token_.clear();
    bytes_.clear();
  }
  void finish() override {
    send_token(partial_.size() != 0 ? kReplacement : std::string_view());
    next_.finish();
  }

 private:
  void send_bytes(std::string_view bytes) {
    scratch_.clear();
    for (const char byte : bytes) {
      const PartialCharacter::Outcome outcome = partial_.push(byte);
      for (std::size_t i = 0; i < outcome.broken_parts; ++i) {
        scratch_ += kReplacement;
      }
      scratch_ += outcome.character;
    }
    send(scratch_);
  }

  PartialCharacter partial_;
  bool verbatim_ = false;
  std::string token_;  // the current token, while it may be spelled in byte-level characters
  std::string bytes_;  // what it stands for then
  std::string scratch_;
};

class FuseStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void end_token() override {}
  void finish() override {
    next_.end_token();
    next_.finish();
  }
};

// Holds back a token's start while it may be the prefix.
class JoinStage final : public DecoderStage {
 public:
  JoinStage(const step::Join& join, TokenReceiver& next) : DecoderStage(next), join_(join) {}

  void text(std::string_view piece) override {
    if (decided_) {
      return next_.text(piece);
    }
    start_ += piece;
    if (!join_.prefix || start_.size() >= join_.prefix->size() ||
        !join_.prefix->starts_with(start_)) {
      decide();
    }
  }
  void end_token() override {
    if (!decided_) {
      decide();
    }
    decided_ = false;
    next_.end_token();
  }

 private:
  void decide() {
    decided_ = true;
    if (join_.prefix && start_.starts_with(*join_.prefix)) {
      send(std::string_view(start_).substr(join_.prefix->size()));
    } else {
      start_.insert(0, 1, ' ');
      send(start_);
    }
    start_.clear();
  }

  const step::Join& join_;
  bool decided_ = true;  // the first token goes as it is
  std::string start_;
};

// Holds back a token while it is a beginning of the one before it; keeps the last token.
class DropRepeatedStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void text(std::string_view piece) override {
    const std::size_t before = token_.size();
    token_ += piece;
    if (differs_) {
      next_.text(piece);
    } else if (!any_ ||
               previous_.compare(std::min(before, previous_.size()), piece.size(), piece) != 0) {
      differs_ = true;
      next_.text(before == 0 ? piece : std::string_view(token_));
    }
  }
  void end_token() override {
    if (differs_ || !any_ || token_ != previous_) {
      if (!differs_) {
        send(token_);
      }
      next_.end_token();
    }
    any_ = true;
    differs_ = false;
    previous_.swap(token_);
    token_.clear();
  }

 private:
  bool any_ = false;      // there was a token before
  bool differs_ = false;  // the current token is not the previous one, and went out
  std::string previous_;
  std::string token_;
};

class DropEmptyStage final : public DecoderStage {
 public:
  using DecoderStage::DecoderStage;

  void text(std::string_view piece) override {
    empty_ = false;
    next_.text(piece);
  }
  void end_token() override {
    if (!std::exchange(empty_, true)) {
      next_.end_token();
    }
  }

 private:
  bool empty_ = true;
};

// Holds back the current token from its first suffix on: whether another token follows decides.
class WordEndStage final : public DecoderStage {
 public:
  WordEndStage(const step::WordEnd& end, TokenReceiver& next)
      : DecoderStage(next), suffix_(end.suffix) {
    if (suffix_) {
      search_.emplace(*suffix_);
    }
    found_ = !suffix_;
  }

  void text(std::string_view piece) override {
    begin_token();
    if (!found_) {
      scratch_.clear();
      found_ = search_->next(piece, scratch_);
      send(scratch_);
      held_ = found_ ? suffix_->text() : "";
    }
    if (found_) {
      held_ += piece;
    }
  }
  void end_token() override {
    begin_token();
    ended_ = true;
    if (!found_) {
      send(search_->held());
      search_->reset();
    }
  }
  void finish() override {
    if (ended_) {
      release("");
    }
    next_.finish();
  }

 private:
  void begin_token() {
    if (ended_) {
      release(" ");
    }
  }
  void release(std::string_view content) {
    if (suffix_) {
      suffix_->replace_in(held_, content);
    } else {
      held_ = intersperse(held_, content);
    }
    send_token(held_);
    held_.clear();
    ended_ = false;
    found_ = !suffix_;
  }

  const std::optional<Literal>& suffix_;
  std::optional<LiteralSearch> search_;
  bool found_;          // the current token has a suffix
  bool ended_ = false;  // the current token is complete, and the next one not begun
  std::string held_;
  std::string scratch_;
};

}  // namespace

StagePointer make_stage(const step::ByteFallback& /*step*/, TokenReceiver& next) {
  return std::make_unique<ByteFallbackStage>(next);
}

StagePointer make_stage(const step::ByteLevel& /*step*/, TokenReceiver& next) {
  return std::make_unique<ByteLevelStage>(next);
}

StagePointer make_stage(const step::Fuse& /*step*/, TokenReceiver& next) {
  return std::make_unique<FuseStage>(next);
}

StagePointer make_stage(const step::DropRepeated& /*step*/, TokenReceiver& next) {
  return std::make_unique<DropRepeatedStage>(next);
}

StagePointer make_stage(const step::DropEmpty& /*step*/, TokenReceiver& next) {
  return std::make_unique<DropEmptyStage>(next);
}

StagePointer make_stage(const step::Join& step, TokenReceiver& next) {
  return std::make_unique<JoinStage>(step, next);
}

StagePointer make_stage(const step::WordEnd& step, TokenReceiver& next) {
  return std::make_unique<WordEndStage>(step, next);
}

}  // namespace fairlead::tokenizer
