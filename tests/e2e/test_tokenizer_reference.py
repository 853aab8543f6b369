"""Ids and text of `fairlead tokenize` against the reference library on the same tokenizer files.

What no package ships is in test_tokenizer_trained.py. `make tokenizers` fetches all files and compares on more texts.
"""

import json
import random
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from fairlead import binary_path
from fairlead.tokenizer_differences import compare_ids, compare_texts, decode_sequences, enough, matches_but_for_bytes
from fairlead.tokenizer_texts import Texts, string_count, tokenizer_rng
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "tests" / ".assets"
REQUIRED = ["qwen3", "llama2"]
OPTIONAL = ["llama3", "llama3_1", "gpt4o", "deepseek_v3", "gptoss", "gpt35turbo", "gemma3", "gemini", "claude", "minilm"]
COUNT = string_count(3000)
pytestmark = pytest.mark.timeout(300 + COUNT // 10)


def run(model, requests, decode=False):
    command = [binary_path(), "tokenize", "--model", model] + (["--decode"] if decode else [])
    text = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, timeout=600, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]
    assert len(answers) == len(requests)
    return answers


@pytest.fixture(scope="module", params=REQUIRED + OPTIONAL)
def model(request):
    folder = ASSETS / request.param
    if not (folder / "tokenizer.json").exists():
        if request.param in REQUIRED:
            pytest.fail(f"{folder} is missing: run tools/fetch_test_assets.sh")
        pytest.skip(f"{folder} is not fetched (tools/fetch_test_assets.sh {request.param})")
    return folder


@pytest.fixture(scope="module")
def reference(model):
    return Tokenizer.from_file(str(model / "tokenizer.json"))


def all_planes():
    """Every scalar value once, in blocks, alone and between letters, digits and spaces. In a short run few of the planes
    in which every character is like its neighbours."""
    texts = []
    for start in [*range(0, 0x34000, 0x400), 0xE0000, *range(0x34000, 0x110000, 0x400 if COUNT >= 10_000 else 0x7400)]:
        block = [chr(c) for c in range(start, start + 0x400) if not 0xD800 <= c < 0xE000]
        if block:
            texts.append("".join(block))
            texts.append(" ".join(block))
            texts.append("".join(f"a{c}b{c}1" for c in block[:: 1 if start < 0x20000 else 37]))
    return texts


HANDMADE = [
    "", " ", "  ", "\n", " \n", "\n ", "\r\n\r\n", "\t\tx", "a  b   c    d", "x \n y", "x\n\n\n  y", "   \n\n  ",
    "\u00a0\u2003x \u3000 y\u2028z\u0085", "trailing spaces   ", "trailing newline \n",
    "I'm you're he's we've I'll I'd can't IT'S YOU'RE 'S'T 'Re 'Ve '\u017f '\u017ft 'LL'm",
    "'s 't'd ''s ' s '1", "O'Neil's rock'n'roll d'\u00e9t\u00e9",
    "12345678901234567890", "1,234.56 3.14e-10 0x1F \u0661\u0662\u0663\u0664 \u00bd\u2167\u3007 \U0001d7d8\U0001d7d9",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n\tpass\n", "<div class=\"a\">&nbsp;</div>",
    "!!!???...;;;---___===+++", "$$$ \u20ac\u00a3 \u2192\u2190 \u2200x\u2208\u211d", "https://example.com/a?b=c&d=e#f",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u3053\u3093\u306b\u3061\u306f\u4e16\u754c\u3002\uc548\ub155\ud558\uc138\uc694 \ud55c\uad6d\uc5b4",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd "
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "e\u0301 a\u030a o\u0308\u0304 \u1e9b\u0323 \u212b \u2126 \u0344 \u0958 \u0f77 \ufb1d \U0001d15e \u1100\u1161\u11a8 "
    "\uac00\u11a8 \u0345\u0316x\u0327\u0301\u0316\u0334", "\u0301\u0316 leading marks", "q\u0307\u0323 q\u0323\u0307",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f \U0001fae8",
    "\x00\x01\x7f\u200b\ufeff\ufffd\ufffe\U0010ffff\ue000\U000f0000", "\u1c89\u1c8a \U00010d50\U00010d70 \ua7cb\ua7da",
    "a" * 3000, "ab" * 5000, "\u4e2d" * 2000, "\u00e9" * 2000, " " * 3000, "\n" * 2000, " \n" * 1000, "=" * 3000, "1" * 999,
    "The quick brown fox jumps over the lazy dog. " * 50, "x" * 100_000, "q7Z" * 30_000, "\u6f22\u5b57" * 20_000,
]


def specials(reference):
    contents = [t.content for t in reference.get_added_tokens_decoder().values()]
    rng = random.Random(5)
    texts = ["".join(contents[:300]), " ".join(contents[:300]), "\n".join(contents[-300:])]
    for content in contents[:40]:
        texts += [f"x{content}y", f" {content} ", content[:-1], content[1:], content[:-1] + content, content.upper()]
    for _ in range(300):
        parts = [rng.choice(contents) if rng.random() < 0.4 else rng.choice(HANDMADE[:40]) for _ in range(6)]
        texts.append("".join(parts))
    return texts


def some_texts(reference, count, seed=3):
    texts = Texts(random.Random(seed), [t.content for t in reference.get_added_tokens_decoder().values()])
    return [texts.string() for _ in range(count)]


def check_encode(model, reference, texts, add_special_tokens=True):
    answers = run(model, [{"text": t, "add_special_tokens": add_special_tokens} for t in texts])
    expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=add_special_tokens)]
    for text, answer, ids in zip(texts, answers, expected):
        assert answer.get("ids") == ids, ascii(text[:200])
    return expected


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_handmade_texts(model, reference, add_special_tokens):
    check_encode(model, reference, HANDMADE, add_special_tokens)


def test_every_scalar_value(model, reference):
    check_encode(model, reference, all_planes())


def test_special_tokens_in_text(model, reference):
    check_encode(model, reference, specials(reference))


def without_length_rules(model, tmp_path):
    """The file, or a copy of it that neither cuts nor fills texts."""
    config = json.loads((model / "tokenizer.json").read_text())
    if not config["truncation"] and not config["padding"]:
        return model
    (tmp_path / "tokenizer.json").write_text(json.dumps(config | {"truncation": None, "padding": None}))
    return tmp_path


@pytest.mark.parametrize("add_special_tokens", [True, False])
def test_ids_of_generated_texts(model, reference, tmp_path, add_special_tokens):
    rng = tokenizer_rng(f"{model.name} {add_special_tokens}")
    texts = Texts(rng, [t.content for t in reference.get_added_tokens_decoder().values()])
    differences, compared = compare_ids(model, reference, texts.take(COUNT // 2), add_special_tokens)
    differences.check()
    enough(compared, COUNT // 2)
    whole = without_length_rules(model, tmp_path)
    if whole != model:
        differences, compared = compare_ids(whole, Tokenizer.from_file(str(whole / "tokenizer.json")), texts.take(COUNT // 2), add_special_tokens)
        differences.check()
        enough(compared, COUNT // 2)


def test_texts_of_ids(model, reference):
    rng = tokenizer_rng(f"{model.name} decode")
    texts = Texts(rng, [t.content for t in reference.get_added_tokens_decoder().values()])
    sequences = islice(decode_sequences(reference, rng, (texts.string() for _ in iter(int, 1))), COUNT)
    differences, compared = compare_texts(model, reference, sequences, rng, "ByteFallback" in str(reference.decoder))
    differences.check()
    enough(compared, COUNT)


def test_source_files(model, reference):
    files = [p for p in sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "src").rglob("*.?pp"))]
    check_encode(model, reference, [p.read_text()[:200_000] for p in files[:80]])


@pytest.mark.parametrize("skip_special_tokens", [True, False])
def test_decode_and_deltas(model, reference, skip_special_tokens):
    rng = random.Random(7)
    size = reference.get_vocab_size(with_added_tokens=True)
    sequences = [e.ids for e in reference.encode_batch(HANDMADE[:45] + specials(reference)[:60] + some_texts(reference, 600))]
    sequences += [[rng.randrange(size + 40) for _ in range(rng.randint(1, 30))] for _ in range(1000)]
    # Ids of single bytes, so that characters are cut and broken in every way.
    byte_ids = [i for i in range(size) if (t := reference.id_to_token(i)) and len(t) == 1]
    sequences += [[rng.choice(byte_ids) for _ in range(rng.randint(1, 12))] for _ in range(2000)]
    broken = reference.encode("\U0001f468\u4e2d\u00e9\U0001fae8\u0f77" * 3, add_special_tokens=False).ids
    sequences += [rng.sample(broken, len(broken)) for _ in range(500)] + [broken[i:] + broken[:i] for i in range(len(broken))]
    requests = [{"ids": ids, "skip_special_tokens": skip_special_tokens} for ids in sequences]
    byte_fallback = json.loads((model / "tokenizer.json").read_text())["model"].get("byte_fallback", False)
    for ids, answer in zip(sequences, run(model, requests, decode=True)):
        text = reference.decode(ids, skip_special_tokens=skip_special_tokens)
        assert answer["text"] == text, ids
        deltas = answer["deltas"]
        assert len(deltas) == len(ids) + 1, ids
        joined = "".join(deltas)
        if byte_fallback and joined != text:
            # Of a run with bytes of no character a stream keeps the characters.
            assert matches_but_for_bytes(joined, text, whole=True), ids
        else:
            assert joined == text, ids
        # No piece may show a character whose bytes are still coming.
        for i in range(min(len(ids), 24)):
            shown = "".join(deltas[: i + 1])
            now = reference.decode(ids[: i + 1], skip_special_tokens=skip_special_tokens)
            if byte_fallback and "\ufffd" in now:
                assert shown.rstrip("\ufffd") == "" or matches_but_for_bytes(shown, now), (ids, i)
            else:
                assert now.startswith(shown) and now[len(shown) :] in ("", "\ufffd"), (ids, i)


def test_prompt_that_ends_inside_a_character(model, reference):
    sequences = []
    for text in ["x\U0001f468y", "\u4e2d\u6587 \U0001fae8", "a\u0f77b\U0001d15ec\U00020bb7"]:
        ids = reference.encode(text, add_special_tokens=False).ids
        text = reference.decode(ids, skip_special_tokens=False)
        sequences += [(text, ids[:cut], ids[cut:]) for cut in range(len(ids) + 1)]
    answers = run(model, [{"prompt_ids": p, "ids": c} for _, p, c in sequences], decode=True)
    for (text, prompt, _), answer in zip(sequences, answers):
        whole = reference.decode(prompt, skip_special_tokens=False).rstrip("\ufffd")  # what the prompt itself shows
        assert "".join(answer["deltas"]) == text[len(whole) :], (text, prompt)


def test_ids_equal_those_of_transformers(model):
    """What a server built on transformers would send to the engine, special tokens of the config included."""
    if model.name != "qwen3":
        pytest.skip("the library's own model classes change what other packages' files mean")
    from transformers import AutoTokenizer

    library = AutoTokenizer.from_pretrained(str(model))
    texts = HANDMADE[:45] + some_texts(Tokenizer.from_file(str(model / "tokenizer.json")), 500) + ["<|im_start|>user\nhi<|im_end|>\n<think>\n\n</think>"]
    for text, answer in zip(texts, run(model, [{"text": t} for t in texts])):
        assert answer.get("ids") == library(text)["input_ids"], ascii(text)


def test_bad_lines_do_not_end_the_command(model):
    command = [binary_path(), "tokenize", "--model", model]
    lines = ["{", "[]", "1", "{}", '{"text": 1}', '{"text": "a", "add_special_tokens": 1}', '{"text": "\\ud800"}',
             '{"text": "\xff"}', ""]
    text = b"\n".join(line.encode("latin-1") for line in lines) + b'\n{"text": "ok"}\n'
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, timeout=60, check=True)
    answers = [json.loads(line) for line in done.stdout.decode().rstrip("\n").split("\n")]
    assert len(answers) == len(lines) + 1
    assert all(list(answer) == ["error"] for answer in answers[:-1]), answers
    assert "ids" in answers[-1]
    bad = [{}, {"ids": "x"}, {"ids": [-1]}, {"ids": [1.5]}, {"ids": [1], "prompt_ids": 3}, {"ids": [2**32]}]
    assert all(list(answer) == ["error"] for answer in run(model, bad, decode=True))
