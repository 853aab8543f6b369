"""Truncation and padding of a tokenizer.json, which `fairlead tokenize` applies, against the reference library."""

import json
import random

import pytest
from fairlead.tokenizer_texts import string_count, tokenizer_rng
from test_tokenizer_components import random_text, random_tokenizer, run
from tokenizers import Tokenizer

TOKENIZERS = max(40, string_count() // 20)
LARGE = [2**31, 2**32, 2**63, 2**64 - 1]


def random_truncation(rng):
    rule = {"max_length": rng.choice([*range(12), 20, 40, rng.choice(LARGE)]), "strategy": rng.choice(["LongestFirst", "LongestFirst", "OnlyFirst", "OnlySecond"]),
            "stride": rng.choice([0, 0, 0, 1, 2, 5, rng.choice(LARGE)])}
    return rule | rng.choice([{}, {"direction": "Right"}, {"direction": "Left"}])


def random_padding(rng):
    rule = {"strategy": rng.choice(["BatchLongest", {"Fixed": rng.choice([0, 1, 7, 30, 128])}]), "direction": rng.choice(["Left", "Right"]),
            "pad_id": rng.choice([0, 3, 2**32 - 1]), "pad_type_id": 1, "pad_token": "[PAD]"}
    return rule | rng.choice([{}, {"pad_to_multiple_of": rng.choice([None, 0, 1, 2, 8, 50])}])


def encoded(reference, request):
    try:
        return reference.encode(request["text"], add_special_tokens=request["add_special_tokens"]).ids
    except BaseException as error:  # a stride that is too large is a panic, a second text that is missing an exception
        if isinstance(error, Exception) or "PanicException" in type(error).__name__:
            return "stride" if "stride" in str(error) else "error" if isinstance(error, Exception) else "panic"
        raise


@pytest.mark.timeout(300 + TOKENIZERS)
def test_ids_of_cut_and_filled_texts(tmp_path):
    rng = tokenizer_rng("lengths")
    path = tmp_path / "tokenizer.json"
    seen = {"ids": 0, "error": 0, "stride": 0, "panic": 0}
    for _ in range(TOKENIZERS):
        config = random_tokenizer(random.Random(rng.randrange(1 << 30)))
        config["truncation"] = rng.choice([None, random_truncation(rng), random_truncation(rng)])
        config["padding"] = rng.choice([None, random_padding(rng)])
        path.write_text(json.dumps(config))
        reference = Tokenizer.from_str(json.dumps(config))
        requests = [{"text": random_text(rng), "add_special_tokens": rng.random() < 0.7} for _ in range(25)]
        for request, answer in zip(requests, run(path, requests)):
            ids = encoded(reference, request)
            seen[ids if isinstance(ids, str) else "ids"] += 1
            if ids != "panic":  # of added tokens that overlap
                expected = "error" if isinstance(ids, str) else ids
                assert answer.get("ids", "error") == expected, (request, answer, config["truncation"], config["padding"], config["post_processor"])
    assert seen["ids"] > TOKENIZERS * 15 and seen["error"] > 0 and seen["stride"] > 0, seen
