#!/usr/bin/env python3
"""Writes the Unicode tables of src/tokenizer/ by asking the reference implementation.

See README.md. Usage: generate.py [--check] [text]; --check only compares with the committed files,
`text` restricts the work to the tables of the normalizers and pre-tokenizers.
"""

import pathlib
import sys
import unicodedata

import text_tables
import tokenizers
from regex import _regex_core
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "src" / "tokenizer"
SURROGATES = range(0xD800, 0xE000)
CODE_POINTS = [c for c in range(0x110000) if c not in SURROGATES]
ALL = "".join(map(chr, CODE_POINTS))

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po "
              "Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
# Table name -> what the reference's regex calls it.
CLASSES = {
    "Word": r"\w", "Space": r"\s", "Alphabetic": r"\p{Alphabetic}", "Uppercase": r"\p{Uppercase}",
    "Lowercase": r"\p{Lowercase}", "Punct": r"\p{Punct}", "Emoji": r"\p{Emoji}",
}


def ranges_of(pattern):
    """Inclusive ranges of the code points that the reference's regex puts into the class."""
    split = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed", invert=True)
    ranges = []
    for text, _ in split.pre_tokenize_str(ALL):
        first = ord(text[0])
        for a, b in [(first, ord(text[-1]))]:
            if a < 0xD800 and b >= 0xE000:  # ALL has no surrogates: the run spans the gap
                ranges += [(a, 0xD7FF), (0xE000, b)]
            else:
                ranges.append((a, b))
    return ranges


def check_subset(name, whole, parts):
    union = sorted(r for p in parts for r in p)
    def points(ranges):
        return {c for a, b in ranges for c in range(a, b + 1)}
    if points(whole) != points(union):
        sys.exit(f"generate.py: {name} is not the union of its parts")


def runs(value_of, default):
    """(first code point, value) wherever the value changes."""
    result = []
    for c in range(0x110000):
        v = value_of.get(c, default)
        if not result or result[-1][1] != v:
            result.append((c, v))
    return result


def categories():
    value = {c: CATEGORIES.index("Cs") for c in SURROGATES}
    parts = {}
    for index, name in enumerate(CATEGORIES):
        if name == "Cs":
            continue
        parts[name] = ranges_of(r"\p{%s}" % name)
        for a, b in parts[name]:
            for c in range(a, b + 1):
                if c in value:
                    sys.exit(f"generate.py: U+{c:04X} has two categories")
                value[c] = index
    if len(value) != 0x110000:
        sys.exit("generate.py: a code point has no category")
    for group in "LMNPSZ":
        check_subset(group, ranges_of(r"\p{%s}" % group),
                     [r for n, r in parts.items() if n[0] == group])
    return runs(value, None)


def scripts():
    names, value = [], {}
    by_id = {}
    for alias, ident in _regex_core.PROPERTIES["SCRIPT"][1].items():
        by_id.setdefault(ident, []).append(alias)
    for aliases in sorted(by_id.values(), key=lambda a: max(a, key=len)):
        accepted = {}
        for alias in aliases:
            try:
                accepted[alias] = ranges_of(r"\p{%s}" % alias)
            except Exception:  # the reference does not know this name
                continue
        if not accepted or "UNKNOWN" in aliases:
            continue
        found = list(accepted.values())
        if any(f != found[0] for f in found):
            sys.exit(f"generate.py: aliases differ: {aliases}")
        index = len(names)
        names.append(sorted(accepted))
        for a, b in found[0]:
            for c in range(a, b + 1):
                if c in value:
                    sys.exit(f"generate.py: U+{c:04X} has two scripts")
                value[c] = index
    return names, runs(value, 255)


def added_token_word():
    """What ends a `single_word` added token: the word class of another regex library."""
    tok = Tokenizer(models.BPE(vocab={}, merges=[]))
    tok.add_tokens([AddedToken("X", single_word=True, normalized=False)])
    ranges = []
    for c in CODE_POINTS:
        if not tok.encode("X" + chr(c)).ids:
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
    return ranges


def normalization():
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    # Non-starters, found by their moving across a class 240 or a class 1 character.
    ccc = {}
    for c in CODE_POINTS:
        ch = chr(c)
        if nfd(ch) == ch and (nfd("\u0345" + ch)[0] == ch or nfd(ch + "\u0334")[0] == "\u0334"):
            ccc[c] = unicodedata.combining(ch)
    ccc[0x0345], ccc[0x0334] = 240, 1  # the probes themselves
    sample = {}
    for c, k in ccc.items():
        if k == 0:
            sys.exit(f"generate.py: no class known for U+{c:04X}")
        sample.setdefault(k, chr(c))
    for c, k in ccc.items():
        for k2, other in sample.items():
            expected = chr(c) + other if k < k2 else other + chr(c)
            if nfd(other + chr(c)) != expected:
                sys.exit(f"generate.py: class of U+{c:04X} is not {k}")
    decompositions, pairs, unstable = {}, {}, set()
    for c in CODE_POINTS:
        if 0xAC00 <= c <= 0xD7A3:
            continue
        ch = chr(c)
        if nfd(ch) != ch:
            decompositions[c] = [ord(x) for x in nfd(ch)]
        if nfc(ch) != ch:
            unstable.add(c)
        raw = unicodedata.decomposition(ch).split()
        if len(raw) == 2 and raw[0][0] != "<":
            a, b = (int(x, 16) for x in raw)
            if nfc(chr(a) + chr(b)) == ch:
                pairs[(a, b)] = c
    jamo = {*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)}
    attention = unstable | set(ccc) | {b for _, b in pairs} | jamo
    return runs(ccc, 0), decompositions, pairs, runs({c: 1 for c in attention}, 0)


def array(kind, name, items, per_line):
    lines = [f"const {kind} {name}[] = {{"]
    for i in range(0, len(items), per_line):
        lines.append("    " + ", ".join(items[i:i + per_line]) + ",")
    lines += ["};", f"const std::size_t {name}Size = {len(items)};", ""]
    return lines


def write(name, lines, check):
    head = [
        "// Generated by tools/unicode/generate.py; do not edit.",
        f"// Reference: tokenizers {tokenizers.__version__}.",
        '#include "tokenizer/unicode_data.hpp"', "", "// clang-format off",
        "namespace fairlead::tokenizer::data {", "",
    ]
    text = "\n".join(head + lines + ["}  // namespace fairlead::tokenizer::data", ""])
    path = OUT / name
    if check:
        if path.read_text() != text:
            sys.exit(f"generate.py: {path} differs")
    else:
        path.write_text(text)


def packed_ranges(ranges):
    return [f"{{0x{a:X}, 0x{b:X}}}" for a, b in ranges]


def decomposition_arrays(prefix, decompositions):
    pool, index = [], []
    for c, text in sorted(decompositions.items()):
        index.append(f"{{0x{c:X}, {len(pool)}, {len(text)}}}")
        pool += text
    return (array("Decomposition", f"{prefix}Decompositions", index, 5)
            + array("std::uint32_t", f"{prefix}DecompositionText", [f"0x{c:X}" for c in pool], 12))


def write_text_tables(check):
    lines = array("CaseMapping", "kLowerMappings",
                  [f"{{0x{c:X}, 0x{to[0]:X}, 0x{to[1] if len(to) > 1 else 0:X}}}"
                   for c, to in text_tables.lowercase()], 5)
    lines += decomposition_arrays("kCompatibility", text_tables.compatibility())
    sets = {
        "Accents": text_tables.removed(text_tables.normalizers.StripAccents().normalize_str),
        "BertControl": text_tables.removed(text_tables.bert(clean_text=True)),
        "BertAccents": text_tables.bert_accents(),
        "Punctuation": text_tables.punctuation(),
        "Numeric": text_tables.isolated(pre_tokenizers.Digits()),
    }
    for name, points in sets.items():
        lines += array("Range", f"k{name}", packed_ranges(text_tables.ranges(points)), 6)
    # Whitespace and added tokens share a table.
    if text_tables.ranges(text_tables.whitespace_word()) != added_token_word():
        sys.exit("generate.py: the word class of Whitespace is not that of added tokens")
    for name, value, default in [("PreTokenizerScripts", text_tables.scripts(), 255),
                                 ("GraphemeBreaks", text_tables.grapheme_breaks(), 0)]:
        lines += array("std::uint32_t", f"k{name}",
                       [f"0x{c << 8 | v:X}" for c, v in runs(value, default)], 10)
    write("unicode_text_data.cpp", lines, check)


def main():
    check = "--check" in sys.argv[1:]
    write_text_tables(check)
    if "text" in sys.argv[1:]:
        return
    lines = array("std::uint32_t", "kCategories",
                  [f"0x{c << 5 | v:X}" for c, v in categories()], 10)
    for name, pattern in CLASSES.items():
        lines += array("Range", f"k{name}", packed_ranges(ranges_of(pattern)), 6)
    lines += array("Range", "kAddedTokenWord", packed_ranges(added_token_word()), 6)
    write("unicode_categories_data.cpp", lines, check)

    names, script_runs = scripts()
    lines = array("std::uint32_t", "kScripts", [f"0x{c << 8 | v:X}" for c, v in script_runs], 10)
    flat = [f'{{"{alias.lower()}", {i}}}' for i, group in enumerate(names) for alias in group]
    lines += array("ScriptName", "kScriptNames", sorted(flat), 5)
    write("unicode_scripts_data.cpp", lines, check)

    ccc, decompositions, pairs, attention = normalization()
    lines = array("std::uint32_t", "kCombiningClasses", [f"0x{c << 8 | v:X}" for c, v in ccc], 10)
    lines += decomposition_arrays("k", decompositions)
    lines += array("Composition", "kCompositions",
                   [f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for (a, b), c in sorted(pairs.items())], 5)
    lines += array("std::uint32_t", "kNfcAttention", [f"0x{c << 8 | v:X}" for c, v in attention], 10)
    write("unicode_normalization_data.cpp", lines, check)
    print(f"tokenizers {tokenizers.__version__}: {len(names)} scripts, {len(decompositions)} "
          f"decompositions, {len(pairs)} compositions")


main()
