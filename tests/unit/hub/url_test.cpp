#include "hub/url.hpp"

#include <gtest/gtest.h>

namespace fairlead::hub {
namespace {

TEST(Url, TheOriginIsSchemeHostAndPort) {
  EXPECT_EQ(origin_of("https://Hub.example/a?b"), "https://hub.example:443");
  EXPECT_EQ(origin_of("https://hub.example:443"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://127.0.0.1:8080/x"), "http://127.0.0.1:8080");
  EXPECT_NE(origin_of("http://hub.example"), origin_of("https://hub.example"));
  EXPECT_NE(origin_of("https://hub.example:444"), origin_of("https://hub.example"));
  EXPECT_EQ(origin_of("https://user:word@hub.example/"), "https://hub.example:443");
  for (const char* text : {"", "hub.example", "file:///etc/passwd", "ftp://a/b", "https://", "x"}) {
    EXPECT_EQ(origin_of(text), std::nullopt) << text;
  }
}

TEST(Url, RedirectionsLeadOnTheWebAndStayEncrypted) {
  EXPECT_EQ(follow("https://h/a/b", "/c"), "https://h/c");
  EXPECT_EQ(follow("https://h/a/b", "c?d=%2F"), "https://h/a/c?d=%2F");
  EXPECT_EQ(follow("https://h/a", "//cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(follow("http://h/a", "https://cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(follow("http://h/a", "http://other/x"), "http://other/x");
  EXPECT_EQ(follow("https://h/a", "http://h/a"), std::nullopt);
  EXPECT_EQ(follow("HTTPS://h/a", "http://h/a"), std::nullopt);
  EXPECT_EQ(follow("https://h/a", "file:///etc/passwd"), std::nullopt);
  EXPECT_EQ(follow("https://h/a", "ftp://h/a"), std::nullopt);
}

TEST(Url, SpecialCharactersAreQuoted) {
  EXPECT_EQ(quote("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(quote("refs/pr/1", "/"), "refs/pr/1");
  EXPECT_EQ(quote("a+b c#?%&\n"), "a%2Bb%20c%23%3F%25%26%0A");
  EXPECT_EQ(quote("tokenizer.model_v-3~"), "tokenizer.model_v-3~");
}

}  // namespace
}  // namespace fairlead::hub
