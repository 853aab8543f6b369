"""Small templates over the whole language. Each is rendered by the reference and by Fairlead."""

CONTEXT = {
    "s": "Hello World",
    "empty": "",
    "uni": "Grüße, 世界! 🎉 ẞß ŉ ΑΣ",
    "quote": "it's \"quoted\"\n\ttab \\ back\u0000\u001f\u007f\u00a0\u200b",
    "lines": "one\n  two\r\nthree\n\nfour\x0bfive\u2028six",
    "n": 7,
    "neg": -7,
    "zero": 0,
    "f": 2.5,
    "big": 100000000000000000000,
    "tiny": 1e-07,
    "huge": 1e22,
    "whole": 3.0,
    "t": True,
    "no": False,
    "nothing": None,
    "list": [3, 1, 2],
    "strs": ["b", "A", "c", "a"],
    "nested": [[1, 2], [3, [4, 5]], []],
    "d": {"b": 1, "a": {"x": [1, 2]}, "items": "shadow", "C": None},
    "people": [
        {"name": "Zoe", "age": 31, "city": "Rome", "tags": ["x"]},
        {"name": "adam", "age": 25, "city": "rome"},
        {"name": "Bob", "age": 31, "city": "Oslo", "tags": []},
    ],
    "html": "<b>&\"'</b>",
    "num_str": " 42 ",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 % -2, -7 % 2, 7.5 // 2, -7.5 % 2
2 ** 10, 2 ** -1, 2.0 ** 0.5, 2 ** 3 ** 2
2 ** 64, 2 ** 200 // 3, -(2 ** 70) % 7, 10 ** 18 * 10, big + 1, big * big, big // 7, big % 7, -big
9223372036854775807 + 1, -9223372036854775807 - 2, 9223372036854775807 * 9223372036854775807
1 / 3, 10 / 2, 1e3, 1.5e-7, 1e16, 1e15, 123456789012345678.0, 0.1 + 0.2, -0.0, 1e100
1_000 + 0x1F + 0b101 + 0o17
huge, tiny, whole, big, f
True and 0, False or "x", not true, none is none, None
1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, "a" < "b", [1, 2] < [1, 3], (1,) == (1,), 1 != 2
n in [7], "ell" in s, "b" in d, 5 not in list, "x" not in "abc", 1 in range(3), none in [none]
1 == true, 0 == false, "1" == 1, none == false, [] == (), {} == {}
{"a": 1} == {"a": 1.0}, [1, [2]] == [1.0, [2.0]]
undefined_thing == other_undefined, undefined_thing == none, undefined_thing is undefined
"a" ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ undefined_thing
"ab" * 3, 3 * "ab", [1] * 2, "x" * 0, "x" * -1, (1, 2) * 2
"a" "b" 'c'
[1, "two", 3.0, none, true, {"k": [1]}, (1,), (), []]
(1, 2), (1,), ()
{1: "a", "b": 2, none: 3, true: 4, 1.5: 5, (1, 2): 6}
{"a": 1, "b": 2, "a": 3}
"x" if n > 5 else "y"
"x" if n > 50
("x" if n > 50) is defined
-n, +n, - -n, -f, +t, -t
-1 | abs
(-1) | abs, -3.5|abs, true|abs
n.real, n.imag, n.numerator, f.real, f.is_integer(), whole.is_integer(), n.bit_length(), t.real
quote
[quote]
uni
[uni, "\u00e9", "\x7f", "\ud7ff", "\U0001F600", "\u200b", "\u00ad", "\u0378"]
"\n\t\\\'\"\a\b\f\r\v\101\x41\u0041\U00000041"
"\q\é\%"
'it\'s', "say \"hi\"", ["it's"], ['"'], ["it's \"both\""]
s[0], s[-1], s[100], s[2:5], s[::-1], s[::2], s[-3:], s[:-3], s[5:2], s[-100:3]
uni[0], uni[-1], uni[8:10], uni[::-1], uni[7]
list[0], list[-1], list[5], list[1:], list[::-1], list[:2], list[-2:], list[::2], list[5:]
nested[1][1][0], nested[1, 0], d["b"], d["zz"], d.b, d.zz, d.a.x[1], d["a"]["x"], list.0, list[true]
d.items is callable, d["items"], d.items() | list, d.keys() | list, d.values() | list
d.items(), d.keys(), d.values()
d.get("b"), d.get("zz"), d.get("zz", 5), d.get("C", 9)
d | length, s | length, uni | length, list | count, {} | length, undefined_thing | length
d.copy() == d, list.copy(), list.index(1), list.count(3), (1, 2, 1).count(1), (1, 2).index(2)
range(5), range(5)|list, range(1, 10, 3)|list, range(5, 0, -2)|list, range(3)[1], range(10)[2:5], range(0)|list, range(3).start
range(10)[::-1]|list, 3 in range(5), 2.0 in range(5), range(3) == range(0, 3), range(3)|length
dict(a=1, b=2), dict({"x": 1}, y=2), dict([("k", "v")]), dict()
dict.fromkeys(["a", "b"], 0)
namespace(a=1).a, namespace({"z": 5}, y=2).z, namespace(a=1).zz is defined
namespace(a=1)
s.upper(), s.lower(), s.title(), s.capitalize(), s.swapcase(), s.casefold()
uni.upper(), uni.lower(), uni.title(), uni.capitalize(), uni.swapcase(), uni.casefold()
"ΑΣ ΑΣΑ Σ ΑΣ'".lower(), "ǆ".title(), "ﬁ".upper(), "İ".lower(), "ß".capitalize(), "ŉ".title()
"they're bill's".title(), "they're bill-s (x) {y} <z>"|title, "HELLO wORLD"|title
"  x y ".strip() ~ "|", "  x ".lstrip() ~ "|", "  x ".rstrip() ~ "|", "xxaxx".strip("x"), "abcba".strip("ab"), "\u00a0\u2003x\u3000".strip(), "éaé".strip("é")
"a,b,,c".split(","), " a  b c ".split(), " a  b c ".split(none, 1), "a,b,c".split(",", 1), "abc".split("bc"), "".split(), "".split(","), "a b".split(maxsplit=1), "a-b-c".split(sep="-")
"a,b,,c".rsplit(",", 1), " a  b c ".rsplit(none, 1), " a b ".rsplit(), "a--b--c".rsplit("--", 1), "aaa".rsplit("a"), "aaa".split("a")
lines.splitlines(), lines.splitlines(true), "".splitlines(), "\n".splitlines(), "a\n".splitlines()
"abc".startswith("a"), "abc".startswith(("x", "ab")), "abc".endswith("bc"), "abc".startswith("b", 1), "abc".endswith("b", 0, 2), "abc".startswith(""), "abc".startswith("", 4)
"aXbXc".replace("X", "-"), "aXbXc".replace("X", "-", 1), "abc".replace("", "-"), "abc".replace("", "-", 2), "aaa".replace("aa", "b"), "éa".replace("", ".")
"abcabc".find("c"), "abcabc".rfind("c"), "abc".find("z"), "abcabc".index("b"), "世界世".find("界"), "abcabc".find("c", 3), "abcabc".find("c", -2), "abc".find(""), "abc".find("", 9)
"banana".count("a"), "banana".count("ana"), "aaa".count(""), "banana".count("a", 2)
"-".join(["a", "b"]), ",".join([]), ", ".join(d.keys())
"a-b-c".partition("-"), "a-b-c".rpartition("-"), "abc".partition("x"), "abc".rpartition("x")
"ab".center(7, "*"), "ab".center(6), "ab".ljust(5, ".") ~ "|", "ab".rjust(5), "abc".center(6, "-"), "a".center(4, "-"), "abc".center(2)
"42".zfill(5), "-42".zfill(5), "+4".zfill(4), "a\tb".expandtabs(4), "a\tb\nc\td".expandtabs()
"prefix-x".removeprefix("prefix-"), "x.txt".removesuffix(".txt"), "abc".removeprefix("z")
"abc".isalpha(), "a1".isalnum(), "12".isdigit(), "²".isdigit(), "²".isdecimal(), "½".isnumeric(), "".isalpha(), " \n".isspace(), "Abc".istitle(), "ABC".isupper(), "abc1".islower(), "x y".isprintable(), "a_1".isidentifier(), "1a".isidentifier(), "é".isascii()
"{} {}".format(1, "x"), "{0} {1} {0}".format(1, 2), "{a} {b}".format(a=1, b="z"), "{:>5}|{:<5}|{:^5}|".format(1, "a", "b"), "{:05d} {:.2f} {:x} {:,} {:%}".format(42, 3.14159, 255, 1234567, 0.25)
"{0[a]} {1.real} {2[0]}".format({"a": 5}, 3, [9]), "{{}} {!r} {!s}".format("q", "q"), "{:{w}}|".format("x", w=4), "{:e} {:g} {:G}".format(12345.678, 0.00001, 1e20), "{:+d} {: d} {:#x} {:b} {:o}".format(5, 5, 255, 5, 8)
"{:.3} {:10.3}|{:.0f} {:.1e}".format(3.14159, "abcdef", 2.5, 12345.0), "{}".format(none), "{:.3}".format(1234567.0), "{:_}".format(12345678), "{:c}".format(65)
"%s %d %f %x %5.2f%% %r %c" % ("a", 5, 1.5, 255, 3.14159, "q", "z")
"%(a)s-%(b)05d" % {"a": 1, "b": 42}
"%s" % "x", "%s" % (1,), "%-5s|%5s|" % ("a", "b"), "%+d % d %05d %o %X %e %g" % (5, 5, 42, 8, 255, 12345.678, 0.0001), "%.3s" % "abcdef", "%s" % [1, 2], "%*d" % (5, 42), "%%"  % ()
"%s %s"|format("a", "b"), "%(x)s"|format(x=5)
s | upper, s | lower, s | capitalize, "hello"|title, 5|upper, none|lower
"  x " | trim ~ "|", "xxaxx"|trim("x"), 5|trim
list | join(", "), strs|join, people|join("; ", attribute="name"), "abc"|join("-"), []|join, undefined_thing|join("x"), [1, none, true]|join("|")
list | first, list | last, s|first, s|last, []|first is defined, d|first, d|last, range(3)|last, ()|last is defined
[none, none]|sort, [{}, {}]|sort, true ** big, 0 ** big, list | sort, strs|sort, strs|sort(case_sensitive=true), list|sort(reverse=true), people|sort(attribute="age")|map(attribute="name")|list, people|sort(attribute="city,age")|map(attribute="name")|list, people|sort(attribute="age", reverse=true)|map(attribute="name")|list, d|sort
d | dictsort, d|dictsort(true), {"a": 2, "b": 1}|dictsort(by="value"), d|dictsort(reverse=true)
list | reverse | list, s|reverse, uni|reverse, d|reverse|list, range(3)|reverse|list
[1, 1, 2, "a", "A"] | unique | list, strs|unique|list, strs|unique(true)|list, people|unique(attribute="city")|map(attribute="name")|list
list | min, list|max, strs|min, strs|max, people|max(attribute="age"), []|min is defined, people|min(attribute="name")
list | sum, people|sum(attribute="age"), [1.5, 2]|sum, []|sum, list|sum(start=10), [[1], [2]]|sum(start=[])
list | map("string") | list, strs|map("upper")|join, people|map(attribute="name")|list, people|map(attribute="zz")|list, people|map(attribute="tags.0")|list, people|map(attribute="tags", default="-")|list, strs|map("replace", "a", "z")|list
list | select("odd") | list, list|reject("odd")|list, list|select(">", 1)|list, [0, 1, "", "a", none]|select|list, [0, 1]|reject|list, list|select("in", [1, 2])|list, list|select("divisibleby", 3)|list
people | selectattr("age", "equalto", 31) | map(attribute="name") | list, people|rejectattr("age", "gt", 30)|map(attribute="name")|list, people|selectattr("tags")|list|length, people|selectattr("tags", "defined")|list|length, people|selectattr("name", "in", ["Bob"])|list
people | groupby("city") | list
people | groupby("age")|map("first")|list, people|groupby("tags.0", default="none")|map("list")|list
range(7)|batch(3)|list, range(7)|batch(3, "x")|list, range(7)|slice(3)|list, range(7)|slice(3, "x")|list
d | items | list, undefined_thing|items|list, {}|items|list
s | replace("o", "0"), s|replace("o", "0", 1), 111|replace(1, 2)
lines | indent, lines|indent(2), lines|indent(2, true), lines|indent(2, true, true), lines|indent("> ", first=true), "a"|indent, ""|indent
"42" | int, " 42 "|int, "4_2"|int, "x"|int, "x"|int(7), "3.9"|int, 3.9|int, -3.9|int, "0x1f"|int(0, 16), "ff"|int(0, 16), "0b11"|int(base=2), none|int, true|int, "1e3"|int, "٣"|int, "inf"|int(5), ""|int
"1.5" | float, "x"|float, "x"|float(2.5), 3|float, "1e3"|float, " 2 "|float, none|float, "1_0.5"|float
2.5 | round, 3.5|round, 2.675|round(2), 42|round, 1234.5678|round(-2), 1250|round(-2), 1350|round(-2), 42.1|round(0, "ceil"), 42.9|round(0, "floor"), 42.123|round(2, "ceil"), -2.5|round, 1e300|round(2), 7|round(1, "floor")
5 | string, none|string, [1]|string, "x"|string, 1.0|string
undefined_thing | default("x"), none|default("x"), ""|default("x", true), none|d("y", true), 0|default(5), undefined_thing|default, undefined_thing.x|default("q")
html | escape, html|e, html|safe, (html|safe)|e, html|forceescape, (html|escape)|forceescape
(html|safe) + "<x>", "<x>" + (html|safe), (html|safe) ~ "<x>", "%s"|safe % "<i>", ("<%s>"|safe) % html, ("{}"|safe).format("<i>"), (("<b>"|safe) * 2)
[html|safe], (html|safe)|list, (html|safe).upper(), (html|safe).replace("b", "<"), ("-"|safe).join(["<", ">"|safe]), ("<a>"|safe)[0] + ">", (html|safe).split("b"), (html|safe)|upper, html|safe|length
[1, [2, {"a": none}], true, 1.0, 1e22, big, "é\u2028\n\"\\/<>&'\u007f\u0001"] | tojson
d | tojson, d|tojson(indent=2), nested|tojson(indent=4), []|tojson(indent=2), {}|tojson(indent=2), d|tojson(sort_keys=true), d|tojson(separators=(",", ":")), d|tojson(indent=2, separators=(",", ":")), d|tojson(indent=0), d|tojson(indent="\t")
uni | tojson, uni|tojson(ensure_ascii=true), uni|tojson(true), quote|tojson, quote|tojson(ensure_ascii=true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson, (1, 2)|tojson, range(3)|list|tojson, "x"|safe|tojson
1 is odd, 2 is even, 9 is divisibleby(3), 9 is divisibleby 3, n is defined, zz is defined, zz is not defined, none is none, n is not none
1 is number, 1.0 is number, true is number, "1" is number, 1 is integer, true is integer, 1.0 is float, 1 is float, true is boolean, 1 is boolean, true is true, 1 is true, false is false, 0 is false
"x" is string, (html|safe) is string, d is mapping, list is mapping, list is sequence, "x" is sequence, d is sequence, range(3) is sequence, 5 is sequence, d.items() is sequence, d.items() is iterable, list is iterable, 5 is iterable, none is iterable, undefined_thing is iterable
(list|map("string")) is sequence, (list|map("string")) is iterable, range is callable, 5 is callable, s.upper is callable, d is callable
"abc" is lower, "ABC" is upper, 1 is sameas 1, none is sameas none, true is sameas true, list is sameas list, [] is sameas [], "x" is in "xyz", 1 is in [1], 1 is eq 1, 1 is ne 2, 1 is lt 2, 2 is gt 1, 1 is le 1, 1 is ge 1, 1 is equalto(1), html is escaped, (html|safe) is escaped
"upper" is filter, "nope" is filter, "odd" is test, "nope" is test
n is number and n > 5, n is none or true, not n is none, n is defined and zz is not defined
5 is odd is true
"Hello, %s!" % s ~ "x"
"é" < "z", "Z" < "a", "" < "a", "a" < "aa", "\uffff" < "\U00010000"
[3, 1] + [2], (1,) + (2,), "a" + "b" + "c" + "d"
1.5 + 1, 2 * 1.5, 7 // 2.0, (n * 1e308) * 10, -((n * 1e308) * 10), n * 1e308 * 10 - n * 1e308 * 10
num_str|float, s|float
true + true, true * 5, true / 2, -true, true // 1, true ** 2
cycler("a", "b").next(), cycler("a", "b").current
joiner("-")() ~ "x"
1.0 == 1, hash is undefined, 0.1 + 0.2 == 0.3, 1e22 == 10 ** 22, big == 1e20, 2 ** 53 == 2.0 ** 53, 2 ** 53 + 1 == 2.0 ** 53, 2 ** 53 + 1 > 2.0 ** 53
s is string and s.upper() == "HELLO WORLD" and s[0] == "H"
people[0].name, people[0]["name"], people[-1].tags, people[1].tags is defined, people[0].keys()|list, people[0].name.upper()[0:2]
(people | selectattr("age", "equalto", 31) | list)[0].name
(list | map("string") | list)[0]
not(n > 5 and s.startswith("H") and s.endswith("x"))
s|length > 5 and (s|length) < 50
"yes" if "ell" in s and n == 7 else "no"
s.split(" ")[-1].lower().replace("w", "W") ~ "!"
[s.split(" ")[0], s.split(" ")[1]]|join("+")
loop is defined, caller is defined, varargs is defined
"a" in undefined_thing, undefined_thing|list, undefined_thing ~ "x", undefined_thing|string, not undefined_thing
(1, 2, 3)[1:], (1, 2, 3)[-1], ("a", "b")[0]
{"a": {"b": {"c": 1}}}.a.b.c, {"a": 1}["a"], {"a": 1}.a, {"keys": 1}["keys"], {"get": 5}["get"]
"a b".split()|map("upper")|join("-")|lower
s|truncate(5), s|truncate(8, true), s|truncate(5, true, "", 0), "foo bar baz qux"|truncate(9), "foo bar baz qux"|truncate(9, true), "foo bar baz qux"|truncate(11), "foo bar baz qux"|truncate(11, false, "...", 0)
s|center(20) ~ "|", s|wordcount, "a/b c?d=é&f"|urlencode, {"a b": "c/d", "e": 1}|urlencode, [("x", "y z")]|urlencode, 1500|filesizeformat, 1|filesizeformat, 999|filesizeformat, 1500000|filesizeformat, 1500|filesizeformat(true), 10**30|filesizeformat
{"class": "x y", "id": none, "n": 5}|xmlattr, {}|xmlattr, {"a": "<"}|xmlattr(false)
people[0]|attr("name") is defined, s|attr("upper") is defined, 5|attr("real")
"abc"|list, d|list, (1, 2)|list, "世界"|list
"x".translate({120: "y"}), "abc".translate({97: none, 98: 66})
""" r"""
"%5s|%-5s|%05.1f|%+.2e" % ("é", "世", 3.14159, 0.00012345)
"{:>6}|{:*^7}|{:<3}|".format("世界", "é", 12), "{:=+6d}|{:06.2f}|{:-^9}".format(42, -3.14159, "mid"), "{:>05}".format(3), "{:5}|{:5}".format("a", 1), "{:.2%}".format(0.12345), "{:,.2f}".format(1234567.891)
[0.1, 1.0, 100.0, 1e5, 123456.789, 1e-4, 1e-5, 5e-324, 1.7976931348623157e308, 0.30000000000000004, 2.0**70]
"x" ~ (1, 2) ~ {"a": "b"} ~ range(3)
"A" is upper, "Ab" is upper, "" is lower, "1" is lower
"ΌΣΟΣ".lower(), "ΌΣΟΣ.".lower(), "Σ".lower(), "ΑΣ1".lower(), "Ὀδυσσεύς".upper(), "straße".upper(), "ŒUVRE".title(), "ﬀ".title(), "ᾳ".upper(), "ᾼ".lower(), "ἀ".swapcase(), "Ⅷ".lower(), "ⓐ".upper()
"a\u0301b".title(), "o'neil mc-donald".title(), "3rd place".title(), "x1y".title(), "ab_cd".title()
(list|map) is iterable, (list|selectattr) is iterable, {}|map|list, ""|select("nope")|list, []|map("nope")|list, zz|rejectattr|list
(0.5).hex(), f.hex(), (-1.0).hex(), (0.0).hex(), tiny.hex(), (5e-324).hex(), huge.hex(), (huge * 1e300).hex()
f.as_integer_ratio(), (0.1).as_integer_ratio(), (-3.0).as_integer_ratio(), huge.as_integer_ratio(), (0.0).as_integer_ratio(), tiny.as_integer_ratio()
big.bit_length(), (-big).bit_count(), (2 ** 70).bit_length(), (2 ** 64 - 1).bit_count(), true.bit_length(), true.conjugate(), true.as_integer_ratio()
"{:010,}|{:012,.2f}|{:08_}|{:0=10,}|{:010_x}|{:*=+10,}|{:03,}|{:01,}".format(1234, 100.0, 5, 12, 43981, 1234, 1234, 7), "{:+010,}|{:,}|{:09,}|{:08,}".format(-1234, -12, big, 1e22)
"{:z.1f}|{:z}|{:z.0f}|{:+z.1f}|{:z.1%}".format(-0.01, 0.0, -0.6, -0.01, -0.0001), "{: d}|{:-d}|{:_b}|{:#_x}".format(7, 7, 255, 65536), "{!a}{!a}|{!a}".format(uni, "é", [uni])
"{0[0]}{}".format("ab"), "{}{0[1]}".format("ab"), "{0.real}{}{1.real}".format(3, 4)
[1, 2, 3]|batch(0)|list, [1, 2, 3]|batch(-1, 9)|list, [1, 2, 3]|batch(2.0)|list, [1, 2, 3]|batch(true)|list, []|batch(0)|list, [1, 2]|batch(none)|list
[]|sort(0), list|sort(1), {"a": 1}|dictsort(false, "key", 1), "a\nb".splitlines(1)
list|truncate(5), d.keys()|truncate(9), (1, 2)|truncate(2, true, ""), [1, 2]|slice(-1)|list
""".strip("\n")

FAILING = r"""
1 + "a"
"a" + 1
"a" + none
[1] + "a"
none + 1
undefined_thing + 1
undefined_thing.x
undefined_thing["x"]
undefined_thing()
s.nope()
list.append(1)
d.update({"x": 1})
d.pop("b")
list.sort()
none | length
5 | length
5()
1 / 0
1 // 0
1 % 0
1.0 / 0
raise_exception("boom " ~ n)
1 < "a"
none < 1
5 in 5
5 in "abc"
[1, 2] in {}
{[1]: 2}
{{}: 1}
range(1000000)
range(1, 2, 0)
"a".index("z")
list.index(99)
s.split("")
"%d" % "x"
"%s %s" % ("a",)
"%s" % (1, 2)
"{} {}".format(1)
"{a}".format()
"{:d}".format("x")
(list|map("string"))|length
(list|map("string"))|last
list|map("nope")|list
list|select("nope")|list
list|map|list
["a", 1]|sort
[{}]|unique|list
undefined_thing|tojson
range(3)|tojson
{(1, 2): 3}|tojson
"abc"|int("x", 99, 3)
s.upper(1)
s.replace("a")
n.nope.nope
none.x.y
d.zz.y
s[1:2:0]
s["a":]
n[0:1]
nothing[0:]
"x" * "y"
"x" - "y"
-"x"
-none
+[]
not_there|upper|length > undefined_thing
strftime_now()
namespace(_x=1)
cycler()
dict(1)
dict([1])
"a" * (2 ** 62)
"x".center(10, "ab")
"x".join([1])
5|join("x")
5|first
5|list
5|reverse
none|items|list
5|items|list
5|indent
5|round(1, "nope")
"x"|round
"x"|abs
f(**{"a": 1})
range(*[1, 2, 3, 4])
list|batch
s|default(1, 2, 3)
1e999|int
(1e308 * 10)|int
big.nope()
d|sum
1 ** -1 ** "x"
0 ** -1
list|map|list
list|map(attribute="x", nope=1)|list
list|selectattr|list
list is filter
d is test
dict(zz)
dict(d.zz, b=1)
namespace(zz)
list|sort("x")
list|sort(none)
[]|sort(1.5)
d|dictsort(false, "key", "x")
"a".splitlines("x")
{1: 2}|xmlattr
[1]|batch(2.5, "x")|list
[1]|batch(none, "x")|list
"{:,}".format("x")
"{:_}".format("x")
"{:+}".format("x")
"{: }".format("x")
"{:#}".format("x")
"{:z}".format("x")
"{:z}".format(1)
"{:,c}".format(65)
"{:+c}".format(65)
"{:#c}".format(65)
"{:,n}".format(1)
"{:,x}".format(1)
"{:,_}".format(1)
"{}{0}".format(1)
"{.real}".format(1)
(huge * 1e300).as_integer_ratio()
""".strip("\n")

STATEMENTS = [
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}",
    "{% if zz %}a{% elif n %}b{% endif %}|{% if not zz %}c{% endif %}",
    "{% for x in list %}{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for x in [] %}a{% else %}empty{% endfor %}",
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}|{% endfor %}",
    "{% for x in list %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}[{{ x }}]{% endif %}{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in list if x > 1 %}{{ x }}{% if loop.last %}!{% endif %}{% endfor %}",
    "{% for x in list if x > 10 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for c in uni %}{{ c }}.{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}",
    "{% for a, in [(1,), (2,)] %}{{ a }}{% endfor %}",
    "{% for x in list recursive %}{{ x }}{% endfor %}",
    "{% for x in nested recursive %}[{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}"
    "@{{ loop.depth }}]{% endfor %}",
    "{% for x in range(3) %}{% for y in range(2) %}{{ loop.index }}{{ x }}{{ y }} {% endfor %}"
    "{{ loop.index }};{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}"
    "{{ x }}{% endfor %}",
    "{% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} "
    "{% endfor %}{% endfor %}",
    "{% for x in list|map('string') %}{{ loop.last }}{{ x }}{% endfor %}",
    "{% for x in list|select('odd') %}{{ loop.length }}{{ loop.index }}{{ x }}{% endfor %}",
    "{% for x in list|reverse %}{{ loop.revindex }}{{ x }}{% endfor %}",
    "{% for x in zz %}a{% else %}b{% endfor %}",
    "{% set x = 1 %}{% for y in list %}{% set x = y %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for y in list %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = [] %}{% for y in list %}{% set ns.a = ns.a + [y] %}{% endfor %}"
    "{{ ns.a }}{{ ns }}",
    "{% for m in list if not ns_found.v %}{{ m }}{% endfor %}",
    "{% set ns = namespace(f=false) %}{% for m in list if not ns.f %}{{ m }}{% set ns.f = m == 1 %}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}",
    "{% set a = b = 1 %}",
    "{% for x in list %}{% break %}{% else %}still{% endfor %}{% for x in list %}{% continue %}{% else %}too{% endfor %}",
    "{% for x in list %}{% if loop.last %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}",
    "{% set x %}hello {{ n }}{% endset %}[{{ x }}]{{ x is string }}",
    "{% set x | upper | replace('H', 'J') %}hello {{ n }}{% endset %}{{ x }}",
    "{% set s = s ~ '!' %}{{ s }}",
    "{% filter length %}abc{% endfilter %}",
    "{% filter list %}abc{% endfilter %}",
    "{% filter first %}{% endfilter %}",
    "{% filter first %}abc{% endfilter %}{% filter safe %}<{% endfilter %}",
    "{% set x %}{% filter length %}abc{% endfilter %}{% endset %}",
    "{% call dict(a=1) %}x{% endcall %}",
    "{% call namespace(a=1) %}x{% endcall %}",
    "{% if false %}{% filter length %}abc{% endfilter %}{% endif %}ok",
    "{% if true %}{% set q = 5 %}{% endif %}{{ q }}",
    "{% if false %}{% set q = 5 %}{% endif %}{{ q }}|{{ q is defined }}",
    "{% if false %}{% set n = 5 %}{% endif %}{{ n }}",
    "{% if true %}{% set n = 5 %}{% endif %}{{ n }}{% for i in [1] %}{{ n }}{% set n = 9 %}{{ n }}{% endfor %}{{ n }}",
    "{{ q }}{% set q = 1 %}{{ q }}",
    "{% for i in [1, 2] %}{{ q is defined }}{% set q = 1 %}{{ q is defined }}{% endfor %}{{ q is defined }}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q }}|{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 1 %}{% set n = i %}{% endif %}{{ n }}|{% endfor %}{{ n }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }} {{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ caller(a) }}{% endmacro %}{% call(x) m(5) %}<{{ x }}{{ n }}>{% endcall %}",
    "{% macro m() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}",
    "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{{ n }}{% endmacro %}{{ a() }}",
    "{% macro m() %}{{ late }}{% endmacro %}{% set late = 5 %}{{ m() }}",
    "{% macro m() %}{% set n = 1 %}{{ n }}{% endmacro %}{{ m() }}{{ n }}",
    "{% macro m(x) %}{{ x is defined }}{{ x }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{{ m is defined }}{% macro m() %}x{% endmacro %}{{ m is defined }}{{ m.name }}{{ m.arguments }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ [m(1), m('x')]|join('+') }}{{ m(1)|length }}{{ m }}",
    "{% for x in list %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro outer() %}{% macro inner() %}I{{ n }}{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}",
    "{% set ns = namespace() %}{% macro outer(v) %}{% macro inner() %}I{{ v }}{% endmacro %}"
    "{% set ns.f = inner %}{% endmacro %}{{ outer(3) }}{{ ns.f() }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}abc{% endfilter %}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% set c = 3 %}{{ c }}{% endwith %}{{ a is defined }}{{ c is defined }}",
    "{% with n = 1, q = n %}{{ n }}{{ q }}{% endwith %}{{ n }}",
    "{% raw %}{{ not }} {% evaluated %}{% endraw %}",
    "a{%- raw -%}  {{ x }}  {%- endraw -%}  b",
    "  {% raw %}\n x {% endraw %}\n y",
    "a{# comment #}b\n{# whole line #}\nc {#- strip -#} d\n  {# lead #}\ne",
    "{% generation %}x{{ n }}{% endgeneration %}",
    "a {%- generation -%} x {%- endgeneration -%} b",
    "{% for i in list %}{% generation %}{{ i }}{% set n = i %}{% endgeneration %}{{ n }}{% endfor %}",
    "{% print n, 's' %}",
    "{% block x %}b{{ n }}{% endblock %}{% block y %}c{% endblock y %}",
    "{% autoescape false %}{{ html }}{% endautoescape %}",
    "{% set x = cycler('a', 'b') %}{{ x.next() }}{{ x.next() }}{{ x.next() }}{{ x.current }}{% set _ = x.reset() %}{{ x.next() }}",
    "{% set j = joiner(', ') %}{% for i in list %}{{ j() }}{{ i }}{% endfor %}",
    "{% set it = list|map('string') %}{{ it|first }}{{ it|first }}{{ it|list }}{{ it|list }}",
    "{% if list|select('gt', 100) %}generator is true{% endif %}",
    "{% set x = undefined_thing.y if false else 'ok' %}{{ x }}",
    "{{ 'a' if true }}{{ 'b' if false }}c",
    "line1\nline2\n",
    "line1\r\nline2\rline3\n\n",
    "\n\n",
    "{% if true %}\n  x\n{% endif %}\n",
    "{% if true -%}\n  x\n{%- endif %}\n  y",
    "a\n  {%- if true %} b {% endif -%}\n  c",
    "  {% if true %}a{% endif %}  \n  {{ n }}  \n",
    "  {%+ if true %}a{%+ endif %}\nb",
    "{% if true +%}\nx{% endif %}",
    "{{- n -}}  \n  {{+ n }}|{{ n -}}  x",
    "x  {{- n }}y {{ n -}}  z\t{%- if true %} q {%- endif %}",
    "{%- for x in list %}\n{{ x }}\n{%- endfor %}\n",
    "  {#- c -#}  x {# c +#}\ny",
    "\u00a0{%- if true %}x{% endif -%}\u2003y",
    "{{ '{{' }}{{ '%}' }}{{ {'a': {'b': 1}} }}{{ \"}}\" }}",
    "{{ {'a': 1}['a'] }}{{ ({'a': [1, {'b': 2}]}) }}",
    "{ {not} } { % x % } {x}",
    "{%if n%}a{%endif%}{{n}}{%-if n-%} b {%-endif-%}",
    "{% for x in list %}{{ x }}{% else %}{% endfor %}",
    "{% if n is defined and n is not none and n > 3 %}ok{% endif %}",
    "{% set x = [1, 2, 3] %}{% for i in x[1:] %}{{ i }}{{ x[loop.index0] }}{% endfor %}",
    "{% set msgs = people[::-1] %}{% for p in msgs %}{{ (msgs|length - 1) - loop.index0 }}{{ p.name }}{% endfor %}",
    "{% for p in people %}{% if loop.first or p.age != people[loop.index0 - 1].age %}{{ p.name }}{% endif %}{% endfor %}",
    "{% set x = {'a': 1} %}{% set x = dict(x, b=2) %}{{ x }}{{ x.b }}",
    "{% set ns = namespace(d={}) %}{% for k in ['x', 'y'] %}{% set ns.d = dict(ns.d, **{k: loop.index}) %}{% endfor %}{{ ns.d }}",
    "{% macro f(*args) %}{% endmacro %}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, **{'b': 4}) }}",
    "{{ range(*[1, 4])|list }}{{ dict(**{'a': 1}) }}{{ '{}{}'.format(*['x', 'y']) }}",
    "{% set x = 5 %}{% macro m(x=x) %}{{ x }}{% endmacro %}{{ m() }}",
    "{% macro m(x, y=x ~ '!') %}{{ y }}{% endmacro %}{{ m('a') }}",
    "{% call undefined_macro() %}x{% endcall %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for a, b in [(1,)] %}{% endfor %}",
    "{% set a, b = 'xy' %}{{ a }}{{ b }}",
    "{% set n.x = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% include 'x' %}",
    "{% extends 'x' %}",
    "{% from 'x' import y %}",
    "{% if false %}{% include 'x' %}{% endif %}ok",
    "{{ n | nope }}",
    "{% if false %}{{ n | nope }}{% endif %}ok",
    "{% if true %}{{ n | nope }}{% endif %}ok",
    "{{ (n | nope) if false else 'ok' }}",
    "{% for i in [] %}{{ n is nope }}{% endfor %}",
    "{% break %}",
    "{% for x in list %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% endif %}",
    "{% if x %}",
    "{% for x in list %}{% endif %}",
    "{% nope %}",
    "{{ n",
    "{{ n }",
    "{% if n",
    "{# open",
    "{% raw %} open",
    "{{ 'open }}",
    "{{ }}",
    "{{ n n }}",
    "{{ 1 + }}",
    "{{ (1, }}",
    "{{ [1 2] }}",
    "{{ {1} }}",
    "{{ n. }}",
    "{{ n.5.x }}",
    "{{ n[ }}",
    "{{ f(a=1, 2) }}",
    "{{ dict(a=1, a=2) }}",
    "{{ ) }}",
    "{{ (1] }}",
    "{{ 1 is }}",
    "{{ 1 is not }}",
    "{{ a | }}",
    "{{ @ }}",
    "{{ '\\x4' }}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% for true in x %}{% endfor %}",
    "{% set loop = 1 %}{{ loop }}",
    "{% for x in list %}{% set loop = 1 %}{% endfor %}",
    "{% macro %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(1) %}{% endmacro %}",
    "{% call n %}{% endcall %}",
    "{% block a %}{% endblock b %}",
    "{% set %}",
    "{% set x %}",
    "{% filter %}{% endfilter %}",
    "{% for %}{% endfor %}",
    "{% for x %}{% endfor %}",
    "{% for x in %}{% endfor %}",
    "{% if %}{% endif %}",
    "{% else %}",
    "{% elif x %}",
    "{% if 1 %}{% else %}{% else %}{% endif %}",
    "{% if 1 %}{% else %}{% elif 2 %}{% endif %}",
    "{{ 007 }}",
    "{{ 1.e5 }}{{ 1 .real }}",
    "{{ x is divisibleby 3 if x is defined else 'no' }}",
    "{{ 10 is divisibleby 5 and true }}",
    "{{ not 1 in [2] }}{{ not (1 in [1]) }}{{ 1 not in [2] }}",
    "{{ n if n else n if n else n }}",
    "{{ 1 if 0 else 2 if 0 else 3 }}",
    "{{ (1 if 0 else 2) if 1 else 3 }}",
    "{{ -n ** 2 }}{{ (-n) ** 2 }}{{ -n|abs }}{{ 2 * -3 }}{{ 2 - -3 }}",
    "{{ n.real.imag }}{{ 1.5.real }}",
    "{{ 'a' 'b' ~ 'c' 'd' }}{{ 'x' in 'xyz' ~ 'w' }}{{ 1 ~ 2 + 3 }}",
    "{{ 1, }}{{ (1), 2 }}{{ [1, 2,] }}{{ {'a': 1,} }}{{ dict(a=1,) }}",
    "{{ s.upper().lower().title()[0:5][::-1] }}",
    "{{ [[1, 2], [3, 4]]|map('join', '-')|join(';') }}",
    "{{ people|map(attribute='name')|map('upper')|select('ne', 'BOB')|join(',') }}",
    "{{ people|selectattr('tags', 'defined')|selectattr('tags')|map(attribute='name')|first }}",
    "{{ (people|groupby('city'))[0].grouper }}{{ (people|groupby('city'))[0].list|length }}",
    "{% for g in people|groupby('city') %}{{ g.grouper }}:{% for p in g.list %}{{ p.name }}{% endfor %};{% endfor %}",
    "{% for city, ps in people|groupby('city') %}{{ city }}{{ ps|length }}{% endfor %}",
    "{{ strftime_now('100%% literal') }}",
    "{{ 'x' | default('y') | upper }}{{ undefined_thing | default('y') | upper }}",
    "{{ d.a.x | last }}{{ d['a']['x'][0] }}{{ d.get('a', {}).get('x', [])[1] }}",
    "{{ (d.items()|list)[0][0] }}{{ (d.items()|list)|length }}{{ d.items()|first }}{{ d.items()|length }}",
    "{% set x = {'items': [1, 2]} %}{{ x['items'] }}{% for k, v in x.items() %}{{ k }}{{ v }}{% endfor %}",
    "{% for x in d.keys() %}{{ loop.length }}{{ x }}{% endfor %}{% for v in d.values() %}{{ loop.last }}{% endfor %}",
    "{{ loop }}{% for x in [1, 2] %}{{ loop }}{% endfor %}",
    "{% for x in [1] %}{% for y in [loop.index] %}{{ y }}{{ loop.index }}{% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in [1, 2] %}{% else %}{{ loop is defined }}{% endfor %}{% for x in [] %}{% else %}{{ loop is defined }}{% endfor %}",
    "{% for x in [1, 2, 3] %}{{ loop.nextitem if loop.nextitem is defined else 'end' }}{% endfor %}",
    "{% for role in ['user', 'assistant'] %}{% if (role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% endfor %}ok",
    "{{ raise_exception('x') if n == 1 else 'fine' }}",
    "{{ n }}{{ undefined_thing }}{{ none }}{{ true }}{{ 1.0 }}{{ [] }}",
    "a\\b{{ '\\\\' }}\t{{ \"\\t\" }}",
    "{{ \"\\u00e9\\U0001F600\\x41\\101\\n\" }}",
    "{{ 'multi\nline' }}",
    "{%- set x = 'a' -%}\n{{- x }}\n\n{{- x -}}\n",
    "\n{% set x = 1 %}\n\n{% set y = 2 %}\n{{ x }}{{ y }}\n\n",
    "{% set a = 1 %}\n    {% set b = 2 %}\n  {{ a + b }}\n",
    "\t{% if true %}\n\tx\n\t{% endif %}\ny",
    "{{ s[:5] }}{{ s[6:] }}{{ s[-5:] }}{{ s[:-6] }}{{ s[0:5:2] }}{{ s[10::-2] }}{{ s[-1:-6:-1] }}",
    "{{ nested|tojson }}{{ (1, (2, 3))|tojson }}{{ [undefined_thing]|length }}",
    "{{ {'a': undefined_thing}.a is defined }}{{ [undefined_thing][0] is defined }}",
    "{{ '%s' % undefined_thing }}|{{ '%s' % none }}|{{ '%s' % [] }}",
    "{{ undefined_thing or 'default' }}{{ undefined_thing and 'x' }}|{{ none or 0 or '' or 'last' }}",
    "{% if messages is defined %}a{% endif %}{% if tools is not defined %}b{% endif %}",
    "{%- macro render(x) -%}\n  {%- if x is mapping -%}\n    {%- for k, v in x|dictsort -%}{{ k }}:{{ render(v) }},{%- endfor -%}\n"
    "  {%- elif x is iterable and x is not string -%}\n    [{%- for v in x -%}{{ render(v) }};{%- endfor -%}]\n"
    "  {%- else -%}{{ x }}{%- endif -%}\n{%- endmacro -%}{{ render({'b': [1, {'c': 2}], 'a': 'z'}) }}",
]


def cases():
    """Pairs of template source and context."""
    for line in EXPRESSIONS.split("\n"):
        if not line.strip():
            continue
        yield "{{ (" + line + ") }}", CONTEXT
        yield "{% set v = (" + line + ") %}{% if v is string %}[{{ v }}]{% else %}{% for x in v %}{{ x }}|{% endfor %}{% endif %}", CONTEXT
    for line in FAILING.split("\n"):
        yield "{{ " + line + " }}", CONTEXT
    for source in STATEMENTS:
        yield source, CONTEXT
