"""`fairlead render` on bare templates against transformers' Jinja environment."""

import json

import pytest
from render_cases import cases
from render_oracle import NOW, differences, reference_template, render

CASES = list(cases())


def test_small_templates_render_as_the_reference_does():
    requests = [{"template": source, "context": context, "now": NOW} for source, context in CASES]
    # The reference gets a copy that went through JSON, as ours does.
    expected = [reference_template(source, json.loads(json.dumps(context))) for source, context in CASES]
    assert sum(text is not None for text, _ in expected) > len(CASES) / 2
    wrong = differences(render(requests), expected)
    assert not wrong, [(CASES[index][0], why) for index, why in wrong[:5]]


FORMATS = ["%Y-%m-%d", "%d %b %Y", "%B %d, %Y", "%A %H:%M:%S", "%j %U %w %y %I %p %%", "%-d %e", "%f|%z|%Z|%c|%x|%X"]


def test_strftime_now_sees_the_given_local_time():
    source = "|".join("{{ strftime_now('" + f + "') }}" for f in FORMATS)
    (answer,) = render([{"template": source, "context": {}, "now": NOW}])
    assert answer == {"prompt": reference_template(source, {})[0]}


@pytest.mark.parametrize("message", ["System role not supported", "Ünïcode 🎉", "", "with \"quotes\"\nand lines"])
def test_raise_exception_gives_its_own_message(message):
    (answer,) = render([{"template": "{{ raise_exception(m) }}", "context": {"m": message}}])
    assert answer == {"error": message}


HOSTILE = {
    "steps": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "output": "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
    "memory": "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    "lists": "{% set ns = namespace(s=[1]) %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "nesting": "{% set ns = namespace(s=[]) %}{% for a in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
    "generators": "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = ns.s|map('string') %}{% endfor %}"
    "{{ ns.s|list }}",
    "sharing": "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(200) %}{% set ns.a = [ns.a, ns.a] %}"
    "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
    "parentheses": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "not": "{{ " + "not " * 5000 + "1 }}",
    "minus": "{{ " + "-" * 5000 + "1 }}",
    "sum": "{{ 1" + " + 1" * 100000 + " }}",
    "attributes": "{{ a" + ".b" * 100000 + " }}",
    "blocks": "{% if 1 %}" * 5000,
    "range": "{{ range(10 ** 9)|list }}",
    "power": "{{ 9 ** 99999999 }}",
    "width": "{{ '%999999999999d' % 1 }}",
    "center": "{{ 'x'|center(10 ** 12) }}",
    "format": "{{ '{:>999999999999}'.format(1) }}",
    "indent": "{{ 'x\\ny'|indent(10 ** 12) }}",
    "replace": "{% set s = 'a' * 100000 %}{{ s.replace('a', s) }}",
    "join": "{{ (['x' * 1000000] * 1000000)|join }}",
    "cycle": "{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.l = [ns] %}{{ ns }}",
    "find": "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{{ s.find('b') }}{% endfor %}",
    "rfind": "{% set s = 'a' * 1000000 %}{% set t = 'b' ~ 'a' * 500000 %}{{ s.rfind(t) }}{{ s.rsplit(t)|length }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_with_an_error_and_the_next_line_is_served(name):
    hostile, healthy = render([{"template": HOSTILE[name], "context": {"a": {}}}, {"template": "ok", "context": {}}])
    assert healthy == {"prompt": "ok"}
    if name not in ("rfind", "sum"):
        assert set(hostile) == {"error"}, str(hostile)[:200]


BAD_LINES = [
    "",
    "{",
    "[]",
    '"text"',
    "null",
    '{"template": 5}',
    '{"template": "x", "context": []}',
    '{"template": "x", "now": 5}',
    '{"messages": 5}',
    "{}",
    '{"messages": []}',
    '{"messages": [5], "chat_template": "x"}',
    '{"messages": [{}], "chat_template": 5}',
    '{"messages": [{}], "chat_template": "x", "tools": {}}',
    '{"messages": [{}], "chat_template": "x", "tools": [1]}',
    '{"messages": [{}], "chat_template": "x", "documents": [1]}',
    '{"messages": [{}], "chat_template": "x", "chat_template_kwargs": []}',
    '{"messages": [{}], "chat_template": "x", "add_generation_prompt": "yes"}',
    '{"messages": [{}], "chat_template": "{% if %}"}',
    '{"messages": [{"role": "user"}]}',
]


def test_each_bad_line_gets_an_error_and_the_next_one_is_served():
    lines = []
    for line in BAD_LINES:
        lines += [line, '{"template": "{{ 1 }}"}']
    answers = render(lines)
    assert all(set(answer) == {"error"} for answer in answers[0::2]), answers[0::2]
    assert all(answer == {"prompt": "1"} for answer in answers[1::2])
