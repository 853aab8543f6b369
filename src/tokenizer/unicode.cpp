#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>

namespace fairlead::tokenizer {

namespace {

constexpr std::uint32_t kLastCodePoint = 0x10FFFF;

constexpr std::array<std::string_view, 30> kCategoryNames = {
    "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps", "pe",
    "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "cs", "co", "cn"};

struct LongName {
  std::string_view name;
  std::string_view category;
};

constexpr LongName kLongNames[] = {
    {"letter", "l"},
    {"uppercaseletter", "lu"},
    {"lowercaseletter", "ll"},
    {"titlecaseletter", "lt"},
    {"casedletter", "lc"},
    {"modifierletter", "lm"},
    {"otherletter", "lo"},
    {"mark", "m"},
    {"combiningmark", "m"},
    {"nonspacingmark", "mn"},
    {"spacingmark", "mc"},
    {"enclosingmark", "me"},
    {"number", "n"},
    {"decimalnumber", "nd"},
    {"digit", "nd"},
    {"letternumber", "nl"},
    {"othernumber", "no"},
    {"punctuation", "p"},
    {"connectorpunctuation", "pc"},
    {"dashpunctuation", "pd"},
    {"openpunctuation", "ps"},
    {"closepunctuation", "pe"},
    {"initialpunctuation", "pi"},
    {"finalpunctuation", "pf"},
    {"otherpunctuation", "po"},
    {"symbol", "s"},
    {"mathsymbol", "sm"},
    {"currencysymbol", "sc"},
    {"modifiersymbol", "sk"},
    {"othersymbol", "so"},
    {"separator", "z"},
    {"spaceseparator", "zs"},
    {"lineseparator", "zl"},
    {"paragraphseparator", "zp"},
    {"other", "c"},
    {"control", "cc"},
    {"format", "cf"},
    {"privateuse", "co"},
    {"unassigned", "cn"},
};

struct NamedRanges {
  std::string_view name;
  const data::Range* ranges;
  const std::size_t* size;
};

constexpr NamedRanges kNamedRanges[] = {
    {"space", data::kSpace, &data::kSpaceSize},
    {"whitespace", data::kSpace, &data::kSpaceSize},
    {"alphabetic", data::kAlphabetic, &data::kAlphabeticSize},
    {"alpha", data::kAlphabetic, &data::kAlphabeticSize},
    {"uppercase", data::kUppercase, &data::kUppercaseSize},
    {"upper", data::kUppercase, &data::kUppercaseSize},
    {"lowercase", data::kLowercase, &data::kLowercaseSize},
    {"lower", data::kLowercase, &data::kLowercaseSize},
    {"punct", data::kPunct, &data::kPunctSize},
    {"emoji", data::kEmoji, &data::kEmojiSize},
};

bool contains(const data::Range* begin, const data::Range* end, char32_t code_point) {
  const data::Range* it = std::upper_bound(
      begin, end, code_point, [](char32_t c, const data::Range& range) { return c < range.first; });
  return it != begin && code_point <= (it - 1)->last;
}

// The code points whose run value satisfies `wanted`.
template <class Predicate>
CodePointSet select(const std::uint32_t* runs, std::size_t count, int bits, Predicate wanted) {
  std::vector<data::Range> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    if (wanted(runs[i] & ((1u << bits) - 1))) {
      const std::uint32_t last = i + 1 < count ? (runs[i + 1] >> bits) - 1 : kLastCodePoint;
      ranges.push_back({runs[i] >> bits, last});
    }
  }
  return CodePointSet(std::move(ranges));
}

std::optional<CodePointSet> category(std::string_view name) {
  const auto matches = [name](std::uint32_t index) {
    const std::string_view category_name = kCategoryNames[index];
    if (name == "lc") {
      return category_name == "lu" || category_name == "ll" || category_name == "lt";
    }
    return category_name.starts_with(name);
  };
  bool any = false;
  for (std::uint32_t i = 0; i < kCategoryNames.size(); ++i) {
    any = any || matches(i);
  }
  if (name.empty() || !any) {
    return std::nullopt;
  }
  return select(data::kCategories, data::kCategoriesSize, 5, matches);
}

// The union of general categories and their groups.
CodePointSet categories(std::initializer_list<std::string_view> names,
                        std::vector<data::Range> more = {}) {
  for (const std::string_view name : names) {
    const CodePointSet set = *category(name);
    more.insert(more.end(), set.ranges().begin(), set.ranges().end());
  }
  return CodePointSet(std::move(more));
}

// The classes that POSIX names and Unicode does not.
std::optional<CodePointSet> posix_only(std::string_view name) {
  if (name == "alnum") {
    return categories({"nd"}, {data::kAlphabetic, data::kAlphabetic + data::kAlphabeticSize});
  }
  if (name == "ascii") {
    return CodePointSet({{0, 0x7F}});
  }
  if (name == "blank") {
    return categories({"zs"}, {{'\t', '\t'}});
  }
  if (name == "cntrl") {
    return category("cc");
  }
  if (name == "graph") {
    return categories({"l", "m", "n", "p", "s", "cf", "co"});
  }
  if (name == "print") {
    return categories({"l", "m", "n", "p", "s", "cf", "co", "zs"});
  }
  if (name == "xdigit") {
    return CodePointSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  }
  return std::nullopt;
}

std::optional<CodePointSet> script(std::string_view name) {
  const data::ScriptName* end = data::kScriptNames + data::kScriptNamesSize;
  const data::ScriptName* it = std::lower_bound(
      data::kScriptNames, end, name,
      [](const data::ScriptName& row, std::string_view key) { return row.name < key; });
  if (it == end || it->name != name) {
    return std::nullopt;
  }
  return select(data::kScripts, data::kScriptsSize, 8,
                [index = it->index](std::uint32_t value) { return value == index; });
}

}  // namespace

CodePointSet::CodePointSet(std::vector<data::Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const data::Range& a, const data::Range& b) { return a.first < b.first; });
  for (const data::Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CodePointSet::contains(char32_t code_point) const {
  return tokenizer::contains(ranges_.data(), ranges_.data() + ranges_.size(), code_point);
}

CodePointSet CodePointSet::without_surrogates() const {
  CodePointSet result;
  for (const data::Range& range : ranges_) {
    if (range.first < 0xD800) {
      result.ranges_.push_back({range.first, std::min(range.last, std::uint32_t{0xD7FF})});
    }
    if (range.last > 0xDFFF) {
      result.ranges_.push_back({std::max(range.first, std::uint32_t{0xE000}), range.last});
    }
  }
  return result;
}

std::optional<CodePointSet> property(std::string_view name, bool in_brackets) {
  std::string key;
  for (const char c : name) {
    if (c != ' ' && c != '-' && c != '_') {
      key += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
  }
  for (const LongName& row : kLongNames) {
    if (row.name == key) {
      key = row.category;
      break;
    }
  }
  if (std::optional<CodePointSet> set = category(key)) {
    return set;
  }
  if (key == "word") {
    return word_class(in_brackets);
  }
  for (const NamedRanges& row : kNamedRanges) {
    if (row.name == key) {
      return CodePointSet({row.ranges, row.ranges + *row.size});
    }
  }
  const std::optional<CodePointSet> posix = posix_only(key);
  return posix ? posix : script(key);
}

std::optional<CodePointSet> posix_class(std::string_view name) {
  if (name == "punct") {
    return categories({"p", "s"});
  }
  if (name == "alpha" || name == "digit" || name == "lower" || name == "space" || name == "upper" ||
      name == "word") {
    return property(name, true);
  }
  return posix_only(name);
}

CodePointSet space_class() { return CodePointSet({data::kSpace, data::kSpace + data::kSpaceSize}); }

CodePointSet word_class(bool in_brackets) {
  if (!in_brackets) {
    return CodePointSet({data::kWord, data::kWord + data::kWordSize});
  }
  constexpr std::u32string_view kNumbers = U"\u00B2\u00B3\u00B9\u00BC\u00BD\u00BE";
  std::vector<data::Range> ranges;
  for (std::size_t i = 0; i < data::kWordSize; ++i) {
    data::Range range = data::kWord[i];
    for (; range.first <= range.last && range.first < 0x100; ++range.first) {
      if (!kNumbers.contains(range.first)) {
        ranges.push_back({range.first, range.first});
      }
    }
    if (range.first <= range.last) {
      ranges.push_back(range);
    }
  }
  return CodePointSet(std::move(ranges));
}

CodePointSet digit_class() { return *category("nd"); }

bool is_added_token_word(char32_t code_point) {
  return contains(data::kAddedTokenWord, data::kAddedTokenWord + data::kAddedTokenWordSize,
                  code_point);
}

bool is_white_space(char32_t code_point) {
  return contains(data::kSpace, data::kSpace + data::kSpaceSize, code_point);
}

CodePointTable::CodePointTable(const std::uint32_t* runs, std::size_t count, int value_bits) {
  using Block = std::array<std::uint8_t, 256>;
  std::map<Block, std::uint16_t> seen;
  const auto value = [&](std::size_t run) {
    return static_cast<std::uint8_t>(runs[run] & ((1u << value_bits) - 1));
  };
  const auto end = [&](std::size_t run) {
    return run + 1 < count ? runs[run + 1] >> value_bits : kLastCodePoint + 1;
  };
  std::size_t run = 0;
  for (std::uint32_t first = 0; first <= kLastCodePoint; first += 256) {
    Block block;  // NOLINT: filled below
    for (std::uint32_t at = 0; at < 256;) {
      const std::uint32_t stop = std::min(end(run) - first, std::uint32_t{256});
      std::fill(block.begin() + at, block.begin() + stop, value(run));
      at = stop;
      run += at < 256 || end(run) == first + 256 ? 1 : 0;
    }
    const auto [it, added] = seen.emplace(block, static_cast<std::uint16_t>(seen.size()));
    if (added) {
      blocks_.insert(blocks_.end(), block.begin(), block.end());
    }
    index_[first >> 8] = it->second;
  }
}

void CodePointTable::set(char32_t code_point, std::uint8_t value) {
  if ((*this)[code_point] == value) {
    return;
  }
  const std::uint16_t shared = index_[code_point >> 8];
  if (std::count(index_.begin(), index_.end(), shared) > 1) {
    const std::vector<std::uint8_t> copy(blocks_.begin() + (shared << 8),
                                         blocks_.begin() + (shared << 8) + 256);
    index_[code_point >> 8] = static_cast<std::uint16_t>(blocks_.size() >> 8);
    blocks_.insert(blocks_.end(), copy.begin(), copy.end());
  }
  blocks_[std::size_t{index_[code_point >> 8]} << 8 | (code_point & 0xFF)] = value;
}

CodePointTable membership(const data::Range* ranges, std::size_t count) {
  std::vector<std::uint32_t> runs;
  if (count == 0 || ranges[0].first != 0) {
    runs.push_back(0);
  }
  for (std::size_t i = 0; i < count; ++i) {
    runs.push_back(ranges[i].first << 1 | 1);
    if (ranges[i].last < kLastCodePoint) {
      runs.push_back((ranges[i].last + 1) << 1);
    }
  }
  return {runs.data(), runs.size(), 1};
}

const CodePointTable& code_point_kinds() {
  static const CodePointTable table = [] {
    CodePointTable kinds(data::kCategories, data::kCategoriesSize, 5);
    for (std::size_t i = 0; i < data::kSpaceSize; ++i) {
      for (std::uint32_t c = data::kSpace[i].first; c <= data::kSpace[i].last; ++c) {
        const bool newline = c == '\r' || c == '\n';
        kinds.set(
            c, static_cast<std::uint8_t>(newline ? CodePointKind::Newline : CodePointKind::Space));
      }
    }
    return kinds;
  }();
  return table;
}

}  // namespace fairlead::tokenizer
