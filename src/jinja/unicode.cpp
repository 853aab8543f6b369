#include "jinja/unicode.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/utf8.hpp"

namespace fairlead::jinja::unicode {
namespace {

struct ClassRange {
  char32_t start;
  std::uint16_t mask;
};

// Maps start, start + stride, ..., end by adding delta.
struct CaseRun {
  char32_t start;
  char32_t end;
  std::uint32_t stride;
  std::int32_t delta;
};

struct CaseSpecial {
  char32_t code_point;
  char32_t result[3];
};

#include "jinja/unicode_tables.inc"

struct CaseTable {
  const CaseRun* runs;
  std::size_t run_count;
  const CaseSpecial* special;
  std::size_t special_count;
};

constexpr CaseTable kLowerTable{kLowerRuns, std::size(kLowerRuns), kLowerSpecial,
                                std::size(kLowerSpecial)};
constexpr CaseTable kUpperTable{kUpperRuns, std::size(kUpperRuns), kUpperSpecial,
                                std::size(kUpperSpecial)};
constexpr CaseTable kTitleTable{kTitleRuns, std::size(kTitleRuns), kTitleSpecial,
                                std::size(kTitleSpecial)};
constexpr CaseTable kFoldTable{kFoldRuns, std::size(kFoldRuns), kFoldSpecial,
                               std::size(kFoldSpecial)};

void append_mapped(std::string& out, char32_t code_point, const CaseTable& table) {
  const CaseSpecial* special =
      std::lower_bound(table.special, table.special + table.special_count, code_point,
                       [](const CaseSpecial& s, char32_t c) { return s.code_point < c; });
  if (special != table.special + table.special_count && special->code_point == code_point) {
    for (char32_t part : special->result) {
      if (part != 0) {
        utf8::append(out, part);
      }
    }
    return;
  }
  // Runs of stride 2 interleave, so an earlier run may still reach over this character.
  const CaseRun* run = std::upper_bound(table.runs, table.runs + table.run_count, code_point,
                                        [](char32_t c, const CaseRun& r) { return c < r.start; });
  for (int back = 0; back < 2 && run != table.runs; ++back) {
    --run;
    if (code_point <= run->end && (code_point - run->start) % run->stride == 0) {
      utf8::append(out, static_cast<char32_t>(static_cast<std::int32_t>(code_point) + run->delta));
      return;
    }
  }
  utf8::append(out, code_point);
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::vector<char32_t> decode_all(std::string_view text) {
  std::vector<char32_t> points;
  points.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    points.push_back(utf8::decode(text, pos));
  }
  return points;
}

// Unicode's final-sigma rule: a cased letter before, none after, case-ignorable ones skipped.
bool sigma_is_final(const std::vector<char32_t>& points, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && (classes(points[before - 1]) & kIgnorable) != 0) {
    --before;
  }
  if (before == 0 || (classes(points[before - 1]) & kCased) == 0) {
    return false;
  }
  std::size_t after = at + 1;
  while (after < points.size() && (classes(points[after]) & kIgnorable) != 0) {
    ++after;
  }
  return after == points.size() || (classes(points[after]) & kCased) == 0;
}

void append_lower(std::string& out, const std::vector<char32_t>& points, std::size_t at) {
  constexpr char32_t kSigma = 0x3A3;
  if (points[at] == kSigma) {
    utf8::append(out, sigma_is_final(points, at) ? 0x3C2 : 0x3C3);
  } else {
    append_mapped(out, points[at], kLowerTable);
  }
}

char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

std::string map_all(std::string_view text, const CaseTable& table) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    append_mapped(out, utf8::decode(text, pos), table);
  }
  return out;
}

}  // namespace

std::uint16_t classes(char32_t code_point) {
  const ClassRange* range =
      std::upper_bound(std::begin(kClassRanges), std::end(kClassRanges), code_point,
                       [](char32_t c, const ClassRange& r) { return c < r.start; });
  return std::prev(range)->mask;
}

int decimal_value(char32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= '0' && code_point <= '9' ? static_cast<int>(code_point - '0') : -1;
  }
  const char32_t* zero =
      std::upper_bound(std::begin(kDecimalZeros), std::end(kDecimalZeros), code_point);
  const auto value = code_point - *std::prev(zero);
  return value < 10 ? static_cast<int>(value) : -1;
}

std::string lower(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), ascii_lower);
    return out;
  }
  const auto points = decode_all(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    append_lower(out, points, i);
  }
  return out;
}

std::string upper(std::string_view text) {
  if (is_ascii(text)) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), ascii_upper);
    return out;
  }
  return map_all(text, kUpperTable);
}

std::string title(std::string_view text) {
  const auto points = decode_all(text);
  std::string out;
  out.reserve(text.size());
  bool after_cased = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (after_cased) {
      append_lower(out, points, i);
    } else {
      append_mapped(out, points[i], kTitleTable);
    }
    after_cased = (classes(points[i]) & kCased) != 0;
  }
  return out;
}

std::string capitalize(std::string_view text) {
  const auto points = decode_all(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      append_mapped(out, points[i], kTitleTable);
    } else {
      append_lower(out, points, i);
    }
  }
  return out;
}

std::string casefold(std::string_view text) { return map_all(text, kFoldTable); }

std::string swapcase(std::string_view text) {
  const auto points = decode_all(text);
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::uint16_t mask = classes(points[i]);
    if ((mask & kUpper) != 0) {
      append_lower(out, points, i);
    } else if ((mask & kLower) != 0) {
      append_mapped(out, points[i], kUpperTable);
    } else {
      utf8::append(out, points[i]);
    }
  }
  return out;
}

}  // namespace fairlead::jinja::unicode
