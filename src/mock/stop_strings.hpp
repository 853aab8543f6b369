#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fairlead::mock {

/// The text of a stream with stop strings in it, as vLLM's detokenizer treats it: what could still
/// become a stop string is held back, and the text ends before (or behind) the first match.
class StopStrings {
 public:
  /// No string may be empty. `include` keeps the match in the text; then nothing is held back.
  StopStrings(std::vector<std::string> strings, bool include);

  /// Adds text; what may be shown is appended to `out`. The result is the string that matched;
  /// nothing may be added after that. Matches are looked for only with `armed`.
  std::optional<std::string> push(std::string_view text, bool armed, std::string& out);
  /// Appends what is still held back.
  void flush(std::string& out);

 private:
  std::vector<std::string> strings_;
  std::size_t longest_ = 0;
  bool include_;
  std::string text_;       // from the earliest byte that a match could begin with
  std::size_t shown_ = 0;  // bytes of `text_` already shown
};

}  // namespace fairlead::mock
