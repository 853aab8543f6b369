#include "tokenizer/regex.hpp"

#include <gtest/gtest.h>

#include "tokenizer/regex_pattern.hpp"

namespace fairlead::tokenizer {
namespace {

// The matches of a pattern, separated by `|`.
std::string matches(std::string_view pattern, std::string_view text) {
  const Result<Regex> regex = Regex::compile(pattern);
  if (!regex) {
    return "error: " + regex.error().message;
  }
  Regex::Matches found(*regex, text);
  Span span;
  std::string out;
  for (Result<bool> more = found.next(span); *more; more = found.next(span)) {
    out += out.empty() ? "" : "|";
    out += text.substr(span.begin, span.end - span.begin);
  }
  return out;
}

TEST(Regex, ExpandsUnicodeClasses) {
  EXPECT_EQ(matches(R"(\p{L}+)", "ab1é中 \u1C89x"), "ab|é中|\u1C89x");
  EXPECT_EQ(matches(R"(\P{L}+)", "ab12é 中"), "12| ");
  EXPECT_EQ(matches(R"(\p{^L}+)", "ab12é 中"), "12| ");
  EXPECT_EQ(matches(R"([\p{N}x]+)", "a1xbx٣"), "1x|x٣");
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a!? b"), "!?");
  EXPECT_EQ(matches(R"([\S&&[^a]]+)", "ab c"), "b|c");
  EXPECT_EQ(matches(R"([\w-]+)", "a-b c"), "a-b|c");
  EXPECT_EQ(matches(R"(\d+)", "1٣½2"), "1٣|2");
  EXPECT_EQ(matches(R"([[:alpha:]]+[[:^digit:]])", "ab- c1"), "ab-");
  EXPECT_EQ(matches(R"([[:punct:]]+)", "a$+!€♥、b"), "$+!€♥、");  // with the symbols
  EXPECT_EQ(matches(R"(\p{Punct}+)", "a$+!€♥、b"), "!|、");
  EXPECT_EQ(matches(R"([[:word:]]+)", "a²b_1"), "a|b_1");  // as \w in brackets
  EXPECT_EQ(matches(R"([[:alnum:]&&[:^xdigit:]]+)", "fghi_9٣"), "ghi|٣");
  EXPECT_EQ(matches(R"([[:blank:][:cntrl:]]+)", "a\t \u3000\u2028\u0085b"), "\t \u3000|\u0085");
  EXPECT_EQ(matches(R"([[:graph:]]+)", "é\u00AD\uE000 \u0378"), "é\u00AD\uE000");
  EXPECT_EQ(matches(R"([[:print:]]+)", "a\u3000b\n\u2028"), "a\u3000b");
  EXPECT_EQ(matches(R"([^[:ascii:]]+)", "aéb"), "é");
  EXPECT_EQ(matches(R"(\bfoo\b)", "foo foobar \u1C89foo foo"), "foo|foo");
  EXPECT_EQ(matches(R"(\p{Cs})", "abc"), "");
}

TEST(Regex, FollowsRubySyntax) {
  EXPECT_EQ(matches(R"(\p{N}{1,3}+)", "1234567"), "1234567");  // repeated, not possessive
  EXPECT_EQ(matches(R"(a++b)", "aab"), "aab");
  EXPECT_EQ(matches(R"((?i:'s|'t))", "'S 't '\u017F"), "'S|'t|'\u017F");
  EXPECT_EQ(matches(R"(\s+(?!\S))", "a   b  "), "  |  ");
  EXPECT_EQ(matches(R"((?<=a)b)", "ab b"), "b");
  EXPECT_EQ(matches(R"((?<name>a)(?#comment)b)", "ab"), "ab");
}

TEST(Regex, SkipsAnEmptyMatchBehindAMatch) {
  const Result<Regex> regex = Regex::compile("a*");
  Regex::Matches found(*regex, "aébaa");
  std::vector<Span> spans;
  Span span;
  for (Result<bool> more = found.next(span); *more; more = found.next(span)) {
    spans.push_back(span);
  }
  EXPECT_EQ(spans, (std::vector<Span>{{0, 1}, {3, 3}, {4, 6}}));
}

TEST(Regex, RefusesWhatItCannotKeepExact) {
  for (const std::string_view pattern :
       {R"(\X)", R"(\p{NoSuchScript})", R"(\p{Age=16.0})", R"((?i:é))", R"((?i)\p{Lu})",
        R"((?x) a)", R"([[:letter:]])", R"([[:emoji:]])", R"([[:Punct:]])", R"(\R)", R"((?~abc))",
        R"((*FAIL))", R"(\pL)", R"(a\)", R"([a)", R"(\p{L)", R"([]a])", R"((?<n)",
        R"((?i:\x{E9}))"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_TRUE(regex.error().message.starts_with("regex: ")) << regex.error().message;
  }
}

TEST(Regex, ReportsSyntaxErrorsOfTheLibrary) {
  EXPECT_FALSE(Regex::compile("(a"));
  EXPECT_FALSE(Regex::compile("a)"));
  EXPECT_FALSE(Regex::compile("*"));
  EXPECT_FALSE(Regex::compile("\xFF"));
  EXPECT_FALSE(Regex::compile(std::string(kMaxPatternBytes + 1, 'a')));
  EXPECT_FALSE(Regex::compile(std::string(1000, '(') + std::string(1000, ')')));
  EXPECT_FALSE(Regex::compile(std::string(1000, '[') + 'a' + std::string(1000, ']')));
}

TEST(Regex, GivesUpOnCatastrophicBacktracking) {
  const Result<Regex> regex = Regex::compile("(a*)*b");
  ASSERT_TRUE(regex);
  const std::string text(64, 'a');
  Regex::Matches found(*regex, text);
  Span span;
  const Result<bool> result = found.next(span);
  EXPECT_TRUE(!result || !*result);
}

}  // namespace
}  // namespace fairlead::tokenizer
