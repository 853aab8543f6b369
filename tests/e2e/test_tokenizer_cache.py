"""The ids of texts that come again, in any order and company, against the reference library: what was kept must not change them."""

import json
import random

import pytest
import test_tokenizer_components
import test_tokenizer_general
from test_tokenizer_general import expected
from test_tokenizer_components import CONTENTS, run
from tokenizers import Tokenizer

OFTEN = ["a", "b", "c", "ab", "x", " ", " ", "\n", "1", "23", "-", ".", "_", "A", "B", "s", "'s", "\u00e9", "e\u0301", "\u4e2d", "\u2581"]


def repeated_texts(rng, config):
    """Texts made of the same few long parts, with added tokens and other things between them."""
    parts = ["".join(rng.choices(OFTEN, k=rng.randint(400, 700))) for _ in range(4)] + [" " * 600, "a" * 600]
    between = [token["content"] for token in config["added_tokens"]] * 3 + CONTENTS[:4] + [" ", "\u2581", ""]
    texts = []
    for _ in range(8):
        text = rng.choice([*between, ""])
        for _ in range(rng.randint(1, 3)):
            text += rng.choice(parts) + rng.choice(between)
        texts.append(text)
    return rng.choices(texts, k=24)


@pytest.mark.parametrize("kind", [test_tokenizer_components, test_tokenizer_general])
def test_texts_that_come_again(tmp_path, kind):
    compared = 0
    for seed in range(1000, 1024):
        rng = random.Random(seed)
        config = kind.random_tokenizer(rng)
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(config))
        reference = Tokenizer.from_str(json.dumps(config))
        texts = repeated_texts(rng, config)
        known = {text: expected(reference, text) for text in texts}
        for text, answer in zip(texts, run(path, [{"text": text, "add_special_tokens": False} for text in texts])):
            if known[text] == "error":
                assert "error" in answer, (seed, text, answer)
            elif known[text] is not None:
                assert answer.get("ids") == known[text], (seed, text, answer)
                compared += 1
    assert compared > 350
