#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

namespace fairlead::chat {

/// Options of `fairlead render`.
struct RenderOptions {
  /// Model folder whose templates lines use that bring none; may be empty.
  std::string model;
};

/// Longest input line, in bytes.
inline constexpr std::size_t kMaxRenderLine = std::size_t{256} << 20;

/// Answers each JSON line of `in` with one JSON line on `out`, flushed at once, in order:
/// `{"prompt": "…"}` or `{"error": "…"}`. A line holds a conversation — `messages`, `tools`,
/// `documents`, `add_generation_prompt` (true unless the final message is continued),
/// `continue_final_message` (true, false or the name of the field), `chat_template_kwargs`,
/// `chat_template` (source instead of the model's), `special_tokens`, `now` (ISO local time),
/// `normalize` (false: as transformers' `apply_chat_template`; true: as the server) — or a bare
/// template: `template` and `context`. Returns the exit code: 0, or 1 when the model does not load
/// (one line on stderr).
int run_render(std::istream& in, std::ostream& out, const RenderOptions& options);

}  // namespace fairlead::chat
