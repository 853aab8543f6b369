#include "jinja/text.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/utf8.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja::text {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Start of the code point that ends before `end`.
std::size_t previous(std::string_view text, std::size_t end) {
  do {
    --end;
  } while (end > 0 && is_continuation(text[end]));
  return end;
}

char32_t decode_at(std::string_view text, std::size_t pos) { return utf8::decode(text, pos); }

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

template <class Strips>
std::string_view strip_if(std::string_view text, Side side, Strips strips) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (side != Side::Right) {
    while (begin < end) {
      std::size_t next = begin;
      if (!strips(utf8::decode(text, next))) {
        break;
      }
      begin = next;
    }
  }
  if (side != Side::Left) {
    while (end > begin) {
      const std::size_t start = previous(text, end);
      if (!strips(decode_at(text, start))) {
        break;
      }
      end = start;
    }
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::size_t find(std::string_view text, std::string_view part, std::size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  const void* at = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
}

std::size_t length(std::string_view text) {
  std::size_t continuations = 0;
  for (char c : text) {
    continuations += is_continuation(c) ? 1 : 0;
  }
  return text.size() - continuations;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t offset(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (index > 0 && pos < text.size()) {
    ++pos;
    while (pos < text.size() && is_continuation(text[pos])) {
      ++pos;
    }
    --index;
  }
  return pos;
}

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  if (!characters) {
    return strip_if(text, side, unicode::is_space);
  }
  if (characters->size() == 1) {
    const auto only = static_cast<unsigned char>((*characters)[0]);
    return strip_if(text, side, [only](char32_t c) { return c == only; });
  }
  std::u32string set;
  for (std::size_t pos = 0; pos < characters->size();) {
    set.push_back(utf8::decode(*characters, pos));
  }
  std::ranges::sort(set);
  return strip_if(text, side, [&set](char32_t c) { return std::ranges::binary_search(set, c); });
}

std::vector<std::string_view> split_space(std::string_view text, long long limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip(text, Side::Left);
  while (!rest.empty()) {
    if (limit == 0) {
      parts.push_back(rest);
      break;
    }
    std::size_t pos = 0;
    std::size_t end = 0;
    while (pos < rest.size()) {
      end = pos;
      if (unicode::is_space(utf8::decode(rest, pos))) {
        break;
      }
      end = pos;
    }
    parts.push_back(rest.substr(0, end));
    rest = strip(rest.substr(end), Side::Left);
    --limit;
  }
  return parts;
}

std::vector<std::string_view> rsplit_space(std::string_view text, long long limit) {
  std::vector<std::string_view> parts;
  std::string_view rest = strip(text, Side::Right);
  while (!rest.empty()) {
    if (limit == 0) {
      parts.push_back(rest);
      break;
    }
    std::size_t begin = rest.size();
    while (begin > 0) {
      const std::size_t start = previous(rest, begin);
      if (unicode::is_space(decode_at(rest, start))) {
        break;
      }
      begin = start;
    }
    parts.push_back(rest.substr(begin));
    rest = strip(rest.substr(0, begin), Side::Right);
    --limit;
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    long long limit) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  while (limit != 0) {
    const std::size_t at = text::find(text, separator, begin);
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
    --limit;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     long long limit) {
  std::vector<std::string_view> parts;
  std::size_t end = text.size();
  while (limit != 0 && end >= separator.size()) {
    const std::size_t at = text.rfind(separator, end - separator.size());
    if (at == std::string_view::npos) {
      break;
    }
    parts.push_back(text.substr(at + separator.size(), end - at - separator.size()));
    end = at;
    --limit;
  }
  parts.push_back(text.substr(0, end));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  std::size_t pos = 0;
  while (pos < text.size()) {
    const std::size_t start = pos;
    const char32_t c = utf8::decode(text, pos);
    if (!is_line_break(c)) {
      continue;
    }
    if (c == '\r' && pos < text.size() && text[pos] == '\n') {
      ++pos;
    }
    lines.push_back(text.substr(begin, (keep_ends ? pos : start) - begin));
    begin = pos;
  }
  if (begin < text.size()) {
    lines.push_back(text.substr(begin));
  }
  return lines;
}

std::optional<std::string> replace(std::string_view text, std::string_view from,
                                   std::string_view to, long long limit, std::size_t max_bytes) {
  std::string out;
  if (from.empty()) {
    // Python puts `to` before every character and at the end.
    std::size_t pos = 0;
    while (true) {
      if (limit == 0) {
        out.append(text.substr(pos));
        break;
      }
      out.append(to);
      --limit;
      if (pos >= text.size()) {
        break;
      }
      const std::size_t start = pos;
      utf8::decode(text, pos);
      out.append(text.substr(start, pos - start));
      if (out.size() > max_bytes) {
        return std::nullopt;
      }
    }
    return out;
  }
  std::size_t begin = 0;
  while (limit != 0) {
    const std::size_t at = text::find(text, from, begin);
    if (at == std::string_view::npos) {
      break;
    }
    if (out.empty()) {
      out.reserve(text.size());
    }
    out.append(text.substr(begin, at - begin));
    out.append(to);
    begin = at + from.size();
    --limit;
    if (out.size() > max_bytes) {
      return std::nullopt;
    }
  }
  out.append(text.substr(begin));
  return out;
}

std::size_t count(std::string_view text, std::string_view part) {
  if (part.empty()) {
    return length(text) + 1;
  }
  std::size_t found = 0;
  for (std::size_t at = text::find(text, part, 0); at != std::string_view::npos;
       at = text::find(text, part, at + part.size())) {
    ++found;
  }
  return found;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace fairlead::jinja::text
