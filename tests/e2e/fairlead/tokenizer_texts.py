"""Texts to compare tokenizers on, and `fairlead tokenize` to answer them.

FAIRLEAD_TOKENIZER_STRINGS says how many texts each tokenizer is compared on (`make tokenizers` says 20000), FAIRLEAD_SEED
which: without it the same ones each time.
"""

import json
import os
import random
import subprocess
import threading
import unicodedata
from itertools import islice
from pathlib import Path

from .launcher import binary_path

ROOT = Path(__file__).resolve().parents[3]
CHUNK = 500
WHITE_SPACE = [chr(c) for c in (*range(9, 14), 0x1C, 0x1D, 0x1E, 0x1F, 0x20, 0x85, 0xA0, 0x1680, 0x180E, *range(0x2000, 0x2010), 0x2028,
                                0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF)] + ["\r\n", "  ", "    ", "\n\n", " \n", "\t\t"]
CONTRACTIONS = [quote + end for quote in ("'", "\u2019", "''") for end in
                ("s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "lL", "M", "D", "\u017f", "x", "1", "")]
CASES = "\u0130\u0131\u00df\u1e9e\u0149\u01f0\u0390\u1f80\u1ffc\u03a3\u03c3\u03c2\u01c4\u01c5\u01c6\ufb01\ufb03\u212a\u212b\u2126\u2160\u24b6\uff21\u10a0\u13a0\uab70"
COMPATIBLE = "\uff21\uff11\u2460\u00bd\u2167\u33a5\ufdfa\u3300\u1e9b\u0323\u2075\u00aa\uffe3\u3392\u00a8\u0132\u01c7\u03d2\u2024\u2026\ufe4d\uff9e\u30ab\uff76\uff9e"
JOINED = ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea\U0001f1eb", "\u200d", "\ufe0f", "\u20e3",
          "1\ufe0f\u20e3", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\u0915\u094d\u200d\u0937", "\u0d15\u0d4d\u200c", "\u200c", "\u034f", "\u200b"]
LANGUAGES = ["\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf\u30ab\u30ca\u30fc", "\uc548\ub155\ud558\uc138\uc694", "\u1112\u1161\u11ab\u1100\u1173\u11af",
             "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u202b\u0627\u0644\u0639\u0631\u0628\u064a\u0629\u202c", "\u200f123\u200e",
             "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1", "ti\u1ebfng Vi\u1ec7t", "\u10e5\u10d0\u10e0\u10d7\u10e3\u10da\u10d8", "\u0f56\u0f7c\u0f51\u0f0b", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u12a0\u121b\u122d\u129b",
             "caf\u00e9 na\u00efve", "cafe\u0301", "Stra\u00dfe", "\u0141\u00f3d\u017a", "\u0130stanbul", "O'Neil", "https://example.com/a?b=c&d=%20e#f", "x**2 != 3;", "\u20ac12.50", "#tag @name"]
DIGITS = [chr(c) for c in range(0x20000) if unicodedata.category(chr(c)).startswith("N")]
MARKS = [chr(c) for c in (*range(0x20000), *range(0xE0100, 0xE01F0)) if unicodedata.category(chr(c)).startswith("M")]


def string_count(default=150):
    """How many texts to compare each tokenizer on."""
    return int(os.environ.get("FAIRLEAD_TOKENIZER_STRINGS") or default)


def tokenizer_rng(name):
    """What is random about one tokenizer's comparison; says the seed, which pytest shows of failed tests."""
    seed = int(os.environ.get("FAIRLEAD_SEED") or 1)
    print(f"FAIRLEAD_SEED={seed} FAIRLEAD_TOKENIZER_STRINGS={string_count()}")
    return random.Random(f"{seed} {name}")


def scalar(rng, low=0, high=0x10FFFF):
    while True:
        c = rng.randint(low, high)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def prose():
    """Pages and sources of the project and lines in other languages: what tokenizers are trained and cut on."""
    files = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "tests/e2e").glob("test_tokenizer*.py"))
    lines = [line for path in files for line in path.read_text().split("\n")]
    return lines + [" ".join(LANGUAGES[i:] + LANGUAGES[:i]) for i in range(0, len(LANGUAGES), 3)]


class Texts:
    """An endless supply of texts: strings, some with lone surrogates, and bytes, most of them not UTF-8."""

    def __init__(self, rng, specials=()):
        self.rng = rng
        self.specials = list(specials) or ["<s>"]
        self.prose = prose()
        self.kinds = [
            (self.plane, 6), (self.script, 6), (lambda: rng.choice(MARKS), 6), (lambda: rng.choice(JOINED), 4), (lambda: rng.choice(WHITE_SPACE), 10),
            (lambda: rng.choice("0123456789") * rng.randint(1, 5), 4), (lambda: rng.choice(DIGITS), 3), (lambda: rng.choice(CONTRACTIONS), 6),
            (lambda: rng.choice(self.specials), 7), (self.near_special, 3), (lambda: rng.choice(LANGUAGES), 10), (lambda: rng.choice(CASES), 2),
            (lambda: rng.choice(COMPATIBLE), 3), (lambda: chr(rng.randint(0x20, 0x7E)), 12), (lambda: " ", 10), (self.words, 14),
            (lambda: rng.choice("-_.,;:!?()[]{}\"'`\u00ab\u00bb\u3001\u3002\uff0c\u2014\u00bf$+<=>^|~") * rng.randint(1, 3), 6), (lambda: rng.choice("\r\n\t"), 3),
            (lambda: chr(rng.randint(0x1100, 0x11FF)), 1), (lambda: chr(rng.randint(0xAC00, 0xD7A3)), 1)]

    def plane(self):
        start = self.rng.choice([0, 0, 0, 1, 1, 2, 3, *range(4, 17)]) << 16
        return scalar(self.rng, start, start + 0xFFFF)

    def script(self):
        start = self.rng.randrange(0x20, 0x3400, 0x20)
        return "".join(scalar(self.rng, start, start + 0x1F) for _ in range(self.rng.randint(1, 6)))

    def near_special(self):
        special = self.rng.choice(self.specials)
        at = self.rng.randint(0, len(special))
        return self.rng.choice([special[:at], special[at:], special[:at] + " " + special[at:], special.upper(), " " + special + " "])

    def words(self):
        line = self.rng.choice(self.prose)
        at = self.rng.randint(0, len(line))
        return line[at : at + self.rng.randint(1, 40)]

    def long_word(self):
        rng = self.rng
        unit = rng.choice(["a", "ab", "q7Z", "\u4e2d", "\u00e9", " ", "\n", " \n", "=", "1", "\u0301", "\u2581", scalar(rng), rng.choice(LANGUAGES)])
        return unit * rng.randint(20, 400) + "".join(chr(rng.randint(0x61, 0x7A)) for _ in range(rng.randint(0, 300)))

    def string(self):
        rng = self.rng
        kinds, weights = zip(*rng.sample(self.kinds, rng.randint(1, len(self.kinds))))
        text = "".join(kind() for kind in rng.choices(kinds, weights, k=rng.randint(0, rng.choice([3, 12, 30]))))
        if rng.random() < 0.01:
            text += self.long_word()
        return text

    def surrogates(self):
        text = self.string()
        at = self.rng.randint(0, len(text))
        return text[:at] + self.rng.choice(["\ud800", "\udfff", "\ude00\ud83d", "\ud83d", "\udc00 ", "\ud83d\ude00"]) + text[at:]

    def data(self):
        rng = self.rng
        if rng.random() < 0.3:
            return rng.randbytes(rng.randint(1, 40))
        data = bytearray(self.string().encode())
        at = rng.randint(0, len(data))
        data[at : at + rng.randint(0, 2)] = rng.choice(
            [b"", rng.randbytes(1), b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe4\xb8", b"\xf8", b"\xff", b"\xc2\xa0"])
        return bytes(data)

    def take(self, count):
        """`count` of them."""
        for _ in range(count):
            kind = self.rng.random()
            yield self.surrogates() if kind < 0.01 else self.data() if kind < 0.03 else self.string()


def text_line(text, **more):
    """The request for a text, str or bytes, as the bytes of a line."""
    if isinstance(text, str):
        return json.dumps({"text": text, **more}).encode()
    quoted = b"".join(b"\\u%04x" % c if c < 0x20 or c in b'"\\' else bytes([c]) for c in text)
    return b'{"text": "' + quoted + b'", ' + json.dumps(more).encode()[1:] if more else b'{"text": "' + quoted + b'"}'


def meant_text(line):
    """The text that a line asks for; None when it is none: bytes that are not UTF-8, or lone surrogates."""
    try:
        text = json.loads(line.decode())["text"]
        text.encode()
    except UnicodeError:
        return None
    return text


class TokenizeCommand:
    """A running `fairlead tokenize`; use with `with`."""

    def __init__(self, model, *flags):
        self.process = subprocess.Popen([binary_path(), "tokenize", "--model", model, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(60) == 0 or raised[0]

    def answers(self, lines):
        """The answers to requests, dicts or the bytes of lines."""
        data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)

        def feed():
            self.process.stdin.write(data)
            self.process.stdin.flush()

        feeder = threading.Thread(target=feed)
        feeder.start()
        answers = [json.loads(self.process.stdout.readline()) for _ in lines]
        feeder.join()
        return answers


def chunks(items, size=CHUNK):
    """Lists of at most `size` items, so that no answer is held longer than it takes to compare it."""
    items = iter(items)
    while some := list(islice(items, size)):
        yield some
