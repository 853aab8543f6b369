#include "chat/stop_strings.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace fairlead::chat {
namespace {

struct Found {
  std::string text;
  std::optional<std::size_t> match;
  bool operator==(const Found&) const = default;
};

// The definition: earliest begin, then shortest.
Found search(const std::vector<std::string>& stops, bool include, std::string_view text) {
  for (std::size_t start = 0; start < text.size(); ++start) {
    std::optional<std::size_t> match;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      if (text.substr(start).starts_with(stops[i]) &&
          (!match || stops[i].size() < stops[*match].size())) {
        match = i;
      }
    }
    if (match) {
      const std::size_t end = start + (include ? stops[*match].size() : 0);
      return {std::string(text.substr(0, end)), match};
    }
  }
  return {std::string(text), std::nullopt};
}

Found stream(const std::vector<std::string>& stops, bool include,
             const std::vector<std::string_view>& pieces) {
  StopMatcher matcher(stops, include);
  Found found;
  for (const std::string_view piece : pieces) {
    found.match = matcher.feed(piece, found.text);
    if (found.match) {
      return found;
    }
  }
  found.match = matcher.finish(found.text);
  return found;
}

TEST(StopMatcher, ReleasesWhatCannotBeginAMatch) {
  const std::vector<std::string> stops{"STOP"};
  StopMatcher matcher(stops, false);
  std::string out;
  EXPECT_FALSE(matcher.feed("hello ST", out));
  EXPECT_EQ(out, "hello ");
  EXPECT_FALSE(matcher.feed("A", out));
  EXPECT_EQ(out, "hello STA");
  EXPECT_FALSE(matcher.feed("STO", out));
  EXPECT_EQ(matcher.feed("Pxyz", out), 0u);
  EXPECT_EQ(out, "hello STA");
}

TEST(StopMatcher, AnEarlierBeginWinsOverAnEarlierEnd) {
  const std::vector<std::string> stops{"bc", "abcd"};
  EXPECT_EQ(stream(stops, false, {"x", "abc", "d"}), (Found{"x", 1}));
  EXPECT_EQ(stream(stops, false, {"x", "abc", "e"}), (Found{"xa", 0}));
  EXPECT_EQ(stream(stops, true, {"x", "abc"}), (Found{"xabc", 0}));
}

TEST(StopMatcher, AnyCutGivesTheWholeTextsResult) {
  std::mt19937 random(1);
  const auto word = [&](std::size_t most) {
    std::string out;
    for (std::size_t i = 1 + random() % most; i > 0; --i) {
      out.push_back("ab\xC3"[random() % 3]);
    }
    return out;
  };
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (std::size_t i = 1 + random() % 4; i > 0; --i) {
      stops.push_back(word(5));
    }
    const std::string text = word(16);
    const bool include = random() % 2 == 0;
    std::vector<std::string_view> pieces;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t count = 1 + random() % 4;
      pieces.push_back(std::string_view(text).substr(at, count));
      at += count;
    }
    ASSERT_EQ(stream(stops, include, pieces), search(stops, include, text)) << text;
  }
}

}  // namespace
}  // namespace fairlead::chat
