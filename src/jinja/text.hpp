#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::jinja::text {

/// Like `text.find(part, from)`, in linear time whatever the texts are.
std::size_t find(std::string_view text, std::string_view part, std::size_t from = 0);

/// Number of code points.
std::size_t length(std::string_view text);

/// True when every byte is ASCII.
bool is_ascii(std::string_view text);

/// Byte offset of code point `index`; the size when there are not so many.
std::size_t offset(std::string_view text, std::size_t index);

/// Which ends `strip` works on.
enum class Side { Left, Right, Both };

/// Python's `strip` family: whitespace, or any character of `characters`.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = std::nullopt);

/// `str.split(None, limit)`; a negative limit means no limit.
std::vector<std::string_view> split_space(std::string_view text, long long limit);
/// `str.rsplit(None, limit)`.
std::vector<std::string_view> rsplit_space(std::string_view text, long long limit);
/// `str.split(separator, limit)`; the separator must not be empty.
std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    long long limit);
/// `str.rsplit(separator, limit)`; the separator must not be empty.
std::vector<std::string_view> rsplit(std::string_view text, std::string_view separator,
                                     long long limit);
/// `str.splitlines(keep_ends)`.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

/// `str.replace(from, to, limit)`; nothing when the result would be larger than `max_bytes`.
std::optional<std::string> replace(std::string_view text, std::string_view from,
                                   std::string_view to, long long limit, std::size_t max_bytes);

/// Number of non-overlapping occurrences, as `str.count`.
std::size_t count(std::string_view text, std::string_view part);

/// Escapes `&`, `<`, `>`, `'` and `"` as MarkupSafe does.
std::string escape_html(std::string_view text);

}  // namespace fairlead::jinja::text
