#include <string>

#include "jinja/object.hpp"
#include "jinja/testing.hpp"

namespace fairlead::jinja {
namespace {

Template::Options small() {
  Template::Options options;
  options.limits.max_output_bytes = 1000;
  options.limits.max_live_bytes = std::size_t{1} << 20;
  options.limits.max_steps = 10'000;
  options.limits.max_calls = 20;
  return options;
}

TEST(JinjaLimits, Output) {
  EXPECT_EQ(render("{% for i in range(100) %}{{ 'x' * 10 }}{% endfor %}", "{}", small()).size(),
            1000u);
  EXPECT_EQ(render("{% for i in range(101) %}{{ 'x' * 10 }}{% endfor %}", "{}", small()),
            "error: the rendered text is too large");
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": ")" + std::string(2000, 'a') + R"("})", small()),
            "error: the rendered text is too large");
}

TEST(JinjaLimits, Steps) {
  EXPECT_EQ(render("{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}",
                   "{}", small()),
            "error: the template takes too long to render");
  // Shared parts make comparing and printing exponential.
  EXPECT_EQ(render("{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = "
                   "[ns.a, ns.a] %}"
                   "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                   "{}", small()),
            "error: the template takes too long to render");
}

TEST(JinjaLimits, Memory) {
  const std::string message = "error: the template uses too much memory";
  EXPECT_EQ(render("{{ ('x' * 2000000) | length }}", "{}", small()), message);
  EXPECT_EQ(render("{{ ([1] * 200000) | length }}", "{}", small()), message);
  EXPECT_EQ(render("{{ '%2000000d' % 1 }}", "{}", small()), message);
  EXPECT_EQ(render("{{ ('a' * 9999).replace('a', 'b' * 9999) | length }}", "{}", small()), message);
}

TEST(JinjaLimits, MemoryOfARenderIsGivenBack) {
  const std::int64_t before = live_bytes;
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{% macro "
                   "m() %}{{ ns.l | length }}"
                   "{% endmacro %}{% set ns.m = m %}{{ ns.m() }}"),
            "1");
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.nope.nope }}").substr(0, 6),
            "error:");
  EXPECT_EQ(live_bytes, before);
}

TEST(JinjaLimits, Calls) {
  EXPECT_EQ(render("{% macro f(n) %}{{ f(n - 1) if n else 'end' }}{% endmacro %}{{ f(15) }}", "{}",
                   small()),
            "end");
  EXPECT_EQ(render("{% macro f(n) %}{{ f(n - 1) if n else 'end' }}{% endmacro %}{{ f(25) }}", "{}",
                   small()),
            "error: maximum recursion depth exceeded");
}

TEST(JinjaLimits, Nesting) {
  const auto nested = [](int depth) {
    return "{{ " + std::string(static_cast<std::size_t>(depth), '(') + "1" +
           std::string(static_cast<std::size_t>(depth), ')') + " }}";
  };
  EXPECT_EQ(render(nested(50)), "1");
  EXPECT_EQ(render(nested(20000)), "error: the expression is nested too deeply (line 1)");
  std::string sum = "{{ 1";
  for (int i = 0; i < 20000; ++i) {
    sum += " + 1";
  }
  EXPECT_EQ(render(sum + " }}"), "error: the expression is nested too deeply (line 1)");
  std::string blocks;
  for (int i = 0; i < 20000; ++i) {
    blocks += "{% if 1 %}";
  }
  EXPECT_EQ(render(blocks), "error: statements are nested too deeply (line 1)");
  EXPECT_EQ(render("{% set ns = namespace(s=[]) %}{% for a in range(9999) %}{% set ns.s = [ns.s] "
                   "%}{% endfor %}"),
            "error: values are nested too deeply");
  EXPECT_EQ(render("{% set ns = namespace(s=[]) %}{% for a in range(9999) %}{% set ns.s = "
                   "ns.s|map('int') %}{% endfor %}"),
            "error: iterators are nested too deeply");
}

}  // namespace
}  // namespace fairlead::jinja
