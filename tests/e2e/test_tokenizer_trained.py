"""Tokenizers trained with the reference library, one for each kind of component that no shipped file has, against it."""

import base64
import json
import random
from itertools import islice

import pytest
from fairlead.tokenizer_differences import compare_ids, compare_texts, decode_sequences, enough
from fairlead.tokenizer_texts import ROOT, Texts, prose, string_count, tokenizer_rng
from tokenizers import AddedToken, Tokenizer, trainers

COUNT = string_count()
pytestmark = pytest.mark.timeout(300 + COUNT // 10)
CHARSMAPS = ROOT / "tests/.assets/charsmaps"
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,'-_ \u2581\u00e9\u4e2d\u3042\u0301"
BYTES = [f"<0x{b:02X}>" for b in range(256)]

# Components as a tokenizer.json writes them.
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
PLAIN_LEVEL = {**LEVEL, "use_regex": False}
WHITESPACE = {"type": "Whitespace"}
NFC, NFD, NFKC, NFKD = ({"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD"))
LOWER, STRIP_ACCENTS, NMT = ({"type": name} for name in ("Lowercase", "StripAccents", "Nmt"))


def steps(*components):
    kind = "decoders" if components[0]["type"] in DECODERS else "pretokenizers" if components[0]["type"] in PRE_TOKENIZERS else "normalizers"
    return {"type": "Sequence", kind: list(components)}


DECODERS = {"Fuse", "ByteFallback", "BPEDecoder", "CTC"}
PRE_TOKENIZERS = {"Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "UnicodeScripts", "Metaspace", "FixedLength", "CharDelimiterSplit",
                  "BertPreTokenizer"}


def metaspace(scheme="always", split=True, replacement="\u2581"):
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": scheme, "split": split}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def replace(pattern, content, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def strip(left, right):
    return {"type": "Strip", "strip_left": left, "strip_right": right}


def bert(clean=True, chinese=True, accents=None, lower=True):
    return {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}


def precompiled(name):
    path = CHARSMAPS / f"{name}.bin"  # brought by tools/fetch_test_assets.sh; read when a test needs it
    return {"type": "Precompiled", "precompiled_charsmap": path}


def with_charsmaps(component):
    """The component with the contents of its charsmaps in the place of their paths."""
    text = json.dumps(component, default=lambda path: base64.b64encode(path.read_bytes()).decode())
    return json.loads(text)


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


def word_piece_decoder(cleanup):
    return {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}


def around(kind, **more):
    return {"type": kind, "sep": ["</s>", 1], "cls": ["<s>", 2], **more}


BPE_UNK = {"unk_token": "<unk>"}
BPE_FALLBACK = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
SPACES = replace(" ", "\u2581", "String")
UNSPACED = [replace("\u2581", " ", "String"), {"type": "ByteFallback"}, {"type": "Fuse"}]
LLAMA_DECODER = {"type": "Sequence", "decoders": [*UNSPACED, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# name: model, its options, normalizer, pre-tokenizer, decoder, post-processor
KINDS = {
    "word_level": ("WordLevel", {}, None, WHITESPACE, None, around("BertProcessing")),
    "word_level_lowercase": ("WordLevel", {}, steps(NFD, LOWER, STRIP_ACCENTS), {"type": "WhitespaceSplit"}, None, None),
    "word_level_ctc": ("WordLevel", {}, LOWER, split("", kind="String"), {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}, None),
    "word_level_scripts": ("WordLevel", {}, NFKD, {"type": "UnicodeScripts"}, None, None),
    "unigram_t5": ("Unigram", {}, precompiled("nmt_nfkc"), metaspace(), metaspace(), around("RobertaProcessing", trim_offsets=True, add_prefix_space=True)),
    "unigram_nfkc": ("Unigram", {}, steps(precompiled("nfkc"), strip(False, True), replace(" {2,}", "\u2581")), metaspace("first"), metaspace("first"), None),
    "unigram_case_folded": ("Unigram", {}, precompiled("nfkc_cf"), metaspace("never"), metaspace("never"), None),
    "unigram_nmt_case_folded": ("Unigram", {}, precompiled("nmt_nfkc_cf"), steps({"type": "WhitespaceSplit"}, metaspace()), metaspace(), None),
    "unigram_bytes": ("Unigram", {"byte_fallback": True}, steps(SPACES), None, {"type": "Sequence", "decoders": UNSPACED}, None),
    "unigram_whole": ("Unigram", {}, NFKC, metaspace("first", split=False), metaspace("first", split=False), None),
    "unigram_nmt": ("Unigram", {}, steps(NMT, NFKC), metaspace("always", True, "_"), metaspace("always", True, "_"), None),
    "bpe_suffix": ("BPE", {**BPE_UNK, "end_of_word_suffix": "</w>"}, steps(NFC, replace(r"\s+", " "), LOWER),
                   steps(split(CLIP, "Removed", True), PLAIN_LEVEL), {"type": "BPEDecoder", "suffix": "</w>"},
                   around("RobertaProcessing", trim_offsets=False, add_prefix_space=False)),
    "bpe_suffix_words": ("BPE", {**BPE_UNK, "end_of_word_suffix": "</w>", "fuse_unk": True}, bert(lower=False), {"type": "BertPreTokenizer"},
                         {"type": "BPEDecoder", "suffix": "</w>"}, None),
    "bpe_prefix": ("BPE", {**BPE_UNK, "continuing_subword_prefix": "##"}, bert(accents=False), {"type": "BertPreTokenizer"}, word_piece_decoder(False),
                   around("BertProcessing")),
    "bpe_prefix_and_suffix": ("BPE", {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}, NFKC, WHITESPACE, word_piece_decoder(True), None),
    "bpe_without_unk": ("BPE", {}, None, WHITESPACE, None, None),
    "bpe_unk": ("BPE", {**BPE_UNK, "fuse_unk": False}, strip(True, False), {"type": "WhitespaceSplit"}, {"type": "Fuse"}, None),
    "bpe_fused_unk": ("BPE", {**BPE_UNK, "fuse_unk": True}, strip(True, True), {"type": "CharDelimiterSplit", "delimiter": " "}, None, None),
    "bpe_bytes": ("BPE", BPE_FALLBACK, steps({"type": "Prepend", "prepend": "\u2581"}, SPACES), None, LLAMA_DECODER, None),
    "bpe_some_bytes": ("BPE", {**BPE_FALLBACK, "fuse_unk": False, "bytes": 150}, SPACES, metaspace("always", False), LLAMA_DECODER, None),
    "bpe_bytes_by_words": ("BPE", BPE_FALLBACK, None, metaspace("first"), {"type": "Sequence", "decoders": UNSPACED}, None),
    "bpe_ignore_merges": ("BPE", {**BPE_UNK, "ignore_merges": True}, None, metaspace("never"), metaspace("never"), None),
    "level_gpt2": ("level", {}, None, {**LEVEL, "add_prefix_space": True}, LEVEL, {**LEVEL, "trim_offsets": False}),
    "level_normalizer": ("level", {}, steps(NFKC, {"type": "ByteLevel"}), split(r"\u0120?[^\u0120]+".encode().decode("unicode_escape")), LEVEL, None),
    "level_kimi": ("level", {}, None, steps(split(KIMI), PLAIN_LEVEL), LEVEL, None),
    "level_digits": ("level", {}, NFD, steps(digits(True), LEVEL), LEVEL, None),
    "level_digit_runs": ("level", {}, steps(NFKD, STRIP_ACCENTS), steps(digits(False), punctuation("Contiguous"), PLAIN_LEVEL), LEVEL, None),
    "level_some_bytes": ("level", {**BPE_UNK, "alphabet": 120}, None, LEVEL, LEVEL, None),
    "level_look_behind": ("level", {}, NFC, steps(split(r"(?<=\p{Ll})(?=\p{Lu})|(?<!\d)\d{3}", "MergedWithNext"), PLAIN_LEVEL), LEVEL, None),
    "level_possessive": ("level", {}, None, steps(split(r"\p{L}++\p{M}*+|\p{N}{1,3}+|\s++(?!\S)|\s?+", "Contiguous"), PLAIN_LEVEL), LEVEL, None),
    "level_word_bounds": ("level", {}, None, steps(split(r"\b\w", "MergedWithPrevious"), split(r"\B'|\b", "Isolated"), PLAIN_LEVEL), LEVEL, None),
    "level_classes": ("level", {}, None, steps(split(r"[\w&&[^\d_]&&\P{Han}]+|[[:punct:]&&[^'\-]]", "Removed"), LEVEL), LEVEL, None),
    "level_literal": ("level", {}, LOWER, steps(split("the", "MergedWithPrevious", kind="String"), split(" ", "MergedWithNext", True, "String"), LEVEL), LEVEL, None),
    "level_fixed": ("level", {}, None, steps({"type": "FixedLength", "length": 5}, PLAIN_LEVEL), LEVEL, None),
    "word_piece_bert": ("WordPiece", {}, bert(), {"type": "BertPreTokenizer"}, word_piece_decoder(True), around("BertProcessing")),
    "word_piece_cased": ("WordPiece", {}, bert(lower=False, accents=True, chinese=False), {"type": "BertPreTokenizer"}, word_piece_decoder(False), None),
    "word_piece_dirty": ("WordPiece", {"max_input_chars_per_word": 12}, bert(clean=False, accents=False), steps(WHITESPACE, punctuation("Isolated")),
                         word_piece_decoder(True), None),
    "word_piece_removed": ("WordPiece", {}, bert(clean=False, chinese=True, lower=False), steps({"type": "WhitespaceSplit"}, punctuation("Removed")), None, None),
    "word_piece_before": ("WordPiece", {}, LOWER, steps({"type": "WhitespaceSplit"}, punctuation("MergedWithPrevious")), word_piece_decoder(True), None),
    "word_piece_behind": ("WordPiece", {}, STRIP_ACCENTS, steps({"type": "WhitespaceSplit"}, punctuation("MergedWithNext"), digits(False)),
                          steps({"type": "Fuse"}, replace(r"##|\s+$", "")), None),
}
ADDED = [AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True, special=True), AddedToken("<lr>", lstrip=True, rstrip=True, normalized=False),
         AddedToken("<w>", single_word=True), AddedToken("word", single_word=True, normalized=False), AddedToken("two words", normalized=True),
         AddedToken("<over", normalized=False), AddedToken("<over|lap>", normalized=False, special=True), AddedToken("lap>", normalized=False),
         AddedToken("Caf\u00c9", normalized=True), AddedToken("  ", normalized=False), AddedToken("\u2581\u2581", normalized=True), AddedToken("\n\n", normalized=False),
         AddedToken("<|end of|>", special=True, normalized=False), AddedToken("\u00bdx", normalized=True)]


def trained(name):
    """The tokenizer.json of a kind, of a vocabulary learnt from the project's own texts."""
    kind, options, normalizer, pre_tokenizer, decoder, post_processor = KINDS[name]
    options = dict(options)
    specials = ["<unk>", "</s>", "<s>", "<pad>"]
    byte_tokens = BYTES[256 - options.pop("bytes", 256) :] if options.get("byte_fallback") else []
    alphabet = options.pop("alphabet", 256)
    if kind in ("BPE", "level"):
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                 "byte_fallback": False, "ignore_merges": False, "vocab": {}, "merges": [], **options}
        letters = [*ALPHABET]
        if kind == "level":
            letters = sorted(chr(b) if 33 <= b < 127 or 161 <= b < 173 or b > 173 else chr(256 + n) for n, b in enumerate(range(256)))[:alphabet]
        trainer = trainers.BpeTrainer(vocab_size=1500, show_progress=False, special_tokens=specials, limit_alphabet=300, initial_alphabet=letters,
                                      continuing_subword_prefix=options.get("continuing_subword_prefix") or "",
                                      end_of_word_suffix=options.get("end_of_word_suffix") or "")
    elif kind == "Unigram":
        model = {"type": kind, "unk_id": 0, "vocab": [["<unk>", 0.0]], "byte_fallback": False, **options}
        trainer = trainers.UnigramTrainer(vocab_size=1500, show_progress=False, special_tokens=specials, unk_token="<unk>", initial_alphabet=[*ALPHABET])
    elif kind == "WordPiece":
        model = {"type": kind, "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": {"<unk>": 0}, **options}
        trainer = trainers.WordPieceTrainer(vocab_size=1500, show_progress=False, special_tokens=specials, limit_alphabet=300)
    else:
        model = {"type": kind, "unk_token": "<unk>", "vocab": {"<unk>": 0}}
        trainer = trainers.WordLevelTrainer(vocab_size=3000, show_progress=False, special_tokens=specials)
    config = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": with_charsmaps(normalizer), "pre_tokenizer": pre_tokenizer,
              "post_processor": post_processor, "decoder": decoder, "model": model}
    tokenizer = Tokenizer.from_str(json.dumps(config))
    lines = prose()
    tokenizer.train_from_iterator(lines[:: max(1, len(lines) // (300 if kind == "Unigram" else 1500))], trainer)
    tokenizer.add_tokens(ADDED)
    config = json.loads(tokenizer.to_str())
    vocabulary = config["model"]["vocab"]
    for spelling in byte_tokens:
        if kind == "Unigram":
            vocabulary.append([spelling, -12.0])
        else:
            vocabulary[spelling] = len(vocabulary)
    for number, token in enumerate(config["added_tokens"]):  # written ids count for nothing
        token["id"] += number % 3 * 1000
    return json.dumps(config)


@pytest.mark.parametrize("name", KINDS)
def test_ids_and_texts(tmp_path, name):
    path = tmp_path / "tokenizer.json"
    path.write_text(trained(name))
    reference = Tokenizer.from_file(str(path))
    rng = tokenizer_rng(name)
    texts = Texts(rng, [token.content for token in ADDED] + ["<s>", "</s>", "<unk>", "##", "</w>"])
    differences, compared = compare_ids(path, reference, texts.take(COUNT), add_special_tokens=rng.random() < 0.5)
    differences.check()
    enough(compared, COUNT)
    strings = (texts.string() for _ in iter(int, 1))
    sequences = islice(decode_sequences(reference, rng, strings), COUNT)
    differences, compared = compare_texts(path, reference, sequences, rng, "ByteFallback" in json.dumps(KINDS[name][4]))
    differences.check()
    enough(compared, COUNT)
