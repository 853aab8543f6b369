#pragma once

#include <filesystem>
#include <iosfwd>

namespace fairlead::tokenizer {

/// Options of `fairlead tokenize`.
struct TokenizeOptions {
  std::filesystem::path model;  ///< Model folder or tokenizer file.
  bool decode = false;          ///< Ids to text instead of text to ids.
};

/// Longest input line, in bytes.
inline constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;

/// Answers each JSON line of `in` with one JSON line on `out`, flushed at once. Encoding:
/// `{"text": "…", "add_special_tokens": true}` → `{"ids": […]}`, truncated and padded as the
/// tokenizer's file says. Decoding: `{"ids": […], "skip_special_tokens": false, "prompt_ids": […]}`
/// → `{"text": "…", "deltas": ["…", …]}`, where `deltas` are what a stream would emit after that
/// prompt, one per id and one for the flush. The values shown are the defaults. A bad line gets
/// `{"error": "…"}` and the next one is served. Returns the exit code: 0, or 1 when the model does
/// not load (one line on stderr).
int run_tokenize(std::istream& in, std::ostream& out, const TokenizeOptions& options);

}  // namespace fairlead::tokenizer
