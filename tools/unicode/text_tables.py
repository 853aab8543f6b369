"""Tables of the normalizers and pre-tokenizers, each asked from the reference's own components."""

import functools
import struct
import sys

import regex
from tokenizers import normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
BREAKS = ("Other CR LF Control Extend ZWJ Regional_Indicator Prepend SpacingMark L V T LV LVT "
          "Extended_Pictographic").split()
CONJUNCT = ["None", "Consonant", "Linker", "Extend"]


def ranges(points):
    """Sorted inclusive ranges of a set."""
    result = []
    for c in sorted(points):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def lowercase():
    """(code point, its lower case), where that differs."""
    lower = normalizers.Lowercase().normalize_str
    return [(c, [ord(x) for x in lower(chr(c))]) for c in CODE_POINTS if lower(chr(c)) != chr(c)]


def compatibility():
    """Full compatibility decompositions that differ from the canonical ones."""
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    return {c: [ord(x) for x in nfkd(chr(c))] for c in CODE_POINTS if nfkd(chr(c)) != nfd(chr(c))}


def bert(**on):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **on}).normalize_str


def removed(normalize, among=None):
    return {c for c in among or CODE_POINTS if normalize(chr(c)) == ""}


def bert_accents():
    """What `strip_accents` removes from canonically decomposed text."""
    nfd, strip = normalizers.NFD().normalize_str, bert(strip_accents=True)
    marks = removed(strip, [c for c in CODE_POINTS if nfd(chr(c)) == chr(c)])
    for c in CODE_POINTS:
        if strip(chr(c)) != "".join(x for x in nfd(chr(c)) if ord(x) not in marks):
            sys.exit(f"text_tables.py: strip_accents of U+{c:04X} is more than removal")
    return marks


def isolated(pre_tokenizer):
    """The code points that the pre-tokenizer cuts out of a word."""
    split = pre_tokenizer.pre_tokenize_str
    return {c for c in CODE_POINTS if len(split(f"a{chr(c)}a")) == 3}


def punctuation():
    points = isolated(pre_tokenizers.Punctuation())
    if points != isolated(pre_tokenizers.BertPreTokenizer()):
        sys.exit("text_tables.py: Punctuation and BertPreTokenizer differ")
    return points


def whitespace_word():
    """`\\w` of the `Whitespace` pre-tokenizer."""
    split = pre_tokenizers.Whitespace().pre_tokenize_str
    return {c for c in CODE_POINTS if len(split(f"a{chr(c)}a")) == 1}


def scripts():
    """Code point -> number of the script as UnicodeScripts sees it; None for none of its own."""
    split = pre_tokenizers.UnicodeScripts().pre_tokenize_str
    value, samples, last = {}, [], None
    for c in CODE_POINTS:
        ch = chr(c)
        if not split(ch):
            continue
        order = ([last] if last is not None else []) + list(range(len(samples)))
        found = next((i for i in order if len(split(samples[i] + ch)) == 1), None)
        if found is None:
            found = len(samples)
            samples.append(ch)
        value[c] = last = found
    if len(samples) > 254:
        sys.exit("text_tables.py: too many scripts")
    return value


def count_clusters():
    """The reference's normalizer under a charsmap that turns every cluster below 6 bytes into one
    X and every other into one X per character; gives the number of X."""
    units = [0] * 1024
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 ^ byte] = byte | 1 << 8 | (256 ^ byte ^ 512 + byte) << 10
        units[512 + byte] = 1 << 31
    blob = struct.pack("<I1024I", 4096, *units) + b"X\0"
    normalize = normalizers.Precompiled(blob).normalize_str
    return lambda text: len(normalize(text))


class Clusters:
    """Extended grapheme clusters by the rules of UAX 29 over a table of classes."""

    def __init__(self, value):
        self.value = value

    def classes(self, ch):
        v = self.value.get(ord(ch), 0)
        return BREAKS[v & 15], CONJUNCT[v >> 4]

    def split(self, text):
        clusters, start = [], 0
        for i in range(1, len(text)):
            if self.breaks(text, i):
                clusters.append(text[start:i])
                start = i
        return clusters + [text[start:]]

    def breaks(self, text, i):
        (a, _), (b, conjunct) = self.classes(text[i - 1]), self.classes(text[i])
        if a == "CR" and b == "LF":
            return False
        if a in ("CR", "LF", "Control") or b in ("CR", "LF", "Control"):
            return True
        if (a == "L" and b in ("L", "V", "LV", "LVT") or a in ("LV", "V") and b in ("V", "T")
                or a in ("LVT", "T") and b == "T"):
            return False
        if b in ("Extend", "ZWJ", "SpacingMark") or a == "Prepend":
            return False
        before = [self.classes(ch) for ch in text[:i]]
        if conjunct == "Consonant":
            linked = False
            while before and before[-1][1] in ("Linker", "Extend"):
                linked = before.pop()[1] == "Linker" or linked
            if linked and before and before[-1][1] == "Consonant":
                return False
        if a == "ZWJ" and b == "Extended_Pictographic":
            before = [self.classes(ch)[0] for ch in text[:i - 1]]
            while before and before[-1] == "Extend":
                before.pop()
            if before and before[-1] == "Extended_Pictographic":
                return False
        if a == b == "Regional_Indicator":
            run = 0
            while run < i and self.classes(text[i - 1 - run])[0] == "Regional_Indicator":
                run += 1
            return run % 2 == 0
        return True

    def count(self, text):
        return sum(1 if len(c.encode()) < 6 else len(c) for c in self.split(text))


# Contexts in which every class shows; {} is the code point. The short cluster at the end makes a
# break before it visible.
CONTEXTS = [
    "a{}", "{}a", "{}\u0300\u0300", "{}\u200d©\u0300", "©\u200d{}\u0300", "©{}\u200d©\u0300",
    "{}\u1161\u0300", "{}\u11a8\u0300", "\u1100{}\u0300", "\uac00{}\u0300", "\uac01{}\u0300",
    "क\u094d{}\u0300", "{}\u094dक\u0300", "क{}क\u0300", "क\u094d{}क\u0300", "\r{}", "{}\n",
    "क{}\u094dक\u0300", "\u0600{}", "{}🇦\u0300",
]


def grapheme_breaks():
    """Code point -> class | conjunct << 4, proven against the reference in all contexts."""
    value = {}
    for index, name in enumerate(BREAKS):
        prop = f"GCB={name}" if index < len(BREAKS) - 1 else name
        test = regex.compile(r"\p{%s}" % prop).match
        for c in CODE_POINTS:
            if test(chr(c)):
                value[c] = value.get(c) or index
    for index, name in enumerate(CONJUNCT[1:], 1):
        test = regex.compile(r"\p{InCB=%s}" % name).match
        for c in CODE_POINTS:
            if test(chr(c)):
                value[c] = value.get(c, 0) | index << 4
    count = count_clusters()

    @functools.cache
    def predicted(v, size):
        """What the contexts give for a code point of this class and length in UTF-8."""
        sample = {1: "b", 2: "\u05d0", 3: "\u4e00", 4: "\U00020000"}[size]
        model = Clusters({**value, ord(sample): v})
        return [model.count(context.format(sample)) for context in CONTEXTS]

    def fits(c):
        expected = predicted(value.get(c, 0), len(chr(c).encode()))
        return all(count(context.format(chr(c))) == n for context, n in zip(CONTEXTS, expected))

    for c in CODE_POINTS:
        if fits(c):
            continue
        # `regex` is of a later Unicode version, in which this code point has another class.
        known = value.pop(c, 0)
        for other in (0, BREAKS.index("Control"), BREAKS.index("Extended_Pictographic")):
            value[c] = other
            if fits(c):
                break
        else:
            sys.exit(f"text_tables.py: U+{c:04X} ({known}) fits no class")
    return {c: v for c, v in value.items() if v}
