#include <gtest/gtest.h>

#include <random>
#include <string>

#include "jinja/bigint.hpp"
#include "jinja/lexer.hpp"
#include "jinja/ops.hpp"
#include "jinja/sorting.hpp"
#include "jinja/template.hpp"
#include "jinja/text.hpp"
#include "jinja/unicode.hpp"

namespace fairlead::jinja {
namespace {

TEST(BigInt, AgreesWith128BitArithmetic) {
  std::mt19937_64 random(7);
  const auto to_big = [](__int128 value) {
    const bool negative = value < 0;
    auto magnitude =
        negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
    std::string digits;
    do {
      digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(magnitude % 10)));
      magnitude /= 10;
    } while (magnitude != 0);
    return *BigInt::parse((negative ? "-" : "") + digits);
  };
  for (int i = 0; i < 2000; ++i) {
    const auto a = static_cast<std::int64_t>(random()) >> (random() % 60);
    auto b = static_cast<std::int64_t>(random()) >> (random() % 60);
    b = b == 0 ? 1 : b;
    const __int128 wide = static_cast<__int128>(a) * b;
    EXPECT_EQ(BigInt(a) * BigInt(b), to_big(wide));
    EXPECT_EQ(BigInt(a) + BigInt(b), to_big(static_cast<__int128>(a) + b));
    EXPECT_EQ(BigInt(a) - BigInt(b), to_big(static_cast<__int128>(a) - b));
    EXPECT_EQ(BigInt(a) < BigInt(b), a < b);
    BigInt quotient;
    BigInt remainder;
    BigInt::divide(to_big(wide) + BigInt(7), BigInt(b), quotient, remainder);
    EXPECT_EQ(quotient * BigInt(b) + remainder, to_big(wide) + BigInt(7));
    EXPECT_TRUE(remainder.zero() || remainder.negative() == (b < 0));
    EXPECT_TRUE((remainder < BigInt(std::abs(b))) && (BigInt(-std::abs(b)) < remainder));
  }
}

TEST(BigInt, FloatsConvertExactly) {
  EXPECT_EQ(BigInt::from_double(1e22).text(), "10000000000000000000000");
  EXPECT_EQ(BigInt::from_double(-1e23).text(), "-99999999999999991611392");
  EXPECT_EQ(BigInt::parse("100000000000000000000")->to_double(), 1e20);
  EXPECT_FALSE(BigInt::parse("12x"));
  EXPECT_FALSE(BigInt::parse("-"));
}

TEST(JinjaText, SplitsAsPythonDoes) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(text::split_space(" a  b c ", 1), (Parts{"a", "b c "}));
  EXPECT_EQ(text::rsplit_space(" a  b c ", 1), (Parts{" a  b", "c"}));
  EXPECT_EQ(text::split("a--b----c", "--", -1), (Parts{"a", "b", "", "c"}));
  EXPECT_EQ(text::rsplit("aaa", "aa", -1), (Parts{"a", ""}));
  EXPECT_EQ(text::split_lines("a\r\nb\x0b\xe2\x80\xa8", false), (Parts{"a", "b", ""}));
  EXPECT_EQ(text::split_lines("a\n\nb", true), (Parts{"a\n", "\n", "b"}));
  EXPECT_EQ(text::strip("\xe3\x80\x80 x\xc2\xa0", text::Side::Both), "x");
  EXPECT_EQ(text::replace("abc", "", "-", -1, 100), "-a-b-c-");
  EXPECT_EQ(text::replace("aaaa", "a", "bbb", -1, 4), std::nullopt);
  EXPECT_EQ(text::count("banana", "ana"), 1u);
}

TEST(JinjaUnicode, CasesFollowPython) {
  EXPECT_EQ(unicode::lower("ΑΣ ΑΣΑ İ"), "ας ασα i̇");
  EXPECT_EQ(unicode::upper("straße ﬁ"), "STRASSE FI");
  EXPECT_EQ(unicode::title("ǆ they're"), "ǅ They'Re");
  EXPECT_EQ(unicode::casefold("ẞ"), "ss");
  EXPECT_EQ(unicode::decimal_value(U'٣'), 3);
  EXPECT_EQ(unicode::decimal_value(U'²'), -1);
  EXPECT_TRUE(unicode::is_space(0x3000));
  EXPECT_FALSE(unicode::is_space(0x200B));
}

TEST(MergeSort, IsStableAndSurvivesNonsense) {
  std::mt19937 random(3);
  std::vector<std::pair<int, int>> items;
  for (int i = 0; i < 1000; ++i) {
    items.emplace_back(static_cast<int>(random() % 10), i);
  }
  merge_sort(items, [](const auto& a, const auto& b) { return a.first < b.first; });
  EXPECT_TRUE(std::ranges::is_sorted(items));
  merge_sort(items, [&random](const auto&, const auto&) { return random() % 2 == 0; });
  std::ranges::sort(items);
  EXPECT_EQ(items.size(), 1000u);
  EXPECT_EQ(std::ranges::unique(items).size(), 0u);
}

TEST(Lexer, TakesNumbersApartAsJinjaDoes) {
  const auto texts = [](std::string_view source) {
    std::vector<std::string> found;
    const auto tokens = tokenize(source);
    for (const Token& token : *tokens) {
      if (token.type == TokenType::Integer || token.type == TokenType::Float) {
        found.push_back(token.text);
      }
    }
    return found;
  };
  EXPECT_EQ(texts("{{ 1_0 1.5e-3 0x_1F 0b1 007 a.1.2 1e5 }}"),
            (std::vector<std::string>{"10", "1.5e-3", "0x1F", "0b1", "00", "7", "1", "2", "1e5"}));
}

TEST(Lexer, RefusesWhatIsNoTemplate) {
  EXPECT_FALSE(tokenize("\xff"));
  EXPECT_FALSE(tokenize("{{ ` }}"));
  EXPECT_FALSE(tokenize("{# open"));
  EXPECT_FALSE(tokenize("{{ '\\x4' }}"));
  EXPECT_FALSE(tokenize(std::string((std::size_t{8} << 20) + 1, ' ')));
}

TEST(Template, TellsWhetherItWalksContent) {
  const auto walks = [](std::string source) {
    return (*Template::parse(std::move(source)))->loops_over_content();
  };
  EXPECT_FALSE(walks("{% for m in messages %}{{ m.content }}{% endfor %}"));
  EXPECT_TRUE(
      walks("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(
      walks("{% for m in messages %}{% for p in m['content'] | list %}{% endfor %}{% endfor %}"));
  EXPECT_TRUE(
      walks("{% set rest = messages[1:] %}{% for m in rest %}{% for p in m.content %}{% endfor "
            "%}{% endfor %}"));
  EXPECT_TRUE(walks("{% macro text(content) %}{% for p in content %}{% endfor %}{% endmacro %}"));
  EXPECT_FALSE(walks("{% for m in other %}{% for p in m.content %}{% endfor %}{% endfor %}"));
}

}  // namespace
}  // namespace fairlead::jinja
