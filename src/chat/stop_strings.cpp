#include "chat/stop_strings.hpp"

namespace fairlead::chat {

StopMatcher::StopMatcher(std::span<const std::string> stops, bool include_stop)
    : stops_(stops), include_stop_(include_stop) {
  for (const std::string& stop : stops_) {
    first_bytes_.set(static_cast<unsigned char>(stop.front()));
  }
}

std::optional<std::size_t> StopMatcher::feed(std::string_view text, std::string& release) {
  withheld_ += text;
  return scan(false, release);
}

std::optional<std::size_t> StopMatcher::finish(std::string& release) { return scan(true, release); }

std::optional<std::size_t> StopMatcher::scan(bool ended, std::string& release) {
  std::size_t start = 0;
  for (; start < withheld_.size(); ++start) {
    if (!first_bytes_.test(static_cast<unsigned char>(withheld_[start]))) {
      continue;
    }
    const std::string_view rest = std::string_view(withheld_).substr(start);
    std::optional<std::size_t> match;
    bool open = false;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      const std::string_view stop = stops_[i];
      if (rest.starts_with(stop)) {
        if (!match || stop.size() < stops_[*match].size()) {
          match = i;
        }
      } else if (stop.starts_with(rest)) {
        open = true;
      }
    }
    if (match) {
      const std::size_t end = start + (include_stop_ ? stops_[*match].size() : 0);
      release.append(withheld_, 0, end);
      withheld_.clear();
      return match;
    }
    if (open && !ended) {
      break;
    }
  }
  release.append(withheld_, 0, start);
  withheld_.erase(0, start);
  return std::nullopt;
}

}  // namespace fairlead::chat
