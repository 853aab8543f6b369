#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fairlead::chat {

/// Finds stop strings in the text of one choice as it streams. The match that begins earliest in
/// the whole text wins, the shortest of several that begin together; the result is the same for
/// every way the text is cut. Text is released as soon as no match can begin in it. Works on bytes,
/// so on any valid UTF-8 cut at characters.
class StopMatcher {
 public:
  /// `stops` outlive the matcher; none is empty. With `include_stop` the matched string is released
  /// too.
  StopMatcher(std::span<const std::string> stops, bool include_stop);

  /// Appends to `release` what has become certain. The result is the index of the stop string that
  /// matched; nothing may be fed after that.
  std::optional<std::size_t> feed(std::string_view text, std::string& release);
  /// The text has ended: releases what was withheld, up to a match that only a longer one, begun
  /// before it, had kept open.
  std::optional<std::size_t> finish(std::string& release);

 private:
  std::optional<std::size_t> scan(bool ended, std::string& release);

  std::span<const std::string> stops_;
  bool include_stop_;
  std::bitset<256> first_bytes_;
  std::string withheld_;
};

}  // namespace fairlead::chat
