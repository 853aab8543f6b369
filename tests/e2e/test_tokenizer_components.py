"""Small random tokenizers against the reference library: every supported component and option."""

import json
import os
import random
import subprocess
import unicodedata

import pytest
from fairlead import binary_path
from fairlead.tokenizer_texts import string_count
from tokenizers import Tokenizer

BYTE_CHARS = [*range(33, 127), *range(161, 173), *range(174, 256)]
SPELLING = {b: chr(b) for b in BYTE_CHARS}
for number, byte in enumerate(b for b in range(256) if b not in BYTE_CHARS):
    SPELLING[byte] = chr(0x100 + number)

PATTERNS = [
    r"\p{L}+", r"\s+", r"\p{N}{1,3}", r" ?\p{L}+| ?\p{N}+", r"[^\s\p{L}\p{N}]+", r"\w+|[^\w\s]+", r"\b", r"\d", r"(?i:'s|'t)",
    r"\p{Lu}\p{Ll}*", r"[\p{L}&&[^a-z]]+", r"[\p{Lu}\p{M}]+", r"x*", r"(?<=a)b", r"\s+(?!\S)|\s+", r"[a-c[x-z]]++", r".",
    r"\p{Han}+|\p{Hiragana}+", r"\p{Punct}+", r"[[:^alpha:]]", r"\S", r"\P{L}", r"[^\S ]", r"(?:ab)+|[0-9]{2}+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
LITERALS = [" ", "a", "-", ".", "\n", "ab", "\u00e9", "  "]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
CONTENTS = ["<x>", "<x>y", "<|s|>", " b", "ab", "a", "\n\n", "\u00e9", "e\u0301", "<\uff5c>", "caf\u00e9", "  ", "[M]", "<\u00e9>", "1"]


def spelled(data):
    return "".join(SPELLING[b] for b in data)


def random_text(rng):
    often = [" ", " ", "  ", "\n", "\r\n", "\t", "'s", "'T", "a", "b", "ab", "c", "x", "1", "23", "-", ".", "!", "_", "A", "B",
             "\u00e9", "e\u0301", "\u0301", "\u4e2d", "\u3042", "\u00a0", "\u2003", "\u0661", "\u0085", "\u017f", "\U0001f600"]
    parts = []
    for _ in range(rng.randint(0, 25)):
        kind = rng.random()
        if kind < 0.72:
            parts.append(rng.choice(often))
        elif kind < 0.9:
            parts.append(rng.choice(CONTENTS))
        else:
            c = rng.choice([rng.randrange(0x3000), rng.randrange(0x20000), rng.randrange(0x110000)])
            parts.append("?" if 0xD800 <= c < 0xE000 else chr(c))
    return "".join(parts)


def random_model(rng):
    alphabet = list(range(256))
    options = {"dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
               "fuse_unk": False, "byte_fallback": False, "ignore_merges": rng.random() < 0.3}
    if rng.random() < 0.3:  # a partial byte table
        alphabet = [b for b in alphabet if rng.random() < 0.6 or chr(b) in "ab <>"]
        options["unk_token"] = rng.choice([None, "<unk>"])
        options["fuse_unk"] = rng.random() < 0.5
        options["byte_fallback"] = rng.random() < 0.5
    tokens = [bytes([b]) for b in alphabet]
    common = [t for t in tokens if t in b"abcx123 .-'s\n\xc3\xa9\xe4\xb8\xad"]
    merges, seen = [], set()
    for _ in range(rng.randint(0, 80)):
        left, right = rng.choice(common + tokens[256:]), rng.choice(common)
        if len(left) + len(right) <= 10 and (left, right) not in seen:
            seen.add((left, right))
            merges.append((left, right))
            if left + right not in tokens:
                tokens.append(left + right)
                common.append(left + right)
    spellings = [spelled(t) for t in tokens]
    if options["unk_token"]:
        spellings.append("<unk>")
    if options["byte_fallback"]:
        spellings += [f"<0x{b:02X}>" for b in range(256) if rng.random() < 0.8]
    rng.shuffle(spellings)
    gap = rng.choice([0, 0, 7])
    vocab = {s: i + (gap if i > 40 else 0) for i, s in enumerate(dict.fromkeys(spellings))}
    pairs = [[spelled(a), spelled(b)] for a, b in merges]
    return {"type": "BPE", **options, "vocab": vocab, "merges": pairs if rng.random() < 0.5 else [" ".join(p) for p in pairs]}


def random_split(rng):
    if rng.random() < 0.25:
        pattern = {"String": rng.choice(LITERALS)}
    else:
        pattern = {"Regex": rng.choice(PATTERNS)}
    return {"type": "Split", "pattern": pattern, "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.3}


def random_tokenizer(rng):
    byte_level = {"type": "ByteLevel", "add_prefix_space": rng.random() < 0.5, "trim_offsets": True, "use_regex": rng.random() < 0.4}
    splits = [random_split(rng) for _ in range(rng.randint(0, 3))]
    pre = {"type": "Sequence", "pretokenizers": splits + [byte_level]} if splits or rng.random() < 0.5 else byte_level
    model = random_model(rng)
    added = []
    contents = rng.sample(CONTENTS, rng.randint(0, 8))
    if "\u00e9" in contents and "e\u0301" in contents:  # when both are normalized the reference takes either
        contents.remove(rng.choice(["\u00e9", "e\u0301"]))
    for content in contents:
        flags = {f: rng.random() < 0.3 for f in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        added.append({"id": rng.randint(0, 999), "content": content, **flags})
    template = {"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "single": [{"SpecialToken": {"id": "p", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "q", "type_id": 0}}],
                "special_tokens": {"p": {"id": "p", "ids": [3], "tokens": ["p"]}, "q": {"id": "q", "ids": [5, 6], "tokens": ["q", "r"]}}}
    roberta = {"type": "RobertaProcessing", "sep": ["s", 8], "cls": ["c", 9], "trim_offsets": True, "add_prefix_space": True}
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    post = rng.choice([None, level, template, roberta, {"type": "BertProcessing", "sep": ["s", 8], "cls": ["c", 9]},
                       {"type": "Sequence", "processors": [level, template]}, {"type": "Sequence", "processors": [roberta, template]}])
    normalizer = rng.choice([None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []},
                             {"type": "Sequence", "normalizers": [{"type": "NFC"}]}])
    decoder = rng.choice([level, {"type": "Sequence", "decoders": [level]}])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def run(path, requests, *flags):
    text = "".join(json.dumps(r) + "\n" for r in requests).encode()
    done = subprocess.run([binary_path(), "tokenize", "--model", path, *flags], input=text, stdout=subprocess.PIPE, timeout=120, check=True)
    return [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]


def reference_ids(reference, text, add_special_tokens):
    try:
        return reference.encode(text, add_special_tokens=add_special_tokens).ids
    except BaseException as error:  # overlapping added tokens make the reference panic
        if "PanicException" in type(error).__name__:
            return None
        raise


def seeds(group, usual):
    """Of the tokenizers of one group of tests: the usual ones, or as many as it takes to compare the wanted number of texts."""
    first = int(os.environ.get("FAIRLEAD_SEED") or 0) * 1_000_000
    count = max(usual, string_count(0) // 150)
    return range(first + group * count, first + (group + 1) * count)


@pytest.mark.timeout(120 + string_count(0) // 20)
@pytest.mark.parametrize("group", range(6))
def test_random_tokenizers(tmp_path, group):
    for seed in seeds(group, 30):
        rng = random.Random(seed)
        config = random_tokenizer(rng)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(config))
        reference = Tokenizer.from_str(json.dumps(config))
        requests = [{"text": random_text(rng), "add_special_tokens": rng.random() < 0.5} for _ in range(150)]
        sequences = []
        for request, answer in zip(requests, run(path, requests)):
            ids = reference_ids(reference, request["text"], request["add_special_tokens"])
            if ids is not None:
                described = {k: v for k, v in config.items() if k != "model"}
                assert answer.get("ids") == ids, (seed, request, [reference.id_to_token(i) for i in ids], described)
                sequences.append(ids)
        limit = max(config["model"]["vocab"].values()) + 20
        sequences += [[rng.randrange(limit) for _ in range(rng.randint(0, 20))] for _ in range(60)]
        skip = rng.random() < 0.5
        requests = [{"ids": ids, "skip_special_tokens": skip} for ids in sequences]
        for ids, answer in zip(sequences, run(path, requests, "--decode")):
            text = reference.decode(ids, skip_special_tokens=skip)
            assert answer["text"] == text and "".join(answer["deltas"]) == text, (seed, ids, skip)


CLASSES = (
    [f"\\p{{{c}}}" for c in "L Lu Ll Lt Lm Lo LC M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn".split()]
    + [f"\\p{{{c}}}" for c in "Letter Uppercase_Letter Mark Decimal_Number Punctuation Symbol Separator Other Unassigned".split()]
    + [f"\\p{{{c}}}" for c in "Alphabetic Alpha Uppercase Upper Lowercase Lower White_Space Space Punct Word Digit Emoji".split()]
    + [f"\\p{{{c}}}" for c in "Latin Cyrillic Greek Han Hani Hiragana Katakana Hangul Arabic Hebrew Thai Common Zyyy Inherited Garay Kawi Cham".split()]
    + [r"\s", r"\d", r"\w", r"\S", r"\D", r"\W", r"\P{L}", r"\p{^L}", r"\h"]
    + [f"[[:{c}:]]" for c in "alnum alpha ascii blank cntrl digit graph lower print punct space upper word xdigit ^alpha".split()]
    + [f"\\p{{{c}}}" for c in "Alnum ASCII Blank Cntrl Graph Print XDigit".split()]
)


def probe_characters():
    """Both sides of every change of category, and the blocks that newer Unicode versions filled."""
    points = set(range(0x250)) | set(range(0x1C80, 0x1C90)) | set(range(0xA7C0, 0xA800)) | set(range(0x10D40, 0x10D90))
    previous = None
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category != previous:
            points |= {c - 1, c}
            previous = category
    points |= set(range(0x10000, 0x1FFFF, 31)) | set(range(0x2F00, 0x3400)) | set(range(0xFE00, 0x10000))
    return [chr(c) for c in sorted(points) if 0 <= c < 0x110000 and not 0xD800 <= c < 0xE000]


@pytest.mark.parametrize("half", range(2))
def test_character_classes(tmp_path, half):
    """A prefix space shows where each piece begins, so equal ids mean equal pieces."""
    text = "".join(probe_characters())
    vocab = {spelled(bytes([b])): b for b in range(256)}
    for pattern in CLASSES[half::2]:
        split = {"type": "Split", "pattern": {"Regex": pattern + "+"}, "behavior": "Isolated", "invert": False}
        level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
        config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "post_processor": None,
                  "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]}, "decoder": level,
                  "model": {"type": "BPE", "vocab": vocab, "merges": [], "dropout": None, "unk_token": None, "fuse_unk": False,
                            "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False}}
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(config))
        answer, = run(path, [{"text": text}])
        assert answer.get("ids") == Tokenizer.from_str(json.dumps(config)).encode(text).ids, pattern


def test_neighbours_of_single_word_tokens(tmp_path):
    """Word and space characters beside added tokens follow another library than the regexes."""
    config = random_tokenizer(random.Random(1))
    config["normalizer"] = config["post_processor"] = None
    flags = {"normalized": False, "special": False}
    config["added_tokens"] = [
        {"id": 0, "content": "<w>", "single_word": True, "lstrip": False, "rstrip": False, **flags},
        {"id": 0, "content": "<l>", "single_word": False, "lstrip": True, "rstrip": False, **flags},
        {"id": 0, "content": "<r>", "single_word": False, "lstrip": False, "rstrip": True, **flags}]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(config))
    reference = Tokenizer.from_str(json.dumps(config))
    requests = [{"text": f"{c}<w>{c} <w>{c}<l>,<r>{c},"} for c in probe_characters()]
    for request, answer in zip(requests, run(path, requests)):
        assert answer.get("ids") == reference.encode(request["text"]).ids, ascii(request["text"])
