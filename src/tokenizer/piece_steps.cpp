#include "tokenizer/piece_steps.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/component_config.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

Piece cut(const Piece& piece, std::size_t begin, std::size_t end) {
  const std::size_t start_end = std::min(piece.start_bytes, end);
  return {piece.text.substr(begin, end - begin), start_end - std::min(start_end, begin)};
}

class SplitStep final : public PieceStep {
 public:
  explicit SplitStep(Split split) : split_(std::move(split)) {}

  Result<> split(const Piece& piece, const PieceSink& sink,
                 const std::stop_token& stop) const override {
    return split_.each(
        piece.text, [&](const Span& span) { return sink(cut(piece, span.begin, span.end)); }, stop);
  }
  bool keeps_text() const override { return split_.keeps_text(); }

 private:
  Split split_;
};

// Cuts wherever `starts(c)` says that a piece starts; what is before the first such place vanishes.
// `Starts` is made anew for each piece.
template <class Starts>
class CutStep final : public PieceStep {
 public:
  explicit CutStep(Starts starts) : starts_(std::move(starts)) {}

  Result<> split(const Piece& piece, const PieceSink& sink,
                 const std::stop_token& stop) const override {
    Starts starts = starts_;
    std::optional<std::size_t> begin;
    std::size_t next_look = kStopBytes;
    std::size_t length = 0;
    for (std::size_t pos = 0; pos < piece.text.size(); pos += length) {
      if (pos >= next_look) {
        next_look = pos + kStopBytes;
        if (stop.stop_requested()) {
          return stopped();
        }
      }
      if (!starts(decode_valid(piece.text.data() + pos, length))) {
        continue;
      }
      if (begin) {
        if (Result<> taken = sink(cut(piece, *begin, pos)); !taken) {
          return taken;
        }
      }
      begin = pos;
    }
    return begin ? sink(cut(piece, *begin, piece.text.size())) : Result<>();
  }

 private:
  Starts starts_;
};

class FixedLengthStarts {
 public:
  explicit FixedLengthStarts(std::size_t length) : length_(length) {}

  bool operator()(char32_t /*c*/) { return count_++ % length_ == 0; }

 private:
  std::size_t length_;
  std::size_t count_ = 0;
};

class ScriptStarts {
 public:
  bool operator()(char32_t c) {
    static const CodePointTable table(data::kPreTokenizerScripts, data::kPreTokenizerScriptsSize,
                                      8);
    const std::uint8_t script = table[c];
    // A character of no script belongs to whatever it follows.
    if (script == kNone || script == last_) {
      return false;
    }
    last_ = script;
    return true;
  }

 private:
  static constexpr std::uint8_t kNone = 255;

  std::uint8_t last_ = kNone;
};

class WhitespaceStep final : public PieceStep {
 public:
  Result<> split(const Piece& piece, const PieceSink& sink,
                 const std::stop_token& stop) const override {
    const CodePointTable& kinds = table();
    std::size_t begin = 0;
    std::uint8_t last = kSpace;
    std::size_t next_look = kStopBytes;
    std::size_t length = 0;
    for (std::size_t pos = 0; pos <= piece.text.size(); pos += length) {
      if (pos >= next_look) {
        next_look = pos + kStopBytes;
        if (stop.stop_requested()) {
          return stopped();
        }
      }
      length = 1;
      const std::uint8_t kind =
          pos < piece.text.size() ? kinds[decode_valid(piece.text.data() + pos, length)] : kSpace;
      if (kind == last) {
        continue;
      }
      if (last != kSpace) {
        if (Result<> taken = sink(cut(piece, begin, pos)); !taken) {
          return taken;
        }
      }
      begin = pos;
      last = kind;
    }
    return {};
  }

 private:
  // Word characters are 1, what is neither is 0.
  static constexpr std::uint8_t kSpace = 2;

  static const CodePointTable& table() {
    static const CodePointTable instance = [] {
      CodePointTable kinds = membership(data::kAddedTokenWord, data::kAddedTokenWordSize);
      for (std::size_t i = 0; i < data::kSpaceSize; ++i) {
        for (std::uint32_t c = data::kSpace[i].first; c <= data::kSpace[i].last; ++c) {
          kinds.set(c, kSpace);
        }
      }
      return kinds;
    }();
    return instance;
  }
};

class ByteLevelStep final : public PieceStep {
 public:
  ByteLevelStep(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  Result<> split(const Piece& piece, const PieceSink& sink,
                 const std::stop_token& stop) const override {
    Piece input = piece;
    std::string prefixed;
    if (add_prefix_space_ && !piece.text.starts_with(' ')) {
      prefixed.reserve(piece.text.size() + 1);
      prefixed += ' ';
      prefixed += piece.text;
      input = {prefixed, piece.start_bytes != 0 ? piece.start_bytes + 1 : 0};
    }
    std::string spelled;
    const auto emit = [&](std::size_t begin, std::size_t end) -> Result<> {
      const Piece word = cut(input, begin, end);
      spelled.clear();
      append_spelled(word.text.substr(0, word.start_bytes), spelled);
      const std::size_t start_bytes = spelled.size();
      append_spelled(word.text.substr(word.start_bytes), spelled);
      return sink({spelled, start_bytes});
    };
    if (!use_regex_) {
      return emit(0, input.text.size());
    }
    Result<> taken;
    for (std::size_t pos = 0; pos < input.text.size() && taken;) {
      if (stop.stop_requested()) {
        return stopped();
      }
      const std::size_t end = std::min(input.text.size(), pos + kStopBytes);
      pos = for_each_word(Scanner::Gpt2, input.text, pos, end,
                          [&](std::size_t begin, std::size_t word_end) {
                            if (taken) {
                              taken = emit(begin, word_end);
                            }
                          });
    }
    return taken;
  }
  bool keeps_text() const override { return true; }

 private:
  static void append_spelled(std::string_view text, std::string& out) {
    for (const char byte : text) {
      utf8::append(out, byte_level_char(static_cast<unsigned char>(byte)));
    }
  }

  bool add_prefix_space_;
  bool use_regex_;
};

class MetaspaceStep final : public PieceStep {
 public:
  MetaspaceStep(std::string_view replacement, PrependScheme scheme, bool split)
      : replacement_(replacement), scheme_(scheme), split_(split) {}

  Result<> split(const Piece& piece, const PieceSink& sink,
                 const std::stop_token& stop) const override {
    const bool wanted =
        scheme_ == PrependScheme::Always || (scheme_ == PrependScheme::First && piece.start_bytes);
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 4 + replacement_.size());
    if (wanted && !piece.text.starts_with(replacement_) && !piece.text.starts_with(' ')) {
      text += replacement_;
    }
    append_replaced(piece.text.substr(0, piece.start_bytes), text);
    const std::size_t start_bytes = piece.start_bytes != 0 ? text.size() : 0;
    append_replaced(piece.text.substr(piece.start_bytes), text);
    const Piece whole{text, start_bytes};
    if (!split_) {
      return sink(whole);
    }
    // Each replacement begins a piece.
    for (std::size_t begin = 0, i = 1; begin < text.size(); ++i) {
      if (i % kStopMatches == 0 && stop.stop_requested()) {
        return stopped();
      }
      const bool marked = std::string_view(text).substr(begin).starts_with(replacement_);
      const std::size_t end = std::min(
          text.size(), text.find(replacement_, begin + (marked ? replacement_.size() : 0)));
      if (Result<> taken = sink(cut(whole, begin, end)); !taken) {
        return taken;
      }
      begin = end;
    }
    return {};
  }
  bool keeps_text() const override { return true; }

 private:
  void append_replaced(std::string_view text, std::string& out) const {
    for (std::size_t pos = 0; pos < text.size();) {
      const std::size_t space = std::min(text.size(), text.find(' ', pos));
      out.append(text, pos, space - pos);
      if (space < text.size()) {
        out += replacement_;
      }
      pos = space + 1;
    }
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

PieceStepPtr split_step(Split split) { return std::make_shared<SplitStep>(std::move(split)); }

PieceStepPtr byte_level_pieces_step(bool add_prefix_space, bool use_regex) {
  return std::make_shared<ByteLevelStep>(add_prefix_space, use_regex);
}

PieceStepPtr metaspace_step(std::string_view replacement, PrependScheme scheme, bool split) {
  return std::make_shared<MetaspaceStep>(replacement, scheme, split);
}

PieceStepPtr fixed_length_step(std::size_t length) {
  return std::make_shared<CutStep<FixedLengthStarts>>(FixedLengthStarts(length));
}

PieceStepPtr whitespace_step() { return std::make_shared<WhitespaceStep>(); }

PieceStepPtr scripts_step() { return std::make_shared<CutStep<ScriptStarts>>(ScriptStarts()); }

PieceStepPtr whitespace_split_step() {
  static const CodePointTable space = membership(data::kSpace, data::kSpaceSize);
  return split_step(Split::from_characters(space, SplitBehavior::Removed));
}

PieceStepPtr punctuation_step(SplitBehavior behavior) {
  static const CodePointTable punctuation = membership(data::kPunctuation, data::kPunctuationSize);
  return split_step(Split::from_characters(punctuation, behavior));
}

}  // namespace fairlead::tokenizer
