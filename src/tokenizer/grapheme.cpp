#include "tokenizer/grapheme.hpp"

#include "tokenizer/unicode.hpp"
#include "tokenizer/utf8_valid.hpp"

namespace fairlead::tokenizer {

namespace {

// In the order of `BREAKS` in tools/unicode/text_tables.py.
enum class Break : std::uint8_t {
  Other,
  Cr,
  Lf,
  Control,
  Extend,
  Zwj,
  RegionalIndicator,
  Prepend,
  SpacingMark,
  L,
  V,
  T,
  Lv,
  Lvt,
  Pictographic,
};

enum class Conjunct : std::uint8_t { None, Consonant, Linker, Extend };

struct Class {
  Break kind;
  Conjunct conjunct;
};

Class class_of(char32_t c) {
  static const CodePointTable table(data::kGraphemeBreaks, data::kGraphemeBreaksSize, 8);
  const std::uint8_t value = table[c];
  return {static_cast<Break>(value & 15), static_cast<Conjunct>(value >> 4)};
}

bool is_control(Break kind) {
  return kind == Break::Control || kind == Break::Cr || kind == Break::Lf;
}

bool joins_hangul(Break before, Break after) {
  switch (before) {
    case Break::L:
      return after == Break::L || after == Break::V || after == Break::Lv || after == Break::Lvt;
    case Break::V:
    case Break::Lv: return after == Break::V || after == Break::T;
    case Break::T:
    case Break::Lvt: return after == Break::T;
    default: return false;
  }
}

// What the rules need to know of the cluster so far.
class Cluster {
 public:
  explicit Cluster(Class first) { add(first); }

  bool takes(Class next) const {
    if (last_ == Break::Cr && next.kind == Break::Lf) {
      return true;
    }
    if (is_control(last_) || is_control(next.kind)) {
      return false;
    }
    if (next.kind == Break::Extend || next.kind == Break::Zwj || next.kind == Break::SpacingMark ||
        last_ == Break::Prepend || joins_hangul(last_, next.kind)) {
      return true;
    }
    if (next.conjunct == Conjunct::Consonant && consonant_ && linked_) {
      return true;
    }
    if (next.kind == Break::Pictographic) {
      return joined_pictographic_;
    }
    return next.kind == Break::RegionalIndicator && indicators_ % 2 == 1;
  }

  void add(Class next) {
    // A consonant, then linkers and extenders with a linker among them.
    if (next.conjunct == Conjunct::Consonant) {
      consonant_ = true;
      linked_ = false;
    } else if (next.conjunct == Conjunct::None) {
      consonant_ = false;
    } else if (next.conjunct == Conjunct::Linker) {
      linked_ = true;
    }
    // A pictograph, extenders, then a joiner.
    joined_pictographic_ = pictographic_ && next.kind == Break::Zwj;
    pictographic_ =
        next.kind == Break::Pictographic || (pictographic_ && next.kind == Break::Extend);
    indicators_ = next.kind == Break::RegionalIndicator ? indicators_ + 1 : 0;
    last_ = next.kind;
  }

 private:
  Break last_ = Break::Other;
  bool consonant_ = false;
  bool linked_ = false;
  bool pictographic_ = false;
  bool joined_pictographic_ = false;
  std::size_t indicators_ = 0;
};

}  // namespace

std::size_t grapheme_end(std::string_view text, std::size_t pos) {
  std::size_t length = 0;
  Cluster cluster(class_of(decode_valid(text.data() + pos, length)));
  for (pos += length; pos < text.size(); pos += length) {
    const Class next = class_of(decode_valid(text.data() + pos, length));
    if (!cluster.takes(next)) {
      break;
    }
    cluster.add(next);
  }
  return pos;
}

}  // namespace fairlead::tokenizer
