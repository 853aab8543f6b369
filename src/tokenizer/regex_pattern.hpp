#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace fairlead::tokenizer {

/// Longest pattern accepted, in bytes.
inline constexpr std::size_t kMaxPatternBytes = 16 * 1024;

/// Rewrites a pattern in Oniguruma's Ruby syntax so that its meaning no longer depends on the
/// Unicode version of the installed library: `\p{…}`, `\s`, `\d`, `\w`, `\b` and POSIX brackets
/// become explicit ranges from the tables in this folder. What cannot be rewritten exactly
/// (case-insensitive matching beyond ASCII, text segments, callouts …) is an error naming it.
Result<std::string> expand_pattern(std::string_view pattern);

}  // namespace fairlead::tokenizer
