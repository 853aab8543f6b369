"""Fields of a request that only some servers of the token route know."""

import pytest
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 1}
RUST = ["rust-0.33", "rust-0.32"]


@pytest.fixture
def start(mock_engine, serve):
    def factory(flavor, *flags):
        engine = mock_engine("--speedup-ratio", "0", "--vocab-size", "2612", *flags, model="demo",
                             backend="vllm-http", flavor=flavor)
        return engine, serve([engine], backend="vllm-http", model_path=FOLDER)

    return factory


def sampling(engine):
    """Of what was generated; probes are refused."""
    return [request["sampling"] for request in engine.requests() if request["refusal"] is None]


def refused(server, **fields):
    """The field that a refusal names."""
    answer = server.post("/v1/completions", {**PROMPT, **fields})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["param"]


@pytest.mark.parametrize("flavor", RUST)
def test_bad_words_arrive_as_token_ids(start, launcher, flavor):
    engine, server = start(flavor)
    answer = server.post("/v1/completions", {**PROMPT, "bad_words_token_ids": [[5, 6], [7]]})
    assert answer.status_code == 200, answer.text
    assert sampling(engine)[-1]["bad_words_token_ids"] == [[5, 6], [7]]
    answer = server.post("/v1/completions", {**PROMPT, "bad_words": ["one"]})
    assert answer.status_code == 200, answer.text
    one = launcher.run_lines("tokenize", "--model", FOLDER, lines=[{"text": "one"}])[0]["ids"]
    assert one in sampling(engine)[-1]["bad_words_token_ids"]
    assert refused(server, logit_bias={"7": 1}) == "logit_bias"
    assert len(sampling(engine)) == 2


def test_the_python_server_takes_biases_and_no_ids_of_bad_words(start):
    engine, server = start("python-0.32")
    answer = server.post("/v1/completions", {**PROMPT, "logit_bias": {"7": -3.5}})
    assert answer.status_code == 200, answer.text
    assert sampling(engine)[-1]["logit_bias"] == {"7": -3.5}
    for field, value in (("bad_words", ["one"]), ("bad_words_token_ids", [[5]])):
        assert refused(server, **{field: value}) == "bad_words_token_ids"
    assert len(sampling(engine)) == 1


def test_bad_words_need_a_server_that_knows_them(start):
    engine, server = start("rust-0.33", "--without", "bad-words-token-ids")
    assert refused(server, bad_words_token_ids=[[5]]) == "bad_words_token_ids"
    assert sampling(engine) == []
