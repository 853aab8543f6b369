#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http_client.hpp"

namespace fairlead::net::http {
namespace {

using Events = std::vector<std::pair<std::string, std::string>>;

Events read(std::string_view text, std::size_t piece = std::string_view::npos) {
  SseReader reader;
  Events events;
  const auto collect = [&](std::string_view event, std::string_view data) {
    events.emplace_back(event, data);
  };
  for (std::size_t at = 0; at < text.size(); at += std::min(piece, text.size())) {
    EXPECT_TRUE(reader.feed(text.substr(at, piece), collect));
  }
  return events;
}

TEST(SseReader, ReadsEventsAsTheStandardSays) {
  EXPECT_EQ(read("data: a\n\n"), (Events{{"message", "a"}}));
  EXPECT_EQ(read("data:a\ndata\ndata:  b\n\n"), (Events{{"message", "a\n\n b"}}));
  EXPECT_EQ(read("event: e\ndata: x\n\ndata: y\n\n"), (Events{{"e", "x"}, {"message", "y"}}));
  EXPECT_EQ(read("event: e\n\ndata: x\n\n"), (Events{{"message", "x"}}));
  EXPECT_EQ(read(": comment\n\n:\n\nid: 1\nretry: 5\nunknown\n\n"), Events{});
  EXPECT_EQ(read("data\n\n"), (Events{{"message", ""}}));
  EXPECT_EQ(read("data: {\"a\": \"b: c\"}\n\n"), (Events{{"message", "{\"a\": \"b: c\"}"}}));
  EXPECT_EQ(read("data: unfinished\n"), Events{});
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "data: bom\n\n\xEF\xBB\xBF"
                 "data: none\n\n"),
            (Events{{"message", "bom"}}));
  EXPECT_EQ(read(" data: leading blank\n\n"), Events{});
  EXPECT_EQ(read("data: a\r\rdata: b\r\n\r\ndata: c\n\r\n"),
            (Events{{"message", "a"}, {"message", "b"}, {"message", "c"}}));
}

TEST(SseReader, ReadsTheSameHoweverTheBytesAreCut) {
  const std::string text =
      "\xEF\xBB\xBF: hi\r\n\r\nevent: x\r\ndata: one\r\ndata: two\r\n\r\ndata: three\n\n"
      "data: four\r\r\ndata: " +
      std::string(2000, 'z') + "\n\ndata: [DONE]\n\n";
  const Events expected = read(text);
  ASSERT_EQ(expected.size(), 5u);
  EXPECT_EQ(expected[0], (std::pair<std::string, std::string>("x", "one\ntwo")));
  for (std::size_t piece = 1; piece < text.size(); ++piece) {
    ASSERT_EQ(read(text, piece), expected) << piece;
  }
}

TEST(SseReader, BoundsLinesAndEvents) {
  const auto ignore = [](std::string_view, std::string_view) {};
  for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}}) {
    const auto accepts = [&](std::string_view text) {
      SseReader reader(20);
      for (std::size_t at = 0; at < text.size(); at += piece) {
        if (!reader.feed(text.substr(at, piece), ignore)) {
          EXPECT_FALSE(reader.feed("\n\n", ignore)) << "stays failed";
          return false;
        }
      }
      return true;
    };
    EXPECT_TRUE(accepts("data: 01234567890123\n\ndata: 01234567890123\n\n"));
    EXPECT_FALSE(accepts("data: 012345678901234\n\n"));
    EXPECT_FALSE(accepts(": comments are lines too\n"));
    EXPECT_FALSE(accepts("data: 01\ndata: 01\ndata: 01\n"));
    EXPECT_TRUE(accepts(":\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n:\n"));
    EXPECT_FALSE(accepts("data\ndata\ndata\ndata\ndata\ndata\n"));
  }
}

}  // namespace
}  // namespace fairlead::net::http
