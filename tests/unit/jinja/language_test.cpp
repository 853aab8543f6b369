#include <thread>
#include <vector>

#include "jinja/testing.hpp"

namespace fairlead::jinja {
namespace {

TEST(JinjaWhitespace, StatementsTakeTheirLineAndVariablesDoNot) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {{ 1 }}\nc\n\n"), "a\n  1\nc\n");
  EXPECT_EQ(render("a \n {%- if true -%} \n b \n {%- endif -%} \n c"), "abc");
  EXPECT_EQ(render("  {%+ if true %}a{% endif %}"), "  a");
  EXPECT_EQ(render("x {{- 1 -}} y {{ 2 }} z"), "x1y 2 z");
  EXPECT_EQ(render("a\r\nb\rc\n"), "a\nb\nc");
}

TEST(JinjaWhitespace, CommentsAndRawBlocks) {
  EXPECT_EQ(render("a{# {{ x }} #}b\n{# line #}\nc"), "ab\nc");
  EXPECT_EQ(render("{% raw %}{{ x }} {% y %}{% endraw %}"), "{{ x }} {% y %}");
  EXPECT_EQ(render("a {%- raw -%} b {%- endraw -%} c"), "abc");
  EXPECT_EQ(render("a {%- generation -%} b {%- endgeneration -%} c"), "abc");
}

TEST(JinjaScopes, AssignmentsInLoopsStayInside) {
  EXPECT_EQ(
      render(
          "{% set x = 1 %}{% for i in [2, 3] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}"),
      "12131");
  EXPECT_EQ(render("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(render("{% if false %}{% set n = 1 %}{% endif %}{{ n }}", R"({"n": 7})"), "7");
  EXPECT_EQ(render("{{ q }}{% set q = 1 %}{{ q }}"), "1");
  EXPECT_EQ(render("{% set ns = namespace(x=0) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% "
                   "endfor %}{{ ns.x }}"),
            "3");
}

TEST(JinjaScopes, MacrosSeeLaterAssignmentsAndOutliveTheirScope) {
  EXPECT_EQ(render("{% macro m() %}{{ late }}{% endmacro %}{% set late = 5 %}{{ m() }}"), "5");
  EXPECT_EQ(
      render(
          "{% set ns = namespace() %}{% macro outer(v) %}{% macro inner() %}{{ v }}{% endmacro %}"
          "{% set ns.f = inner %}{% endmacro %}{{ outer(3) }}{{ outer(4) }}{{ ns.f() }}"),
      "4");
  EXPECT_EQ(render("{% macro m(a, b=a) %}{{ a }}{{ b }}{{ caller(9) }}{% endmacro %}{% call(x) "
                   "m(1) %}<{{ x }}>{% endcall %}"),
            "11<9>");
}

TEST(JinjaLoops, LookAheadOnlyWhenAsked) {
  EXPECT_EQ(render("{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}{{ x }}{{ loop.last }}{{ "
                   "loop.length }};{% endfor %}"),
            "11False2;23True2;");
  // The filter runs item by item, so the body can end it.
  EXPECT_EQ(render("{% set ns = namespace(f=false) %}{% for m in [1, 2, 3] if not ns.f %}{{ m }}{% "
                   "set ns.f = m == 2 %}{% endfor %}"),
            "12");
  EXPECT_EQ(render("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}@{{ "
                   "loop.depth }} {% endfor %}"),
            "1@1 2@2 3@3 @2 @1 ");
}

TEST(JinjaSandbox, ContainersCannotBeChanged) {
  EXPECT_EQ(render("{{ [].append(1) }}"),
            "error: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(render("{{ {}.update({}) }}"),
            "error: access to attribute 'update' of 'dict' object is unsafe.");
  EXPECT_EQ(render("{{ ''.__class__ is defined }}{{ ''.__class__.__mro__ }}"),
            "error: access to attribute '__class__' of 'str' object is unsafe.");
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns._x = 1 %}").substr(0, 33),
            "error: Chat templates cannot stor");
}

TEST(JinjaErrors, NameTheLine) {
  EXPECT_EQ(render("a\nb\n{% if %}"),
            "error: Expected an expression, got 'end of statement block' (line 3)");
  EXPECT_EQ(render("{{ x.y.z }}"), "error: 'x' is undefined");
  EXPECT_EQ(render("{{ x.y.z }}", R"({"x": {}})"), "error: 'dict object' has no attribute 'y'");
  EXPECT_EQ(render("{{ raise_exception('own words') }}"), "error: own words");
}

TEST(JinjaNumbers, IntegersHaveNoLimit) {
  EXPECT_EQ(
      render("{{ 2 ** 64 }} {{ 2 ** 64 // -3 }} {{ 2 ** 64 % -3 }} {{ -(2 ** 63) }} {{ n + 1 }}",
             R"({"n": 99999999999999999999})"),
      "18446744073709551616 -6148914691236517206 -2 -9223372036854775808 100000000000000000000");
  EXPECT_EQ(
      render(
          "{{ 9223372036854775807 + 1 - 1 == 9223372036854775807 }}{{ 2 ** 53 + 1 == 2.0 ** 53 }}"),
      "TrueFalse");
}

TEST(JinjaNumbers, FloatsPrintAsPythonPrintsThem) {
  EXPECT_EQ(
      render("{{ [1.0, 0.1 + 0.2, 1e16, 1e15, 1e-5, 0.0001, 1e22, 5e-324, -0.0] }}"),
      "[1.0, 0.30000000000000004, 1e+16, 1000000000000000.0, 1e-05, 0.0001, 1e+22, 5e-324, -0.0]");
}

TEST(JinjaJson, KeepsWhatWasNeverUnpackedAsItCame) {
  const std::string_view context =
      R"({"t": {"b": [1.0, 100000000000000000000, "é\u2028<"], "a": {}, "items": null}})";
  EXPECT_EQ(render("{{ t | tojson }}", context),
            "{\"b\": [1.0, 100000000000000000000, \"é\u2028<\"], \"a\": {}, \"items\": null}");
  EXPECT_EQ(render("{{ t.a }}{{ t | tojson(sort_keys=true, separators=(',', ':')) }}", context),
            "{}{\"a\":{},\"b\":[1.0,100000000000000000000,\"é\u2028<\"],\"items\":null}");
  EXPECT_EQ(render("{{ t['items'] is none }}{{ t.items() | list | length }}", context), "True3");
}

TEST(JinjaMarkup, EscapesWhatItMeets) {
  EXPECT_EQ(render("{{ ('<b>'|safe) + '<i>' }}{{ '<i>' ~ ('<b>'|safe) }}{{ '<b>'|e }}"),
            "<b>&lt;i&gt;<i><b>&lt;b&gt;");
}

TEST(JinjaTemplate, RendersOnManyThreadsAtOnce) {
  const auto parsed = Template::parse(
      "{% set c = {'k': [1, 2, {'x': 'y'}]} %}{% macro m(v) %}{{ v }}{{ c.k[2].x }}{% endmacro %}"
      "{% for i in range(50) %}{{ m(i) }}{{ i in [1, 2, 3] }}{% endfor %}{{ n }}");
  ASSERT_TRUE(parsed);
  const json::Value document = json::parse(R"({"n": "text"})").value();
  const auto expected = (*parsed)->render(from_json(document), {});
  ASSERT_TRUE(expected);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto out = (*parsed)->render(from_json(document), {});
        count += out && *out == *expected ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace fairlead::jinja
