#include "tokenizer/normalization.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Hangul syllables, composed by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

// Changed places between two looks at whether the result is still wanted.
constexpr std::size_t kStopSegments = 4096;

struct Mark {
  char32_t code_point;
  std::uint8_t combining_class;
  std::uint32_t position;  // makes sorting stable
};

constexpr bool is_compatibility(NormalizationForm form) {
  return form == NormalizationForm::KC || form == NormalizationForm::KD;
}

constexpr bool composes(NormalizationForm form) {
  return form == NormalizationForm::C || form == NormalizationForm::KC;
}

const CodePointTable& combining_classes() {
  static const CodePointTable table(data::kCombiningClasses, data::kCombiningClassesSize, 8);
  return table;
}

// 1 for each code point that the form may change or move.
template <NormalizationForm kForm>
CodePointTable build_attention() {
  if constexpr (kForm == NormalizationForm::C) {
    return {data::kNfcAttention, data::kNfcAttentionSize, 8};
  }
  std::vector<bool> wanted(0x110000);
  const auto add_runs = [&](const std::uint32_t* runs, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t end = i + 1 < count ? runs[i + 1] >> 8 : wanted.size();
      for (std::size_t c = runs[i] >> 8; c < end && (runs[i] & 0xFF) != 0; ++c) {
        wanted[c] = true;
      }
    }
  };
  if constexpr (composes(kForm)) {
    add_runs(data::kNfcAttention, data::kNfcAttentionSize);
  } else {
    add_runs(data::kCombiningClasses, data::kCombiningClassesSize);
    std::fill(wanted.begin() + kSBase, wanted.begin() + kSBase + kSCount, true);
    for (std::size_t i = 0; i < data::kDecompositionsSize; ++i) {
      wanted[data::kDecompositions[i].code_point] = true;
    }
  }
  for (std::size_t i = 0; is_compatibility(kForm) && i < data::kCompatibilityDecompositionsSize;
       ++i) {
    wanted[data::kCompatibilityDecompositions[i].code_point] = true;
  }
  std::vector<std::uint32_t> runs;
  for (std::uint32_t c = 0; c < wanted.size(); ++c) {
    if (c == 0 || wanted[c] != wanted[c - 1]) {
      runs.push_back(c << 8 | (wanted[c] ? 1 : 0));
    }
  }
  return {runs.data(), runs.size(), 8};
}

template <NormalizationForm kForm>
const CodePointTable& attention_table() {
  static const CodePointTable table = build_attention<kForm>();
  return table;
}

// Appends the code points that `c` decomposes into by one of the two tables; false when by neither.
template <class Push>
bool look_up(const data::Decomposition* begin, std::size_t count, const std::uint32_t* text,
             char32_t c, Push&& push) {
  const data::Decomposition* end = begin + count;
  const data::Decomposition* it = std::lower_bound(
      begin, end, c,
      [](const data::Decomposition& row, char32_t key) { return row.code_point < key; });
  if (it == end || it->code_point != c) {
    return false;
  }
  for (std::size_t i = 0; i < it->length; ++i) {
    push(text[it->offset + i]);
  }
  return true;
}

// The composite of two code points, or 0.
char32_t compose(char32_t first, char32_t second) {
  if (first >= kLBase && first < kLBase + kLCount && second >= kVBase &&
      second < kVBase + kVCount) {
    return kSBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  }
  if (first >= kSBase && first < kSBase + kSCount && (first - kSBase) % kTCount == 0 &&
      second > kTBase && second < kTBase + kTCount) {
    return first + (second - kTBase);
  }
  const data::Composition* end = data::kCompositions + data::kCompositionsSize;
  const data::Composition* it = std::lower_bound(
      data::kCompositions, end, std::pair(first, second),
      [](const data::Composition& row, auto key) {
        return row.first != key.first ? row.first < key.first : row.second < key.second;
      });
  return it != end && it->first == first && it->second == second ? it->composite : 0;
}

// One run of text that starts with a starter (or at the start of the text) and holds everything
// that can interact with it.
class Segment {
 public:
  Segment(NormalizationForm form, std::string& out) : form_(form), out_(out) {}

  void add(char32_t c) {
    if (c >= kSBase && c < kSBase + kSCount) {
      const char32_t index = c - kSBase;
      push(kLBase + index / (kVCount * kTCount));
      push(kVBase + index % (kVCount * kTCount) / kTCount);
      if (index % kTCount != 0) {
        push(kTBase + index % kTCount);
      }
      return;
    }
    const auto append = [this](char32_t part) { push(part); };
    if (is_compatibility(form_) &&
        look_up(data::kCompatibilityDecompositions, data::kCompatibilityDecompositionsSize,
                data::kCompatibilityDecompositionText, c, append)) {
      return;
    }
    if (!look_up(data::kDecompositions, data::kDecompositionsSize, data::kDecompositionText, c,
                 append)) {
      push(c);
    }
  }

  // Appends the normalized text to the output and empties the segment.
  void flush() {
    reorder();
    if (composes(form_)) {
      append_composed();
    } else {
      for (const Mark& mark : marks_) {
        utf8::append(out_, mark.code_point);
      }
    }
    marks_.clear();
  }

 private:
  void append_composed() {
    char32_t starter = 0;
    bool have_starter = false;
    std::uint8_t last_class = 0;  // of what was kept since the starter
    for (const Mark& mark : marks_) {
      if (have_starter && (last_class == 0 || last_class < mark.combining_class)) {
        if (const char32_t composite = compose(starter, mark.code_point)) {
          starter = composite;
          continue;
        }
      }
      if (mark.combining_class == 0) {
        emit(have_starter, starter);
        starter = mark.code_point;
        have_starter = true;
        last_class = 0;
      } else if (!have_starter) {
        utf8::append(out_, mark.code_point);
      } else {
        kept_.push_back(mark.code_point);
        last_class = mark.combining_class;
      }
    }
    emit(have_starter, starter);
  }

  void push(char32_t c) {
    const std::uint8_t combining = combining_classes()[c];
    // A starter that cannot join what is before ends it, so that segments stay short.
    if (combining == 0 && !marks_.empty() &&
        (!composes(form_) || attention_table<NormalizationForm::C>()[c] == 0)) {
      flush();
    }
    marks_.push_back({c, combining, static_cast<std::uint32_t>(marks_.size())});
  }

  // Canonical order: marks between two starters, stably by class.
  void reorder() {
    for (auto it = marks_.begin(); it != marks_.end();) {
      if (it->combining_class == 0) {
        ++it;
        continue;
      }
      const auto end =
          std::find_if(it, marks_.end(), [](const Mark& m) { return m.combining_class == 0; });
      std::sort(it, end, [](const Mark& a, const Mark& b) {
        return std::tie(a.combining_class, a.position) < std::tie(b.combining_class, b.position);
      });
      it = end;
    }
  }

  void emit(bool have_starter, char32_t starter) {
    if (have_starter) {
      utf8::append(out_, starter);
    }
    for (const char32_t c : kept_) {
      utf8::append(out_, c);
    }
    kept_.clear();
  }

  NormalizationForm form_;
  std::string& out_;
  std::vector<Mark> marks_;
  std::vector<char32_t> kept_;
};

// First byte at or after `pos` that is `lead` or above; no character that begins below it changes.
std::size_t skip_stable_bytes(std::string_view text, std::size_t pos, unsigned char lead) {
  constexpr std::uint64_t kHigh = 0x8080808080808080;
  while (pos + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + pos, 8);
    if ((word & kHigh) != 0) {
      break;
    }
    pos += 8;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < lead) {
    ++pos;
  }
  return pos;
}

template <NormalizationForm kForm>
class Normalization {
 public:
  Normalization(std::string_view text, const std::stop_token& stop) : text_(text), stop_(stop) {}

  bool run(std::string& out) const {
    std::size_t found = find_attention(0);
    if (found == text_.size()) {
      return false;
    }
    out.clear();
    out.reserve(text_.size());
    Segment segment(kForm, out);
    std::size_t done = 0;
    for (std::size_t i = 1; found < text_.size(); ++i) {
      if (i % kStopSegments == 0 && stop_.stop_requested()) {
        return true;
      }
      // The character before is a starter that nothing changes but that may absorb what follows.
      const std::size_t start =
          composes(kForm) && found > done ? previous_character(text_, found) : found;
      out.append(text_, done, start - done);
      std::size_t pos = start;
      do {
        std::size_t length = 0;
        const char32_t c = decode_valid(text_.data() + pos, length);
        if (pos >= found && attention_[c] == 0) {
          break;
        }
        segment.add(c);
        pos += length;
      } while (pos < text_.size());
      segment.flush();
      done = pos;
      found = find_attention(pos);
    }
    out.append(text_, done);
    return true;
  }

 private:
  // Characters below U+0300 are stable in form C, ASCII is in every form.
  static constexpr unsigned char kFirstLead = kForm == NormalizationForm::C ? 0xCC : 0x80;

  // Start of the first character at or after `pos` that the form may change; the text's size when
  // none.
  std::size_t find_attention(std::size_t pos) const {
    while (pos < text_.size()) {
      if (static_cast<unsigned char>(text_[pos]) < kFirstLead) {
        pos = skip_stable_bytes(text_, pos, kFirstLead);
        continue;
      }
      std::size_t length = 0;
      if (attention_[decode_valid(text_.data() + pos, length)] != 0) {
        return pos;
      }
      pos += length;
    }
    return text_.size();
  }

  std::string_view text_;
  const std::stop_token& stop_;
  const CodePointTable& attention_ = attention_table<kForm>();
};

// Calls `function` with the form as a template argument.
template <class Function>
auto with_form(NormalizationForm form, Function&& function) {
  switch (form) {
    case NormalizationForm::C: return function.template operator()<NormalizationForm::C>();
    case NormalizationForm::D: return function.template operator()<NormalizationForm::D>();
    case NormalizationForm::KC: return function.template operator()<NormalizationForm::KC>();
    case NormalizationForm::KD: return function.template operator()<NormalizationForm::KD>();
  }
  std::unreachable();
}

}  // namespace

void prepare_normalization(NormalizationForm form) {
  combining_classes();
  with_form(form, []<NormalizationForm kForm>() { attention_table<kForm>(); });
}

void prepare_nfc() { prepare_normalization(NormalizationForm::C); }

bool normalize(NormalizationForm form, std::string_view text, std::string& out,
               const std::stop_token& stop) {
  return with_form(
      form, [&]<NormalizationForm kForm>() { return Normalization<kForm>(text, stop).run(out); });
}

bool normalize_nfc(std::string_view text, std::string& out) {
  return normalize(NormalizationForm::C, text, out);
}

}  // namespace fairlead::tokenizer
