#include "mock/stop_strings.hpp"

#include <algorithm>
#include <utility>

namespace fairlead::mock {

StopStrings::StopStrings(std::vector<std::string> strings, bool include)
    : strings_(std::move(strings)), include_(include) {
  for (const std::string& string : strings_) {
    longest_ = std::max(longest_, string.size());
  }
}

std::optional<std::string> StopStrings::push(std::string_view text, bool armed, std::string& out) {
  text_ += text;
  std::size_t best = std::string::npos;
  const std::string* match = nullptr;
  for (const std::string& string : strings_) {
    const std::size_t at = armed ? text_.find(string) : std::string::npos;
    if (at < best) {
      best = at;
      match = &string;
    }
  }
  if (match) {
    const std::size_t end = include_ ? best + match->size() : best;
    if (end > shown_) {
      out.append(text_, shown_, end - shown_);
    }
    text_.clear();
    shown_ = 0;
    return *match;
  }
  const std::size_t keep = std::min(text_.size(), longest_ - 1);
  const std::size_t show = include_ ? text_.size() : text_.size() - keep;
  if (show > shown_) {
    out.append(text_, shown_, show - shown_);
    shown_ = show;
  }
  const std::size_t drop = text_.size() - keep;
  text_.erase(0, drop);
  shown_ = shown_ > drop ? shown_ - drop : 0;
  return std::nullopt;
}

void StopStrings::flush(std::string& out) {
  out.append(text_, shown_);
  text_.clear();
  shown_ = 0;
}

}  // namespace fairlead::mock
