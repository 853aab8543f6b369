"""What a hostile template may cost `fairlead render`: 64 MB, and the engine's budget of steps, which is 100 ms."""

import json
import subprocess

import pytest
from fairlead import binary_path
from fairlead.waiting import TIME_SCALE

LONG_TEXT = "{% set s = 'aé' * 1000000 %}"
MANY = "{% for i in range(99999) %}"
END = "{% endfor %}"
SHARED = "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}"
NUMBERS = "{% set l = range(99999)|list %}"

# Each is refused while it renders. Names say what would grow.
RENDERING = {
    "repeat": "{{ 'x' * 10 ** 9 }}",
    "repeat list": "{{ [1] * 10 ** 9 }}",
    "repeat tuple": "{{ (1, 2) * 10 ** 8 }}",
    "range": "{{ range(10 ** 9) }}",
    "loops": MANY + MANY + END + END,
    "output": MANY + "{{ 'x' * 99999 }}" + END,
    "doubling": "{% set ns = namespace(s='x') %}" + MANY + "{% set ns.s = ns.s ~ ns.s %}" + END,
    "doubling list": "{% set ns = namespace(s=[1]) %}" + MANY + "{% set ns.s = ns.s + ns.s %}" + END,
    "growing text": "{% set ns = namespace(s='') %}" + MANY + "{% set ns.s = ns.s ~ 'xxxxxxxxxxxxxxxx' %}" + END,
    "growing list": "{% set ns = namespace(s=[]) %}" + MANY + "{% set ns.s = ns.s + [i] %}" + END,
    "growing dict": "{% set ns = namespace(s={}) %}" + MANY + "{% set ns.s = dict(ns.s, **{i|string: i}) %}" + END,
    "join": NUMBERS + MANY + "{% set x = l|join %}" + END,
    "join of long texts": "{{ (['x' * 1000000] * 1000000)|join }}",
    "macro": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "two macros": "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
    "tree of macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "caller": "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}x{% endcall %}",
    "recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "replace": "{% set s = 'a' * 100000 %}{{ s.replace('a', s) }}",
    "replace of nothing": "{% set s = 'a' * 1000000 %}{{ s.replace('', s) }}",
    "replace again": "{% set ns = namespace(s='a') %}" + MANY + "{% set ns.s = ns.s.replace('a', 'aa') %}" + END,
    "replace filter": "{% set ns = namespace(s='a') %}" + MANY + "{% set ns.s = ns.s|replace('a', 'aaaa') %}" + END,
    "translate": "{% set s = 'a' * 3000000 %}{{ s.translate({97: 'b' * 1000})|length }}",
    "json of a long text": "{% set s = 'é' * 9000000 %}{{ s|tojson(ensure_ascii=true) }}",
    "json indent": "{{ [[[[1]]]]|tojson(indent='x' * 10 ** 7) }}",
    "json of numbers": NUMBERS + MANY + "{{ l|tojson }}" + END,
    "json of shared lists": SHARED + "{{ ns.a|tojson }}",
    "text of shared lists": SHARED + "{{ ns.a }}",
    "sort of shared lists": SHARED + "{% set ns.b = ns.a %}" + SHARED.replace("ns =", "ms =").replace("ns.a", "ms.a") + "{{ [ns.b, ms.a]|sort }}",
    "nested lists": "{% set ns = namespace(s=[]) %}" + MANY + "{% set ns.s = [ns.s] %}" + END,
    "nested generators": "{% set ns = namespace(s=[1]) %}" + MANY + "{% set ns.s = ns.s|map('string') %}" + END,
    "upper": LONG_TEXT + MANY + "{% set t = s|upper %}" + END,
    "title": LONG_TEXT + MANY + "{% set t = s|title %}" + END,
    "words": LONG_TEXT + MANY + "{{ s|wordcount }}" + END,
    "count": LONG_TEXT + MANY + "{{ s.count('aéb') }}" + END,
    "find": "{% set s = 'a' * 3000000 %}{% set t = 'a' * 1000000 ~ 'b' %}" + MANY + "{{ s.find(t) }}" + END,
    "in": "{% set s = 'a' * 3000000 %}{% set t = 'b' ~ 'a' * 1000000 %}" + MANY + "{{ t in s }}" + END,
    "strip": "{% set s = 'ab' * 1000000 %}" + MANY + "{% set t = s.strip('ab') %}" + END,
    "element": LONG_TEXT + MANY + "{% set c = s[999999] %}" + END,
    "slice": LONG_TEXT + MANY + "{% set c = s[1:] %}" + END,
    "reversal": LONG_TEXT + MANY + "{% set c = s[::-1] %}" + END,
    "length": LONG_TEXT + MANY + "{% set c = s|length %}" + END,
    "prefix": LONG_TEXT + MANY + "{% set c = s.startswith(s) %}" + END,
    "comparison": LONG_TEXT + "{% set t = 'aé' * 1000000 %}" + MANY + "{% set c = s == t %}" + END,
    "key": LONG_TEXT + "{% set d = {s: 1} %}" + MANY + "{% set c = d.get(s) %}" + END,
    "item": LONG_TEXT + "{% set d = {s: 1} %}" + MANY + "{% set c = d[s] %}" + END,
    "truncate": LONG_TEXT + MANY + "{% set c = s|truncate(9) %}" + END,
    "split": "{% set s = 'a ' * 9000000 %}{{ s.split()|length }}",
    "lines": "{% set s = '\\n' * 9000000 %}{{ s.splitlines()|length }}",
    "characters": "{% set s = 'a' * 9000000 %}{{ s|list|length }}",
    "indent": "{{ 'a\\nb'|indent(10 ** 9) }}",
    "indent of lines": "{% set s = '\\n' * 1000000 %}{{ s|indent(100, true, true)|length }}",
    "width": "{{ '%999999999d' % 1 }}",
    "width of an argument": "{{ '%*d' % (10 ** 9, 1) }}",
    "precision": "{{ '%.999999999d' % 1 }}",
    "brace width": "{{ '{:>999999999}'.format(1) }}",
    "brace widths": "{{ ('{:99999}' * 10000).format(*range(10000)) }}",
    "center": "{{ 'x'.center(10 ** 9) }}",
    "zfill": "{{ '1'.zfill(10 ** 9) }}",
    "tabs": "{{ ('\\t' * 100000).expandtabs(1000) }}",
    "power": "{{ 9 ** 99999999 }}",
    "product": "{% set ns = namespace(a=10 ** 1000) %}{% for i in range(60) %}{% set ns.a = ns.a * ns.a %}{% endfor %}{{ ns.a }}",
    "quotient": "{% set a = 10 ** 4000 %}" + MANY + "{% set b = a // 7 % 13 %}" + END,
    "sort": NUMBERS + MANY + "{% set k = l|sort(reverse=true) %}" + END,
    "unique": NUMBERS + MANY + "{{ l|unique|list|length }}" + END,
    "groups": NUMBERS + MANY + "{{ l|groupby('x')|length }}" + END,
    "batch": "{{ [1]|batch(10 ** 9, 'x')|list|length }}",
    "slices": "{{ [1]|slice(10 ** 9)|list|length }}",
    "sum of lists": "{{ ([[1] * 100] * 99999)|sum(start=[])|length }}",
    "namespaces": MANY + MANY + "{% set n = namespace(a=1) %}" + END + END,
    "kept lists": "{% set ns = namespace(l=[]) %}" + MANY + "{% set ns.l = ns.l + ['x' * 1000] %}" + END,
    "message": "{{ raise_exception('x' * 10 ** 8) }}",
}
# Each is refused while it is read.
READING = {
    "parentheses": "{{ " + "(" * 50000 + "1" + ")" * 50000 + " }}",
    "lists": "{{ " + "[" * 50000 + "]" * 50000 + " }}",
    "dicts": "{{ " + "{1:" * 50000 + "1" + "}" * 50000 + " }}",
    "not": "{{ " + "not " * 50000 + "1 }}",
    "conditions": "{{ " + "1 if 1 else " * 30000 + "1 }}",
    "filters": "{{ 1" + "|string" * 50000 + " }}",
    "calls": "{{ a" + "()" * 100000 + " }}",
    "sum": "{{ 1" + " + 1" * 100000 + " }}",
    "attributes": "{{ a" + ".b" * 100000 + " }}",
    "blocks": "{% if 1 %}" * 40000,
    "loops": "{% for x in [1] %}" * 20000,
    "macros": "{% macro a() %}" * 20000,
    "named arguments": "{{ a(" + ",".join(f"a{i}=1" for i in range(30000)) + ") }}",
    "variables": "".join(f"{{% if a{i} %}}{{% set a{i} = 1 %}}{{% endif %}}" for i in range(5000)),
    "size": "x" * 600000,
    "open comment": "{#" + "x" * 500000,
    "open raw": "{% raw %}" + "{" * 500000,
    "braces": "{" * 500000,
}


@pytest.fixture(scope="module")
def renderer():
    """Answers one line at a time, and how much more memory the process ever had after it than before."""
    process = subprocess.Popen([binary_path(), "render"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def status(name):
        with open(f"/proc/{process.pid}/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    def answer(request):
        with open(f"/proc/{process.pid}/clear_refs", "w") as peak:
            peak.write("5")  # The peak starts again from what it has now.
        before = status("VmRSS:")
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        line = json.loads(process.stdout.readline())
        return line, status("VmHWM:") - before

    yield answer
    process.stdin.close()
    assert process.wait(timeout=30) == 0


@pytest.mark.parametrize("name", [*RENDERING, *(f"reading {name}" for name in READING)])
def test_a_hostile_template_is_refused_cheaply(name, renderer):
    source = RENDERING[name] if name in RENDERING else READING[name.removeprefix("reading ")]
    answer, grown = renderer({"template": source, "context": {"a": {}}})
    assert set(answer) == {"error"}, str(answer)[:200]
    # Sanitizers keep freed memory.
    assert grown < 64_000_000 or TIME_SCALE > 1, grown
    assert renderer({"template": "{{ 1 }}"})[0] == {"prompt": "1"}


def test_limits_grow_with_the_input(renderer):
    text = "word é " * 3_000_000
    source = "{% for m in messages %}{{ m.content.split('</think>')[-1]|trim }}{{ m.content|upper|length }}{% endfor %}"
    answer, _ = renderer({"messages": [{"role": "user", "content": text}], "chat_template": source})
    assert answer == {"prompt": text.strip() + str(len(text))}


def test_many_short_messages_fit(renderer):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 500
    source = (
        "{% for m in messages %}{% set ns = namespace(n=0) %}{% for k in messages[loop.index:] %}"
        "{% if k.role == 'user' and ns.n == 0 %}{% set ns.n = loop.index %}{% endif %}{% endfor %}{{ ns.n }}{% endfor %}"
    )
    answer, _ = renderer({"messages": messages, "chat_template": source})
    assert answer == {"prompt": "21" * 499 + "00"}, str(answer)[:200]
