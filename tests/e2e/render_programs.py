"""Random templates over the whole language, for comparing with the reference. The same seed gives the same ones."""

import random

TEXTS = [
    "", "a", "b", "abc", "Hello World", "  x ", "\\n", "a\\nb\\n", "\\ta b", "1", "42", "-7", "3.5", "1e3", "0x1f", "x,y,,z", "<b>&\\\"",
    "it's", "{", "}}", "%s", "%d|", "{}", "{0}", "{a}", "{:>5}", "{!r}", "é", "ß", "世界", "ΑΣ", "ŉ", "\\u2028", "🎉", "\\xa0",
    "name", "upper", "age", "True", "none", "aXbXc", "ab cd ef", "ABC", "aaa", "\\r\\nx\\ry", "_", "\\\\", "a-b_c", "І", "²", "٣",
]
INTS = ["0", "1", "2", "3", "5", "7", "10", "-1", "-2", "255", "1000", "1_000", "0x1F", "0b11", "9223372036854775807", "9223372036854775808"]
FLOATS = ["0.0", "1.0", "2.5", "0.1", "1e3", "1e16", "1e-7", "1.5e300", "3.14159", "100.0", "1e22", "123456.789"]
NAMES = {
    "text": ["s", "empty", "uni", "quote", "lines", "html", "num_str"],
    "int": ["n", "neg", "zero", "big"],
    "float": ["f", "tiny", "huge", "whole"],
    "bool": ["t", "no"],
    "list": ["list", "strs", "nested", "people"],
    "dict": ["d"],
    "none": ["nothing"],
    "undefined": ["zz", "nope"],
}
KINDS = ["text", "text", "text", "int", "int", "float", "bool", "list", "list", "dict", "none", "undefined"]

# name: kind of the object, then kinds of the arguments that may follow.
FILTERS = {
    "abs": ("int",), "attr": ("any", "name"), "batch": ("list", "small", "any"), "capitalize": ("text",), "center": ("text", "small"),
    "count": ("list",), "d": ("any", "any", "bool"), "default": ("any", "any", "bool"), "dictsort": ("dict", "bool"), "e": ("text",),
    "escape": ("any",), "filesizeformat": ("int", "bool"), "first": ("list",), "float": ("any", "float"), "forceescape": ("text",),
    "format": ("text", "any", "any"), "groupby": ("list", "name"), "indent": ("text", "small", "bool", "bool"), "int": ("any", "int", "small"),
    "items": ("dict",), "join": ("list", "text"), "last": ("list",), "length": ("any",), "list": ("list",), "lower": ("text",),
    "map": ("list", "filter"), "max": ("list", "bool"), "min": ("list", "bool"), "reject": ("list", "test"), "rejectattr": ("list", "name", "test"),
    "replace": ("text", "text", "text", "small"), "reverse": ("list",), "round": ("float", "small", "method"), "safe": ("text",),
    "select": ("list", "test"), "selectattr": ("list", "name", "test"), "slice": ("list", "small", "any"), "sort": ("list", "bool", "bool"),
    "string": ("any",), "sum": ("list",), "title": ("text",), "tojson": ("any",), "trim": ("text", "text"), "truncate": ("text", "small", "bool", "text", "small"),
    "unique": ("list", "bool"), "upper": ("text",), "urlencode": ("text",), "wordcount": ("text",), "xmlattr": ("dict",),
}
TESTS = {
    "boolean": (), "callable": (), "defined": (), "divisibleby": ("small",), "eq": ("any",), "equalto": ("any",), "escaped": (), "even": (), "false": (),
    "filter": (), "float": (), "ge": ("any",), "greaterthan": ("any",), "gt": ("any",), "in": ("list",), "integer": (), "iterable": (), "le": ("any",),
    "lessthan": ("any",), "lower": (), "lt": ("any",), "mapping": (), "ne": ("any",), "none": (), "number": (), "odd": (), "sameas": ("none",), "sequence": (),
    "string": (), "test": (), "true": (), "undefined": (), "upper": (),
}
METHODS = {
    "text": {
        "capitalize": (), "casefold": (), "center": ("small", "char"), "count": ("text", "small", "small"), "endswith": ("text", "small"),
        "expandtabs": ("small",), "find": ("text", "small", "small"), "format": ("any", "any"), "index": ("text",), "isalnum": (), "isalpha": (),
        "isascii": (), "isdecimal": (), "isdigit": (), "isidentifier": (), "islower": (), "isnumeric": (), "isprintable": (), "isspace": (), "istitle": (),
        "isupper": (), "join": ("list",), "ljust": ("small", "char"), "lower": (), "lstrip": ("text",), "partition": ("text",), "removeprefix": ("text",),
        "removesuffix": ("text",), "replace": ("text", "text", "small"), "rfind": ("text", "small"), "rindex": ("text",), "rjust": ("small", "char"),
        "rpartition": ("text",), "rsplit": ("text", "small"), "rstrip": ("text",), "split": ("text", "small"), "splitlines": ("bool",),
        "startswith": ("text", "small"), "strip": ("text",), "swapcase": (), "title": (), "upper": (), "zfill": ("small",), "format_map": ("dict",),
    },
    "list": {"copy": (), "count": ("any",), "index": ("any", "small", "small")},
    "dict": {"copy": (), "get": ("name", "any"), "items": (), "keys": (), "values": ()},
    "int": {"bit_length": (), "conjugate": (), "bit_count": (), "as_integer_ratio": ()},
    "float": {"is_integer": (), "conjugate": (), "hex": (), "as_integer_ratio": ()},
}
# Fields of formats by the kind of value they take.
PERCENT = {
    "any": ["%s", "%r", "%5s", "%.3s", "%-5s|", "%5.1s", "%a", "%10r"],
    "int": ["%d", "%i", "%5d", "%05d", "%+d", "% d", "%x", "%X", "%#x", "%o", "%c", "%ld", "%-6d|", "%.3d", "%u", "%#o"],
    "float": ["%f", "%.2f", "%8.3f", "%e", "%g", "%G", "%.0f", "%+.1e", "%#g", "%010.2f", "%d"],
    "odd": ["%%", "%(a)s", "%*d", "%", "%y", "%c", "%i"],
}
BRACES = {
    "any": ["{}", "{!r}", "{!s:>4}", "{0}", "{1}", "{a}", "{!a}"],
    "text": ["{:5}", "{:<5}|", "{:^7}", "{:>05}", "{:*^9}", "{:.3}", "{:s}", "{0[0]}", "{:é>8.2}"],
    "int": ["{:d}", "{:+}", "{: d}", "{:,}", "{:_}", "{:x}", "{:#b}", "{:#X}", "{:c}", "{:n}", "{:=+8}", "{:08}", "{:_x}", "{:>8,}", "{:.2f}", "{:o}", "{:<08}", "{:,.1f}", "{:010,}"],
    "float": ["{:.2f}", "{:.3}", "{:e}", "{:g}", "{:%}", "{:,}", "{:08.2f}", "{:z}", "{:.0f}", "{:#.3g}", "{:_.2f}", "{:n}", "{:+.1%}", "{:012,.2f}", "{:=10}", "{:G}", "{:.5}"],
    "odd": ["{{", "}}", "{", "{:{}}", "{0.x}", "{:y}", "{:+}", "{:,}", "{:=5}", "{:.2}", "{!x}", "{:10.}"],
}


class Programs:
    """Makes templates from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.locals = []
        self.macros = []
        self.loops = 0

    def one(self, choices):
        return self.random.choice(choices)

    def chance(self, probability):
        return self.random.random() < probability

    # Expressions.

    def text(self):
        if self.chance(0.25):
            return f"'{''.join(self.one(TEXTS[:20] + TEXTS[28:]).replace(chr(39), '') for _ in range(2))}'"
        return '"' + self.one(TEXTS) + '"'

    def atom(self, kind):
        if kind == "any":
            kind = self.one(KINDS)
        if self.locals and self.chance(0.3):
            return self.one(self.locals)
        if self.chance(0.45):
            return self.one(NAMES[kind])
        if kind == "text":
            return self.text()
        if kind == "int":
            return self.one(INTS)
        if kind == "float":
            return self.one(FLOATS)
        if kind == "bool":
            return self.one(["true", "false", "True", "False"])
        if kind == "list":
            items = [self.atom(self.one(KINDS)) for _ in range(self.random.randrange(4))]
            return self.one(["[{}]", "[{}]", "({},)", "({})"]).format(", ".join(items)) if items else self.one(["[]", "()"])
        if kind == "dict":
            keys = [self.one(['"a"', '"b"', '"items"', "1", "true", "none", "2.5", '"name"']) for _ in range(self.random.randrange(4))]
            return "{" + ", ".join(f"{key}: {self.atom(self.one(KINDS))}" for key in keys) + "}"
        return self.one(["none", "None"]) if kind == "none" else "nope"

    def argument(self, kind, depth):
        if kind == "small":
            return str(self.random.randrange(-3, 12))
        if kind == "char":
            return self.one(['"*"', '" "', '"é"', '"ab"', '""'])
        if kind == "name":
            return self.one(['"name"', '"age"', '"a"', '"b"', '"items"', '"tags"', '"0"', "0", "1", '"tags.0"'])
        if kind == "filter":
            return self.one(['"upper"', '"string"', '"length"', '"int"', '"tojson"', '"first"', 'attribute="name"', 'attribute="age", default=1', '"nope"', '"trim"', '"replace", "a", "b"'])
        if kind == "test":
            return self.one(['"odd"', '"string"', '"defined"', '"none"', '"gt", 1', '"eq", "a"', '"in", [1, 2, "a"]', '"nope"', '"mapping"', '"true"'])
        if kind == "method":
            return self.one(['"floor"', '"ceil"', '"common"', '"odd"'])
        return self.expr(kind, depth - 1)

    def arguments(self, kinds, depth):
        count = self.random.randrange(len(kinds) + 1) if self.chance(0.4) else len(kinds)
        return ", ".join(self.argument(kind, depth) for kind in kinds[:count])

    def kind_or_other(self, kind):
        return self.one(KINDS) if self.chance(0.03) or kind == "any" else kind

    def expr(self, kind, depth):
        kind = self.kind_or_other(kind)
        if depth <= 0 or self.chance(0.12):
            return self.atom(kind)
        makers = [self.filtered, self.filtered, self.method, self.method, self.operator, self.operator, self.access, self.condition, self.test, self.formatted, self.call]
        return self.one(makers)(kind, depth)

    def operand(self, kind, depth):
        made = self.expr(kind, depth - 1)
        return f"({made})" if self.chance(0.6) else made

    def filtered(self, kind, depth):
        name = self.one(list(FILTERS))
        of, *arguments = FILTERS[name]
        given = self.arguments(arguments, depth)
        if name == "tojson" and self.chance(0.5):
            given = self.one(["indent=2", "ensure_ascii=true", "sort_keys=true", 'separators=(",", ":")', "indent=0", "indent=none"])
        if name in ("sort", "unique", "max", "min", "groupby", "sum", "join") and self.chance(0.3):
            given = self.one(['attribute="age"', 'attribute="name"', "attribute=0", 'attribute="tags.0"'])
        return f"{self.operand(of, depth)}|{name}" + (f"({given})" if given or self.chance(0.1) else "")

    def method(self, kind, depth):
        if self.chance(0.02):
            return f"({self.expr('any', depth - 1)}).{self.one(['append', 'sort', 'pop', 'update', 'clear', 'encode', 'nope', 'format'])}({self.arguments(('any',), depth)})"
        of = self.one(list(METHODS)) if kind not in METHODS or self.chance(0.3) else kind
        name = self.one(list(METHODS[of]))
        return f"({self.expr(of, depth - 1)}).{name}({self.arguments(METHODS[of][name], depth)})"

    def operator(self, kind, depth):
        if kind == "bool" or self.chance(0.25):
            sign = self.one(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"])
            right = self.one(KINDS)
            made = f"{self.operand(right, depth)} {sign} {self.operand('list' if 'in' in sign else right, depth)}"
            if self.chance(0.15):
                made += f" {self.one(['<', '==', '>', 'in'])} {self.operand(right, depth)}"
            return f"not {made}" if self.chance(0.15) else made
        if kind == "text":
            return self.one([
                lambda: f"{self.operand('text', depth)} + {self.operand('text', depth)}",
                lambda: f"{self.operand('any', depth)} ~ {self.operand('any', depth)}",
                lambda: f"{self.operand('text', depth)} * {self.random.randrange(-1, 4)}",
            ])()
        if kind in ("int", "float"):
            sign = self.one(["+", "-", "*", "/", "//", "%"])
            if self.chance(0.1):
                return f"{self.operand(kind, depth)} ** {self.random.randrange(-2, 5)}"
            made = f"{self.operand(kind, depth)} {sign} {self.operand(self.one(['int', 'float']), depth)}"
            return f"{self.one(['-', '+'])}{made}" if self.chance(0.15) else made
        if kind == "list":
            return self.one([
                lambda: f"{self.operand('list', depth)} + {self.operand('list', depth)}",
                lambda: f"{self.operand('list', depth)} * {self.random.randrange(-1, 3)}",
            ])()
        return f"{self.operand(kind, depth)} {self.one(['or', 'and', '+', '=='])} {self.operand(kind, depth)}"

    def access(self, kind, depth):
        what = self.one(["dict", "list", "text", "people"])
        if what == "people":
            return f"people[{self.random.randrange(-1, 3)}]" + self.one([".name", '["age"]', ".tags", ".items()|list", ".nope", ".name.upper()", ".get('tags')", ".city[1:]"])
        if what != "dict" and self.chance(0.5):
            # Not of constants: Jinja folds those with another rule for what has no slices.
            of = self.one(NAMES[what]) + self.one(["", "", "|list", "|string", "|first", "|reverse|list"])
            of = f"({of})"
            part = lambda: self.one(["", "", "0", "1", "2", "-1", "-2", "5", "none"])  # noqa: E731
            return f"{of}[{part()}:{part()}" + (f":{self.one(['1', '2', '-1', '-2', '', '0'])}" if self.chance(0.4) else "") + "]"
        of = f"({self.expr(what, depth - 1)})"
        if self.chance(0.1):
            return of + self.one([".__class__", "._x", "[nope]", ".0", ".items", "[1.0]", "[none]", '["upper"]', "[true]"])
        return of + self.one(['["a"]', '["b"]', ".a", ".b.x", ".items", '["items"]', ".get('a')"] if what == "dict" else ["[0]", "[-1]", "[1]", "[true]", "[7]"])

    def condition(self, kind, depth):
        tail = f" else {self.expr(kind, depth - 1)}" if self.chance(0.8) else ""
        return f"({self.expr(kind, depth - 1)} if {self.expr('bool', depth - 1)}{tail})"

    def test(self, kind, depth):
        name = self.one(list(TESTS))
        given = self.arguments(TESTS[name], depth)
        return f"{self.operand('any', depth)} is {'not ' if self.chance(0.2) else ''}{name}" + (f"({given})" if given else "")

    def formatted(self, kind, depth):
        fields = PERCENT if self.chance(0.5) else BRACES
        format, values = "", []
        for _ in range(self.random.randrange(1, 3)):
            of = self.one(["any", "int", "float", *fields])
            format += self.one(fields[of])
            values.append(self.expr(self.one(KINDS) if of in ("any", "odd") else of, depth - 1))
        if fields is PERCENT:
            return f'"{format}" % ' + (f"({', '.join(values)},)" if self.chance(0.9) else self.operand(self.one(["dict", "text", "int"]), depth))
        named = f", a={self.atom('any')}" if self.chance(0.3) else ""
        return f'"{format}".format({", ".join(values)}{named})'

    def call(self, kind, depth):
        if self.macros and self.chance(0.6):
            return f"{self.one(self.macros)}({self.arguments(('any', 'any'), depth)})"
        small = lambda: str(self.random.randrange(-3, 9))  # noqa: E731
        return self.one([
            lambda: f"range({small()})|list", lambda: f"range({small()}, {small()})", lambda: f"range({small()}, {small()}, {small()})|list",
            lambda: f"dict(a={self.expr('any', depth - 1)})", lambda: f"dict({self.expr('dict', depth - 1)}, b=1)",
            lambda: f"namespace(a={self.expr('any', depth - 1)}).a", lambda: f"cycler({self.atom('any')}, 1).next()",
            lambda: f"joiner({self.text()})()", lambda: f"dict({self.expr('list', depth - 1)}|batch(2))", lambda: "loop.index" if self.loops else "n",
            lambda: f"dict.fromkeys({self.expr('list', depth - 1)}, 1)",
        ])()

    # Statements.

    def gap(self):
        return self.one(["", "", " ", "\n", "\n  ", "x", " y ", "\n\n", "\t", "é"])

    def tag(self, inside):
        left = self.one(["{%", "{%", "{%-", "{%+"])
        right = self.one(["%}", "%}", "-%}", "+%}"])
        return f"{left} {inside} {right}"

    def output(self, depth):
        left, right = self.one(["{{", "{{", "{{-"]), self.one(["}}", "}}", "-}}"])
        return f"{left} {self.expr(self.one(KINDS), depth)} {right}"

    def body(self, depth):
        kept = len(self.locals)
        made = "".join(self.statement(depth - 1) + self.gap() for _ in range(self.random.randrange(1, 3)))
        if self.chance(0.7):
            del self.locals[kept:]
        return self.gap() + made

    def statement(self, depth):
        if depth <= 0 or self.chance(0.35):
            return self.output(2)
        return self.one([
            self.condition_block, self.loop, self.loop, self.set, self.set, self.set_block, self.macro, self.call_block, self.filter_block,
            self.with_block, self.namespace, self.other,
        ])(depth)

    def condition_block(self, depth):
        made = self.tag(f"if {self.expr('bool', 2)}") + self.body(depth)
        if self.chance(0.3):
            made += self.tag(f"elif {self.expr('bool', 2)}") + self.body(depth)
        if self.chance(0.5):
            made += self.tag("else") + self.body(depth)
        return made + self.tag("endif")

    def loop(self, depth):
        target, names = self.one([("x", ["x"]), ("y", ["y"]), ("a, b", ["a", "b"]), ("s", ["s"])])
        over = self.expr("list", 2) if len(names) == 1 else self.one(["d.items()", "d|dictsort", "[(1, 2), (3, 4)]", self.expr("dict", 1) + "|items", "nested"])
        head = f"for {target} in {over}"
        if self.chance(0.2):
            head += f" if {self.expr('bool', 1)}"
        recursive = len(names) == 1 and self.chance(0.06)
        made = self.tag(head + (" recursive" if recursive else ""))
        kept = list(self.locals)
        self.locals += names + ["loop." + self.one(["index", "index0", "first", "last", "length", "revindex", "revindex0", "previtem", "nextitem", "depth", "changed(n)"])]
        self.loops += 1
        made += self.body(depth)
        if self.chance(0.2):
            made += self.tag(f"if {self.expr('bool', 1)}") + self.tag(self.one(["break", "continue"])) + self.tag("endif")
        if recursive:
            made += "{{ loop(" + self.one(["[]", "x if x is iterable and x is not string else []", f"{names[0]}.items if {names[0]}.items is defined"]) + ") }}"
        self.loops -= 1
        self.locals = kept
        if self.chance(0.15):
            made += self.tag("else") + self.body(depth)
        return made + self.tag("endfor")

    def set(self, depth):
        names = self.one([["v"], ["w"], ["n"], ["s"], ["v", "w"]])
        values = [self.expr("any", 2) for _ in names]
        made = self.tag(f"set {', '.join(names)} = {', '.join(values)}")
        self.locals += names
        return made

    def set_block(self, depth):
        name = self.one(["v", "w"])
        filters = self.one(["", "", " | upper", " | trim | length", " | replace('a', 'b')"])
        made = self.tag(f"set {name}{filters}") + self.body(depth) + self.tag("endset")
        self.locals.append(name)
        return made

    def macro(self, depth):
        name = self.one(["m", "k"])
        parameters = self.one(["", "p", "p, q=1", "p, q=p", "p=none", "p, q=n"])
        kept = list(self.locals)
        self.locals += [word for word in ("p", "q") if word in parameters] + self.one([[], ["varargs"], ["kwargs"], ["caller()"]])
        made = self.tag(f"macro {name}({parameters})") + self.body(depth) + self.tag("endmacro")
        self.locals = kept
        self.macros.append(name)
        return made

    def call_block(self, depth):
        if not self.macros:
            return self.macro(depth)
        parameters = self.one(["", "", "(z)"])
        return self.tag(f"call{parameters} {self.one(self.macros)}({self.arguments(('any',), 1)})") + self.body(depth) + self.tag("endcall")

    def filter_block(self, depth):
        name = self.one(["upper", "trim", "replace('a', 'b')", "indent(2)", "length", "title|lower", "escape", "center(9)", "list", "nope"])
        return self.tag(f"filter {name}") + self.body(depth) + self.tag("endfilter")

    def with_block(self, depth):
        head = self.one(["with", f"with v = {self.expr('any', 1)}", f"with v = 1, w = {self.atom('any')}", "with n = n + 1"])
        return self.tag(head) + self.body(depth) + self.tag("endwith")

    def namespace(self, depth):
        made = self.tag(f"set ns = namespace(a={self.atom('any')}, i=0)")
        made += self.tag(f"for x in {self.expr('list', 1)}")
        made += self.tag("set ns.i = ns.i + 1") + self.tag(f"set ns.a = {self.one(['ns.a ~ x', 'x', '[ns.a]', self.expr('any', 1)])}")
        self.locals += ["ns.a", "ns.i", "ns.b"]
        return made + self.tag("endfor") + "{{ ns.a }}{{ ns.i }}"

    def other(self, depth):
        return self.one([
            lambda: self.tag("generation") + self.body(depth) + self.tag("endgeneration"),
            lambda: self.one(["{#", "{#-"]) + " c {{ x }} " + self.one(["#}", "-#}", "+#}"]),
            lambda: "{% raw %}{{ x }}{% y %}{% endraw %}",
            lambda: self.tag(f"print {self.expr('any', 1)}"),
            lambda: self.tag("autoescape false") + self.body(depth) + self.tag("endautoescape"),
            lambda: self.tag(f"if {self.expr('bool', 1)}") + "{{ raise_exception(" + self.expr("text", 1) + ") }}" + self.tag("endif"),
            lambda: "{{ '%Y-%m-%d'|strftime_now }}" if self.chance(0.1) else "{{ strftime_now('%d %b %Y') }}",
        ])()

    def program(self):
        """One template."""
        self.locals, self.macros, self.loops = [], [], 0
        if self.chance(0.45):
            return "{{ " + self.expr(self.one(KINDS), 3) + " }}"
        return "".join(self.statement(self.random.randrange(1, 4)) + self.gap() for _ in range(self.random.randrange(1, 4)))
