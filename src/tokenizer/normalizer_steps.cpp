#include "tokenizer/normalizer_steps.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/utf8.hpp"
#include "tokenizer/byte_level.hpp"
#include "tokenizer/component_config.hpp"
#include "tokenizer/grapheme.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Collects the new text of a step and finds where what stands for the first character ends.
class Output {
 public:
  explicit Output(NormalizedText& text) : target_(text), left_(text.start_bytes) {
    target_.spare.clear();
    target_.spare.reserve(text.text.size());
  }

  std::string& text() { return target_.spare; }
  bool open() const { return open_; }
  bool too_long() const { return target_.spare.size() > max_grown_size(target_.text.size()); }
  // Tells that everything so far comes from before byte `from` of the old text.
  void at(std::size_t from) {
    if (open_ && from >= left_) {
      target_.start_bytes = target_.spare.size();
      open_ = false;
    }
  }
  void finish() {
    if (open_) {
      target_.start_bytes = target_.spare.size();
    }
    target_.text.swap(target_.spare);
  }

 private:
  NormalizedText& target_;
  std::size_t left_;
  bool open_ = true;
};

// A step that looks at one character at a time: `Map` appends what becomes of it. `kKeeps`: that is
// never nothing.
template <class Map, bool kKeeps>
class CharacterStep final : public NormalizerStep {
 public:
  explicit CharacterStep(Map map) : map_(std::move(map)) {}

  Result<> apply(NormalizedText& text, const std::stop_token& stop) const override {
    Output output(text);
    std::string& out = output.text();
    for (std::size_t pos = 0; pos < text.text.size();) {
      if (stop.stop_requested()) {
        return stopped();
      }
      const std::size_t end = std::min(text.text.size(), pos + kStopBytes);
      for (std::size_t length = 0; pos < end; pos += length) {
        output.at(pos);
        const char32_t c = decode_valid(text.text.data() + pos, length);
        map_(c, std::string_view(text.text).substr(pos, length), out);
      }
    }
    output.finish();
    return {};
  }
  std::size_t shrinks() const override { return kKeeps ? 1 : 0; }

 private:
  Map map_;
};

template <bool kKeeps = false, class Map>
NormalizerStepPtr character_step(Map map) {
  return std::make_shared<CharacterStep<Map, kKeeps>>(std::move(map));
}

// A step that removes the characters of a table.
NormalizerStepPtr removal_step(const CodePointTable& table) {
  return character_step([&table](char32_t c, std::string_view text, std::string& out) {
    if (table[c] == 0) {
      out += text;
    }
  });
}

class NormalizationStep final : public NormalizerStep {
 public:
  explicit NormalizationStep(NormalizationForm form) : form_(form) { prepare_normalization(form); }

  Result<> apply(NormalizedText& text, const std::stop_token& stop) const override {
    if (!normalize(form_, text.text, text.spare, stop)) {
      return {};
    }
    if (stop.stop_requested()) {
      return stopped();
    }
    if (text.start_bytes != 0) {
      std::string start;
      const std::string_view before = std::string_view(text.text).substr(0, text.start_bytes);
      if (!normalize(form_, before, start)) {
        start = before;
      }
      // A first character that something else joined is at the start as a whole.
      text.start_bytes = text.spare.starts_with(start)
                             ? start.size()
                             : character_length(static_cast<unsigned char>(text.spare[0]));
    }
    text.text.swap(text.spare);
    return {};
  }
  // No character is composed of more than four.
  std::size_t shrinks() const override {
    return form_ == NormalizationForm::D || form_ == NormalizationForm::KD ? 1 : 4;
  }

 private:
  NormalizationForm form_;
};

class StripStep final : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}

  Result<> apply(NormalizedText& text, const std::stop_token& /*stop*/) const override {
    std::size_t begin = 0;
    std::size_t end = text.text.size();
    std::size_t length = 0;
    while (left_ && begin < end && is_white_space(decode_valid(text.text.data() + begin, length))) {
      begin += length;
    }
    while (right_ && begin < end) {
      const std::size_t last = previous_character(text.text, end);
      if (!is_white_space(decode_valid(text.text.data() + last, length))) {
        break;
      }
      end = last;
    }
    text.text.erase(end);
    text.text.erase(0, begin);
    text.start_bytes -= std::min(text.start_bytes, begin);
    return {};
  }

 private:
  bool left_;
  bool right_;
};

class PrependStep final : public NormalizerStep {
 public:
  explicit PrependStep(std::string_view prefix) : prefix_(prefix) {}

  Result<> apply(NormalizedText& text, const std::stop_token& /*stop*/) const override {
    if (!text.text.empty()) {
      text.text.insert(0, prefix_);
      text.start_bytes += text.start_bytes != 0 ? prefix_.size() : 0;
    }
    return {};
  }
  std::size_t shrinks() const override { return 1; }

 private:
  std::string prefix_;
};

class ReplaceStep final : public NormalizerStep {
 public:
  ReplaceStep(std::string_view literal, std::string_view content)
      : literal_(literal), content_(content) {}
  ReplaceStep(Regex regex, std::string_view content)
      : regex_(std::move(regex)), content_(content) {}

  Result<> apply(NormalizedText& text, const std::stop_token& stop) const override {
    const std::string_view old = text.text;
    // Nothing matches in an empty text, not even what matches nothing.
    if (old.empty() || (!regex_ && old.find(literal_) == std::string_view::npos)) {
      return {};
    }
    if (!regex_ && literal_.size() == 1 && content_.size() <= kShortContent) {
      return replace_byte(text, stop);
    }
    Output output(text);
    std::size_t done = 0;
    const auto copy_until = [&](std::size_t end) {
      if (done == end) {
        return;
      }
      output.at(done);
      // What stands for the first character may end inside.
      if (const std::size_t cut = text.start_bytes; done < cut && cut < end) {
        output.text().append(old, done, cut - done);
        output.at(cut);
        done = cut;
      }
      output.text().append(old, done, end - done);
      done = end;
    };
    const auto replace = [&](Span match) {
      copy_until(match.begin);
      // The content takes the place of the last character it replaces.
      output.at(match.end == 0 ? 0 : match.end - 1);
      output.text() += content_;
      done = match.end;
    };
    if (Result<> found = each_match(old, replace, output, stop); !found) {
      return found;
    }
    copy_until(old.size());
    output.finish();
    return {};
  }
  std::size_t shrinks() const override {
    const std::size_t after = utf8::count(content_);
    return regex_ || after == 0 ? 0 : (utf8::count(literal_) + after - 1) / after;
  }

 private:
  template <class Function>
  Result<> each_match(std::string_view text, Function&& function, const Output& output,
                      const std::stop_token& stop) const {
    std::optional<Regex::Matches> matches;
    if (regex_) {
      matches.emplace(*regex_, text);
    }
    Span match;
    for (std::size_t i = 1;; ++i) {
      if (i % kStopMatches == 0) {
        if (stop.stop_requested()) {
          return stopped();
        }
        if (output.too_long()) {
          return grown_too_long();
        }
      }
      if (matches) {
        const Result<bool> found = matches->next(match);
        if (!found) {
          return std::unexpected(found.error());
        }
        if (!*found) {
          return {};
        }
      } else {
        const std::size_t at = text.find(literal_, match.end);
        if (at == std::string_view::npos) {
          return {};
        }
        match = {at, at + literal_.size()};
      }
      function(match);
    }
  }

  // A literal of one byte, as the space that becomes `▁`: the size is known at once, and bytes and
  // contents are written alike.
  Result<> replace_byte(NormalizedText& text, const std::stop_token& stop) const {
    const std::string_view old = text.text;
    const auto count = [&](std::string_view part) {
      const auto found = static_cast<std::size_t>(std::ranges::count(part, literal_[0]));
      return part.size() - found + found * content_.size();
    };
    const std::size_t size = count(old);
    if (size > max_grown_size(old.size())) {
      return grown_too_long();
    }
    std::array<char, kShortContent> content{};
    std::ranges::copy(content_, content.begin());
    bool stopped_early = false;
    text.spare.resize_and_overwrite(size + kShortContent, [&](char* out, std::size_t /*room*/) {
      for (std::size_t pos = 0; pos < old.size() && !stopped_early;) {
        for (const std::size_t end = std::min(old.size(), pos + kStopBytes); pos < end; ++pos) {
          const bool replaced = old[pos] == literal_[0];
          std::array<char, kShortContent> bytes = content;
          bytes[0] = replaced ? bytes[0] : old[pos];
          std::memcpy(out, bytes.data(), bytes.size());
          out += replaced ? content_.size() : 1;
        }
        stopped_early = stop.stop_requested();
      }
      return stopped_early ? 0 : size;
    });
    if (stopped_early) {
      return stopped();
    }
    text.start_bytes = count(old.substr(0, text.start_bytes));
    text.text.swap(text.spare);
    return {};
  }

  static constexpr std::size_t kShortContent = 4;

  std::string literal_;
  std::optional<Regex> regex_;
  std::string content_;
};

// Follows which old character each new one of a charsmap stands for. The reference forgets to step
// over a character that is replaced by nothing, so that the next one takes its place.
class CharsmapOrigin {
 public:
  CharsmapOrigin(std::string_view old, Output& output) : old_(old), output_(output) {}

  void append(std::string_view chunk, std::string_view replacement) {
    if (!output_.open()) {
      output_.text() += replacement;
      return;
    }
    const std::size_t before = utf8::count(chunk);
    const std::size_t after = utf8::count(replacement);
    std::size_t length = 0;
    std::size_t index = 0;
    for (std::size_t pos = 0; pos < replacement.size(); pos += length, ++index) {
      const bool inserted = index >= before;
      output_.at(inserted && origin_ != 0 ? origin_ - 1 : origin_);
      length = character_length(static_cast<unsigned char>(replacement[pos]));
      output_.text() += replacement.substr(pos, length);
      const std::size_t taken = index + 1 == after && after < before ? 1 + before - after : 1;
      for (std::size_t i = 0; !inserted && i < taken; ++i) {
        origin_ += character_length(static_cast<unsigned char>(old_[origin_]));
      }
    }
  }

 private:
  std::string_view old_;
  Output& output_;
  std::size_t origin_ = 0;
};

class CharsmapStep final : public NormalizerStep {
 public:
  explicit CharsmapStep(Charsmap map) : map_(std::move(map)) {}

  Result<> apply(NormalizedText& text, const std::stop_token& stop) const override {
    Output output(text);
    const std::string_view old = text.text;
    CharsmapOrigin origin(old, output);
    std::size_t next_look = kStopBytes;
    for (std::size_t pos = 0; pos < old.size();) {
      if (pos >= next_look) {
        next_look = pos + kStopBytes;
        if (stop.stop_requested()) {
          return stopped();
        }
        if (output.too_long()) {
          return grown_too_long();
        }
      }
      const std::size_t end = grapheme_end(old, pos);
      if (end - pos < kShortCluster) {
        if (const auto replacement = map_.transform(old.substr(pos, end - pos))) {
          origin.append(old.substr(pos, end - pos), *replacement);
          pos = end;
          continue;
        }
      }
      while (pos < end) {
        const std::string_view character =
            old.substr(pos, character_length(static_cast<unsigned char>(old[pos])));
        origin.append(character, map_.transform(character).value_or(character));
        pos += character.size();
      }
    }
    output.finish();
    return {};
  }

 private:
  // Clusters of fewer bytes are looked up whole.
  static constexpr std::size_t kShortCluster = 6;

  Charsmap map_;
};

void append_lower(char32_t c, std::string_view text, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    return;
  }
  const data::CaseMapping* end = data::kLowerMappings + data::kLowerMappingsSize;
  const data::CaseMapping* it = std::lower_bound(
      data::kLowerMappings, end, c,
      [](const data::CaseMapping& row, char32_t key) { return row.code_point < key; });
  if (it == end || it->code_point != c) {
    out += text;
    return;
  }
  utf8::append(out, it->first);
  if (it->second != 0) {
    utf8::append(out, it->second);
  }
}

void append_nmt(char32_t c, std::string_view text, std::string& out) {
  if ((c >= 0x1 && c <= 0x8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool space = c == 0x9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  out += space ? " " : text;
}

// CJK ideographs as BERT's first code had them, gap included.
bool is_bert_chinese(char32_t c) {
  return (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x4E00 && c <= 0x9FFF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

}  // namespace

NormalizerStepPtr normalization_step(NormalizationForm form) {
  return std::make_shared<NormalizationStep>(form);
}

NormalizerStepPtr lowercase_step() { return character_step<true>(append_lower); }

NormalizerStepPtr strip_accents_step() {
  static const CodePointTable table = membership(data::kAccents, data::kAccentsSize);
  return removal_step(table);
}

NormalizerStepPtr strip_step(bool left, bool right) {
  return std::make_shared<StripStep>(left, right);
}

NormalizerStepPtr prepend_step(std::string_view prefix) {
  return std::make_shared<PrependStep>(prefix);
}

NormalizerStepPtr nmt_step() { return character_step(append_nmt); }

NormalizerStepPtr byte_level_step() {
  return character_step<true>([](char32_t /*c*/, std::string_view text, std::string& out) {
    for (const char byte : text) {
      utf8::append(out, byte_level_char(static_cast<unsigned char>(byte)));
    }
  });
}

NormalizerStepPtr bert_clean_step() {
  static const CodePointTable table = membership(data::kBertControl, data::kBertControlSize);
  return character_step([](char32_t c, std::string_view text, std::string& out) {
    if (table[c] == 0) {
      out += is_white_space(c) ? " " : text;
    }
  });
}

NormalizerStepPtr bert_chinese_step() {
  return character_step([](char32_t c, std::string_view text, std::string& out) {
    const bool chinese = is_bert_chinese(c);
    out += chinese ? " " : "";
    out += text;
    out += chinese ? " " : "";
  });
}

NormalizerStepPtr bert_accents_step() {
  static const CodePointTable table = membership(data::kBertAccents, data::kBertAccentsSize);
  return removal_step(table);
}

NormalizerStepPtr replace_step(std::string_view literal, std::string_view content) {
  return std::make_shared<ReplaceStep>(literal, content);
}

NormalizerStepPtr replace_step(Regex regex, std::string_view content) {
  return std::make_shared<ReplaceStep>(std::move(regex), content);
}

NormalizerStepPtr charsmap_step(Charsmap map) {
  return std::make_shared<CharsmapStep>(std::move(map));
}

}  // namespace fairlead::tokenizer
