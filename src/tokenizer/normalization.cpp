#include "tokenizer/normalization.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/utf8.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// Hangul syllables, composed by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kSBase = 0xAC00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11A7;
constexpr char32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

struct Mark {
  char32_t code_point;
  std::uint8_t combining_class;
  std::uint32_t position;  // makes sorting stable
};

struct Tables {
  CodePointTable attention{data::kNfcAttention, data::kNfcAttentionSize, 8};
  CodePointTable combining{data::kCombiningClasses, data::kCombiningClassesSize, 8};
};

const Tables& tables() {
  static const Tables instance;
  return instance;
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
    const data::Decomposition* end = data::kDecompositions + data::kDecompositionsSize;
    const data::Decomposition* it = std::lower_bound(
        data::kDecompositions, end, c,
        [](const data::Decomposition& row, char32_t key) { return row.code_point < key; });
    if (it == end || it->code_point != c) {
      push(c);
      return;
    }
    for (std::size_t i = 0; i < it->length; ++i) {
      push(data::kDecompositionText[it->offset + i]);
    }
  }

  // Appends the composed text and empties the segment.
  void flush(std::string& out) {
    reorder();
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
        emit(have_starter, starter, out);
        starter = mark.code_point;
        have_starter = true;
        last_class = 0;
      } else if (!have_starter) {
        utf8::append(out, mark.code_point);
      } else {
        kept_.push_back(mark.code_point);
        last_class = mark.combining_class;
      }
    }
    emit(have_starter, starter, out);
    marks_.clear();
  }

 private:
  void push(char32_t c) {
    marks_.push_back({c, tables().combining[c], static_cast<std::uint32_t>(marks_.size())});
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

  void emit(bool have_starter, char32_t starter, std::string& out) {
    if (have_starter) {
      utf8::append(out, starter);
    }
    for (const char32_t c : kept_) {
      utf8::append(out, c);
    }
    kept_.clear();
  }

  std::vector<Mark> marks_;
  std::vector<char32_t> kept_;
};

// First byte at or after `pos` that begins a character from U+0300 on; everything below is stable.
std::size_t skip_stable_bytes(std::string_view text, std::size_t pos) {
  constexpr std::uint64_t kHigh = 0x8080808080808080;
  while (pos + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + pos, 8);
    if ((word & kHigh) != 0) {
      break;
    }
    pos += 8;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0xCC) {
    ++pos;
  }
  return pos;
}

// Start of the first character at or after `pos` that NFC may change; the text's size when none.
std::size_t find_attention(std::string_view text, std::size_t pos) {
  const CodePointTable& attention = tables().attention;
  while (pos < text.size()) {
    if (static_cast<unsigned char>(text[pos]) < 0xCC) {
      pos = skip_stable_bytes(text, pos);
      continue;
    }
    std::size_t length = 0;
    if (attention[decode_valid(text.data() + pos, length)] != 0) {
      return pos;
    }
    pos += length;
  }
  return text.size();
}

}  // namespace

void prepare_nfc() { tables(); }

bool normalize_nfc(std::string_view text, std::string& out) {
  std::size_t found = find_attention(text, 0);
  if (found == text.size()) {
    return false;
  }
  out.clear();
  out.reserve(text.size());
  Segment segment;
  const CodePointTable& attention = tables().attention;
  std::size_t done = 0;
  while (found < text.size()) {
    // The character before is a starter that nothing changes but that may absorb what follows.
    const std::size_t start = found > done ? previous_character(text, found) : found;
    out.append(text, done, start - done);
    std::size_t pos = start;
    do {
      std::size_t length = 0;
      const char32_t c = decode_valid(text.data() + pos, length);
      if (pos >= found && attention[c] == 0) {
        break;
      }
      segment.add(c);
      pos += length;
    } while (pos < text.size());
    segment.flush(out);
    done = pos;
    found = find_attention(text, pos);
  }
  out.append(text, done);
  return true;
}

}  // namespace fairlead::tokenizer
