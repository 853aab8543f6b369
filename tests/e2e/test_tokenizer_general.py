"""Random tokenizers of every model, with any normalizer, pre-tokenizer and decoder, against the reference library."""

import base64
import json
import random
import struct

import pytest
from fairlead.tokenizer_texts import string_count
from test_tokenizer_components import BEHAVIORS, CONTENTS, LITERALS, PATTERNS, random_text, reference_ids, run, seeds
from tokenizers import Tokenizer

WORDS = ["a", "b", "ab", "abc", "c", "x", "the", "1", "23", "-", ".", "\u00e9", "e\u0301", "\u4e2d", "\u3042", "A", "B", "\u2581", "\u2581a",
         "\u2581ab", "s", "'s", "'", " ", "\n", "<x>", "!", "_", "\u0120a", "\u0120", "##b", "##c", "##s", "b</w>", "a</w>", "ab</w>", "c</w>"]


def one_of(rng, *makers):
    return rng.choice(makers)()


def pattern(rng):
    return {"String": rng.choice(LITERALS)} if rng.random() < 0.3 else {"Regex": rng.choice(PATTERNS)}


def charsmap():
    """A SentencePiece map of two entries: U+FF21 to A, and a full-width digit that vanishes."""
    entries = {"\uff21".encode(): b"A", "\uff11".encode(): b"", "\u2460".encode(): b"(1)"}
    texts, offsets = b"", {}
    for key, value in entries.items():
        offsets[key] = len(texts)
        texts += value + b"\0"
    # A double array: unit = offset<<10 | has_leaf<<8 | label, leaves hold the value with the top bit.
    units = {0: [1, False, 0]}
    used = {0}
    tree = {}
    for key in entries:
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = offsets[key]

    def place(node, at):
        labels = [0 if label is None else label for label in node]
        offset = 1
        while any((at ^ offset ^ label) in used for label in labels) or at ^ offset == 0:
            offset += 1
        units[at][0] = offset
        for label in labels:
            used.add(at ^ offset ^ label)
        for label, child in node.items():
            to = at ^ offset ^ (label or 0)
            if label is None:
                units[at][1] = True
                units[to] = child | 1 << 31
            else:
                units[to] = [0, False, label]
                place(child, to)

    place(tree, 0)
    array = [0] * (max(units) + 257)
    for at, unit in units.items():
        array[at] = unit if isinstance(unit, int) else unit[0] << 10 | int(unit[1]) << 8 | unit[2]
    return base64.b64encode(struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + texts).decode()


CHARSMAP = charsmap()


def normalizer(rng, depth=0):
    flag = lambda: rng.random() < 0.5  # noqa: E731
    if depth == 0 and rng.random() < 0.5:
        return {"type": "Sequence", "normalizers": [normalizer(rng, 1) for _ in range(rng.randint(0, 3))]}
    return one_of(
        rng, *[lambda name=name: {"type": name} for name in
               ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel")],
        lambda: {"type": "Strip", "strip_left": flag(), "strip_right": flag()},
        lambda: {"type": "Prepend", "prepend": rng.choice(["\u2581", "ab", " "])},
        lambda: {"type": "Replace", "pattern": pattern(rng), "content": rng.choice(["\u2581", "", "x", "aa"])},
        lambda: {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        lambda: {"type": "Precompiled", "precompiled_charsmap": CHARSMAP},
        lambda: {"type": "BertNormalizer", "clean_text": flag(), "handle_chinese_chars": flag(),
                 "strip_accents": rng.choice([None, True, False]), "lowercase": flag()})


def pre_tokenizer(rng, depth=0):
    flag = lambda: rng.random() < 0.5  # noqa: E731
    if depth == 0 and rng.random() < 0.4:
        return {"type": "Sequence", "pretokenizers": [pre_tokenizer(rng, 1) for _ in range(rng.randint(0, 3))]}
    return one_of(
        rng, *[lambda name=name: {"type": name} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")],
        lambda: {"type": "ByteLevel", "add_prefix_space": flag(), "trim_offsets": True, "use_regex": flag()},
        lambda: {"type": "CharDelimiterSplit", "delimiter": rng.choice(["-", " ", "\u00e9"])},
        lambda: {"type": "Digits", "individual_digits": flag()},
        lambda: {"type": "FixedLength", "length": rng.randint(1, 6)},
        lambda: {"type": "Metaspace", "replacement": rng.choice(["\u2581", "_"]), "prepend_scheme": rng.choice(["first", "always", "never"]),
                 "split": flag()},
        lambda: {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)},
        lambda: {"type": "Split", "pattern": pattern(rng), "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.3})


def decoder(rng, depth=0):
    if depth == 0 and rng.random() < 0.6:
        return {"type": "Sequence", "decoders": [decoder(rng, 1) for _ in range(rng.randint(1, 4))]}
    return one_of(
        rng, *[lambda name=name: {"type": name} for name in ("ByteFallback", "Fuse")],
        lambda: {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        lambda: {"type": "BPEDecoder", "suffix": "</w>"},
        lambda: {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": rng.choice(["first", "always", "never"]), "split": True},
        lambda: {"type": "Replace", "pattern": {"String": rng.choice(["\u2581", "ab", "a"])}, "content": rng.choice([" ", "", "xy"])},
        lambda: {"type": "Strip", "content": rng.choice([" ", "a"]), "start": rng.randint(0, 1), "stop": 0},
        lambda: {"type": "WordPiece", "prefix": "##", "cleanup": rng.random() < 0.5},
        lambda: {"type": "CTC", "pad_token": "<unk>", "word_delimiter_token": "|", "cleanup": rng.random() < 0.5})


def model(rng):
    words = ["<unk>", *rng.sample(WORDS, rng.randint(5, len(WORDS)))]
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)] if rng.random() < 0.4 else []
    kind = rng.choice(["BPE", "Unigram", "WordPiece", "WordLevel"])
    if kind == "Unigram":
        pieces = [[w, round(-rng.uniform(0.5, 9), 3)] for w in [*words, *byte_tokens]]
        return {"type": kind, "unk_id": 0, "vocab": pieces, "byte_fallback": bool(byte_tokens)}
    vocab = {w: i for i, w in enumerate(dict.fromkeys([*words, *byte_tokens]))}
    if kind == "WordLevel":
        return {"type": kind, "vocab": vocab, "unk_token": "<unk>"}
    if kind == "WordPiece":
        return {"type": kind, "vocab": vocab, "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    suffix = rng.choice([None, "", "</w>"])
    merges, rows = set(), []
    for left in vocab:
        for right in vocab:
            if left + right in vocab and rng.random() < 0.7 and not left.startswith("<") and (left, right) not in merges:
                merges.add((left, right))
                rows.append([left, right])
    rng.shuffle(rows)
    return {"type": kind, "dropout": None, "unk_token": rng.choice([None, "<unk>"]), "continuing_subword_prefix": None,
            "end_of_word_suffix": suffix, "fuse_unk": rng.random() < 0.5, "byte_fallback": bool(byte_tokens),
            "ignore_merges": rng.random() < 0.2, "vocab": vocab, "merges": rows}


def random_tokenizer(rng):
    added = []
    for content in rng.sample([c for c in CONTENTS if c not in ("\u00e9", "e\u0301", "caf\u00e9", "<\u00e9>", "a", "1")], rng.randint(0, 4)):
        flags = {f: rng.random() < 0.3 for f in ("single_word", "lstrip", "rstrip", "special")}
        added.append({"id": 0, "content": content, "normalized": False, **flags})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "post_processor": None,
            "normalizer": rng.choice([None, normalizer(rng), normalizer(rng)]),
            "pre_tokenizer": rng.choice([None, pre_tokenizer(rng), pre_tokenizer(rng)]),
            "decoder": rng.choice([None, decoder(rng), decoder(rng)]), "model": model(rng)}


def described(config):
    return {k: v for k, v in config.items() if k != "model"} | {"type": config["model"]["type"]}


def expected(reference, text):
    """The ids; nothing when the reference panics, or `error`."""
    try:
        return reference_ids(reference, text, False)
    except Exception:
        return "error"


@pytest.mark.timeout(120 + string_count(0) // 20)
@pytest.mark.parametrize("group", range(4))
def test_random_tokenizers(tmp_path, group):
    compared = 0
    for seed in seeds(group, 60):
        rng = random.Random(seed)
        config = random_tokenizer(rng)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(config))
        reference = Tokenizer.from_str(json.dumps(config))
        texts = [random_text(rng) + rng.choice(["", "\uff21\uff11", "\u2460"]) for _ in range(80)]
        sequences = []
        for text, answer in zip(texts, run(path, [{"text": t} for t in texts])):
            ids = expected(reference, text)
            if ids == "error":
                assert "error" in answer, (seed, text, answer, described(config))
            elif ids is not None:
                assert answer.get("ids") == ids, (seed, text, [reference.id_to_token(i) for i in ids], answer, described(config))
                sequences.append(ids)
                compared += 1
        limit = reference.get_vocab_size() + 5
        sequences += [[rng.randrange(limit) for _ in range(rng.randint(0, 20))] for _ in range(40)]
        for ids, answer in zip(sequences, run(path, [{"ids": ids} for ids in sequences], "--decode")):
            try:
                text = reference.decode(ids, skip_special_tokens=False)
            except BaseException:  # Strip panics on short tokens
                continue
            assert answer["text"] == text, (seed, ids, described(config))
            if "ByteFallback" not in json.dumps(config["decoder"]) or "\ufffd" not in text:
                assert "".join(answer["deltas"]) == text, (seed, ids, described(config))
    assert compared > 3000
