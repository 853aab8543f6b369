"""Each normalizer and pre-tokenizer before a model that shows its every byte and bound, against the reference library.

A trained vocabulary does not know most characters, so that what became of them is not seen. Here the ids are the bytes of
the text, and a space that ByteLevel puts before each piece shows where pieces begin.
"""

import functools
import json

import pytest
from fairlead.tokenizer_differences import compare_ids, enough
from fairlead.tokenizer_texts import Texts, string_count, tokenizer_rng
from test_tokenizer_components import BEHAVIORS, PATTERNS, probe_characters, spelled
from test_tokenizer_trained import CLIP, KIMI, bert, digits, metaspace, precompiled, punctuation, replace, split, strip, with_charsmaps
from tokenizers import Tokenizer

COUNT = string_count(50)
ALL = COUNT >= 10_000
pytestmark = pytest.mark.timeout(300 + COUNT // 10)

NORMALIZERS = {
    **{name: {"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")},
    **{f"precompiled_{name}": precompiled(name) for name in ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf")},
    **{f"bert_{clean}_{chinese}_{accents}_{lower}": bert(clean, chinese, accents, lower) for clean, chinese, accents, lower in
       [(True, True, None, True), (True, False, False, True), (False, True, True, False), (False, False, True, True), (True, True, None, False),
        (False, False, False, False)]},
    **{f"strip_{left}_{right}": strip(left, right) for left, right in [(True, True), (True, False), (False, True), (False, False)]},
    **{f"replace_{number}": replace(regex, content) for number, (regex, content) in enumerate(
        [(r"\s+", " "), (r" {2,}", "\u2581"), (r"\p{Mn}", ""), (r"(?<=\p{L})\d", "#"), (r"x+|\bx", "-"), (r"\w\b", "|"), (r"[^\w\s]", ""), (r"(?i:ab)|\u00e9", "\u4e2d")])},
    "replace_text": replace("ab", "", "String"), "prepend": {"type": "Prepend", "prepend": "\u2581"},
    "stripped_accents": {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
    "lowered_twice": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "NFC"}, {"type": "Lowercase"}, strip(True, True)]},
}
PRE_TOKENIZERS = {
    **{name: {"type": name} for name in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts")},
    **{f"digits_{one}": digits(one) for one in (True, False)}, **{f"punctuation_{behavior}": punctuation(behavior) for behavior in BEHAVIORS},
    **{f"metaspace_{scheme}_{cut}": metaspace(scheme, cut) for scheme in ("first", "always", "never") for cut in (True, False)},
    **{f"delimiter_{c}": {"type": "CharDelimiterSplit", "delimiter": c} for c in ("-", "\u00e9")},
    **{f"length_{length}": {"type": "FixedLength", "length": length} for length in (1, 3, 7)},
    **{f"split_{number}": split(regex, BEHAVIORS[number % 5], number % 3 == 0) for number, regex in enumerate(
        [*PATTERNS, CLIP, KIMI, r"(?<=\p{Ll})(?=\p{Lu})", r"(?<!\d)\d{3}|(?<![\s])'", r"\p{L}++\p{M}*+|\p{N}{1,3}+|\s?+", r"\b\w|\B'", r"\B",
         r"[\w&&[^\d_]&&\P{Han}]+", r"[[:punct:]&&[^'\-]]", r"[[:^graph:]]+|[[:alnum:]]{2}", r"(?>a+|ab)c?", r"(?m:a.b)|^.|.$", r"\A.|.\z|\G1",
         r"(a|b)\1?", r"\h+|[^\h\n]", r"(?m-i:.)\w|(?-i:x)"])},
    "split_text": split(" a", "MergedWithNext", kind="String"), "split_nothing": split("", "Isolated", kind="String"),
}
COMPONENTS = {**{f"normalizer {name}": component for name, component in NORMALIZERS.items()},
              **{f"pre_tokenizer {name}": component for name, component in PRE_TOKENIZERS.items()}}


@functools.cache
def all_characters():
    """All but most of the planes in which each is like its neighbours: unassigned, or private."""
    points = (*range(0xD800), *range(0xE000, 0x34000), *range(0x34000, 0x110000, 37), *range(0xE0000, 0xE0400))
    return [chr(c) for c in points]


@functools.cache
def some_characters():
    return probe_characters()[::7]


def texts_of_every_character():
    """Characters, in a short run only some of those around which something changes, alone and between letters, digits, spaces and marks."""
    characters = all_characters() if ALL else some_characters()
    for start in range(0, len(characters), 512):
        block = characters[start : start + 512]
        yield "".join(block)
        yield " ".join(block)
        yield "".join(f"a{c}B{c}1{c}\u0301" for c in block)


@pytest.mark.parametrize("name", COMPONENTS)
def test_ids_are_the_bytes_of_what_comes_out(tmp_path, name):
    component = with_charsmaps(COMPONENTS[name])
    level = {"type": "ByteLevel", "add_prefix_space": name.startswith("pre"), "trim_offsets": True, "use_regex": False}
    pre_tokenizer = {"type": "Sequence", "pretokenizers": [component, level]} if name.startswith("pre") else level
    model = {"type": "BPE", "vocab": {spelled(bytes([b])): b for b in range(256)}, "merges": [], "dropout": None, "unk_token": None, "fuse_unk": False,
             "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False}
    config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "post_processor": None, "decoder": level, "model": model,
              "normalizer": None if name.startswith("pre") else component, "pre_tokenizer": pre_tokenizer}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(config))
    reference = Tokenizer.from_str(json.dumps(config))
    differences, _ = compare_ids(path, reference, texts_of_every_character())
    differences.check()
    texts = Texts(tokenizer_rng(name), ["ab", "\u2581", "  ", "--", "\u00e9-", "'s", "xx"])
    differences, compared = compare_ids(path, reference, texts.take(COUNT))
    differences.check()
    enough(compared, COUNT)
