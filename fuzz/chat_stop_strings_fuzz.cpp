// links: fl_chat

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/stop_strings.hpp"

namespace {

struct Outcome {
  std::string text;
  std::optional<std::size_t> match;
};

// Feeds `text` in pieces whose sizes `cuts` gives (0: byte by byte).
Outcome run(const std::vector<std::string>& stops, bool include, std::string_view text,
            std::string_view cuts) {
  fairlead::chat::StopMatcher matcher(stops, include);
  Outcome outcome;
  for (std::size_t at = 0; !text.empty(); ++at) {
    // Empty pieces happen too, but not forever.
    const std::size_t wanted =
        cuts.empty() ? 1 : static_cast<unsigned char>(cuts[at % cuts.size()]) % 9 + at / 256;
    const std::size_t size = std::min(wanted, text.size());
    outcome.match = matcher.feed(text.substr(0, size), outcome.text);
    if (outcome.match) {
      return outcome;
    }
    text.remove_prefix(size);
  }
  outcome.match = matcher.finish(outcome.text);
  return outcome;
}

}  // namespace

// Input: option byte, then fields separated by byte 0xFF: cuts, text, stop strings.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) {
    return 0;
  }
  const bool include = (data[0] & 1) != 0;
  std::vector<std::string> fields(1);
  for (std::size_t i = 1; i < size; ++i) {
    if (data[i] == 0xFF) {
      fields.emplace_back();
    } else {
      fields.back() += static_cast<char>(data[i]);
    }
  }
  if (fields.size() < 3) {
    return 0;
  }
  std::vector<std::string> stops;
  for (std::size_t i = 2; i < fields.size() && stops.size() < 32; ++i) {
    if (!fields[i].empty()) {
      stops.push_back(fields[i]);
    }
  }
  const std::string& text = fields[1];
  const Outcome cut = run(stops, include, text, fields[0]);
  const Outcome single = run(stops, include, text, {});
  if (cut.text != single.text || cut.match != single.match) {
    __builtin_trap();
  }
  // Whatever was released is the beginning of the text; without a match it is all of it.
  if (!std::string_view(text).starts_with(cut.text) || (!cut.match && cut.text != text)) {
    __builtin_trap();
  }
  return 0;
}
