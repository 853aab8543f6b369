"""What a client gets of a prefill and a decode engine is what one engine would have answered."""

import itertools
import json

import pytest
from fairlead import wait_until
from fairlead.families import FAMILIES, Family, Stream, body, complete, formula, request_id
from fairlead.pairs import Pools, serve
from wire import WireEngine

EOS = 2607  # of the model `demo`
BLOCK = 16


@pytest.fixture(scope="module", params=["vllm", "vllm-http", "sglang"])
def both(request, module_launcher):
    """Pools, and a frontend of one engine that does all."""
    family = Family(request.param)
    flags = ("--eos-token-id", EOS, "--no-enable-prefix-caching")
    alone = family.serve(module_launcher, [family.engine(module_launcher, *flags)])
    return Pools(family, module_launcher, flags=flags), alone


def beginning_with_eos():
    """The name of a request whose first token ends the generation."""
    names = (f"eos-{i}" for i in itertools.count())
    return next(name for name in names if formula(name, 1) == [EOS])


def said(answer):
    """The answer without what is new every time."""
    assert answer.status_code == 200, answer.text
    got = answer.json()
    got["usage"].pop("prompt_tokens_details", None)  # one engine alone does not tell when it was cut off
    return {key: got[key] for key in ("choices", "usage", "object", "model")}



FIELDS = {
    "plain": {},
    "logprobs": {"logprobs": 3},
    "logprob of the token alone": {"logprobs": 0},
    "prompt logprobs": {"prompt_logprobs": 2},
    "prompt and output logprobs": {"prompt_logprobs": 1, "logprobs": 2},
    "echo": {"echo": True, "logprobs": 1},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": 4, "presence_penalty": 0.5},
    "one token": {"max_tokens": 1},
    "one token with logprobs": {"max_tokens": 1, "logprobs": 2},
    "no token": {"max_tokens": 0, "echo": True},
}


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_W10_answers_are_those_of_one_engine(both, fields):
    pools, alone = both
    name = f"same-{sorted(fields)}"
    for prompt in ([5, 6, 7], list(range(300, 420))):
        asked = {"max_tokens": 9, "prompt": prompt, **fields}
        one = said(complete(alone, name, **asked))
        assert said(complete(pools.server, name, **asked)) == one
        if "prompt_logprobs" in fields or fields.get("echo"):
            continue  # whole answers only
        stream = Stream(pools.server, body(**asked), name).read_all()
        assert stream.done and not stream.errors
        assert stream.tokens == [token for choice in one["choices"] for token in choice["token_ids"]]
        stream.usage.pop("prompt_tokens_details", None)
        assert stream.usage == one["usage"]
    pools.expect_idle()


@pytest.mark.parametrize("fields", [{"logprobs": True, "top_logprobs": 2}, {"logprobs": True}, {"prompt_logprobs": 1}],
                         ids=["top logprobs", "logprobs", "prompt logprobs"])
def test_W10_chats_are_those_of_one_engine(both, fields):
    pools, alone = both
    chat = {"model": "demo", "messages": [{"role": "user", "content": "one two three"}], "ignore_eos": True,
            "max_tokens": 7, **fields}
    headers = {"request-id": request_id(f"chat-{sorted(fields)}")}
    one, two = (said(server.post("/v1/chat/completions", chat, headers=headers)) for server in (alone, pools.server))
    assert two == one
    if "logprobs" in fields:
        assert len(two["choices"][0]["logprobs"]["content"]) == 7
    pools.expect_idle()


def test_stop_conditions_count_from_the_first_token_on(both):
    pools, alone = both
    name = "stops"
    tokens = formula(name, 12)
    text = complete(alone, name, max_tokens=12).json()["choices"][0]["text"]
    cases = {
        "an id, first": {"stop_token_ids": [tokens[0]]},
        "an id, later": {"stop_token_ids": [tokens[4]]},
        "an id, not before": {"stop_token_ids": [tokens[0], tokens[5]], "min_tokens": 3},
        "a string, first": {"stop": text[:2]},
        "a string, later": {"stop": text[len(text) // 2:len(text) // 2 + 3]},
        "a string, kept": {"stop": text[len(text) // 2:len(text) // 2 + 3], "include_stop_str_in_output": True},
    }
    for what, fields in cases.items():
        one = said(complete(alone, name, max_tokens=12, **fields))
        assert one["choices"][0]["finish_reason"] == "stop", what
        assert said(complete(pools.server, name, max_tokens=12, **fields)) == one, what
        stream = Stream(pools.server, body(12, **fields), name).read_all()
        assert stream.finish_reasons == ["stop"], what
        assert stream.usage["completion_tokens"] == one["usage"]["completion_tokens"], what
        assert "".join(choice["text"] for chunk in stream.chunks for choice in chunk["choices"]) == \
            one["choices"][0]["text"], what
    pools.expect_idle()


def test_an_end_with_the_first_token(both):
    pools, alone = both
    name = beginning_with_eos()
    for fields in ({}, {"min_tokens": 2}, {"ignore_eos": True}, {"logprobs": 1}):
        asked = {"max_tokens": 5, "ignore_eos": False, **fields}
        one = said(complete(alone, name, **asked))
        expected = 1 if not fields or "logprobs" in fields else 5
        assert one["usage"]["completion_tokens"] == expected, fields
        assert said(complete(pools.server, name, **asked)) == one, fields
    pools.expect_idle()


def test_cached_tokens_are_the_prefill_engines(family, launcher):
    if family.backend == "vllm-http":
        pytest.skip("its interface does not tell them")
    pools = Pools(family, launcher, flags=("--block-size", BLOCK))
    prompt = list(range(300, 300 + 5 * BLOCK + 3))
    first = complete(pools.server, "cached-0", prompt=prompt, max_tokens=2).json()["usage"]
    again = complete(pools.server, "cached-1", prompt=prompt, max_tokens=2).json()["usage"]
    stream = Stream(pools.server, body(2, prompt=prompt), "cached-2").read_all()
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in (first, again, stream.usage)]
    assert cached == [0, 5 * BLOCK, 5 * BLOCK]
    pools.expect_idle()


HELD = {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "e", "remote_host": "127.0.0.1",
        "remote_port": 5600, "remote_block_ids": [0], "mocker_request_id": "m", "of a later release": {"kept": [1, "a"]}}
LACKING = {"kv_transfer_params": None, **{f"kv_transfer_params.{key}": {k: v for k, v in HELD.items() if k != key}
                                          for key in ("remote_engine_id", "remote_host", "remote_port",
                                                      "remote_block_ids")}}


def foreign_prefill(tmp_path, launcher, params):
    """A prefill engine of other making whose answers end with these parameters, and a simulated decode engine."""
    flags = ("--kv-transfer-params", json.dumps(params)) if params is not None else ()
    engine = WireEngine(tmp_path, "newest", "--model-id", "demo", "--model-name", "demo", *flags)
    decode = FAMILIES[0].engine(launcher, "--role", "decode", "--block-size", BLOCK)
    return engine, decode, serve(FAMILIES[0], launcher, [engine.url], [decode])


@pytest.mark.parametrize("field", LACKING)
def test_what_a_prefill_engine_does_not_hand_over_is_named(launcher, tmp_path, field):
    engine, decode, server = foreign_prefill(tmp_path, launcher, LACKING[field])
    with engine:
        for streamed in (False, True):
            answer = complete(server, stream=streamed)
            assert answer.status_code == 502, answer.text
            error = answer.json()["error"]
            assert field in error["message"]
            assert (error["code"], error["param"]) == ("engine_protocol_error", field)
        assert len(engine.wait_event("finished", 2)) == 2, "another one would not know more"
        assert decode.state()["requests_total"] == 0
        assert server.get("/ready").status_code == 200
        server.wait_metric("fairlead_frontend_worker_inflight_requests", 0)


def test_the_hand_off_of_other_engines_is_forwarded_whole(launcher, tmp_path):
    engine, decode, server = foreign_prefill(tmp_path, launcher, HELD)
    with engine:
        answer = complete(server, "foreign", max_tokens=3)
        assert answer.json()["choices"][0]["token_ids"] == formula("foreign", 3)
        asked = engine.wait_event("generate")[-1]["request"]
        assert asked["stopping"]["max_new_tokens"] == asked["stopping"]["min_new_tokens"] == 1
        assert asked["kv"]["kv_transfer_params"] == {"do_remote_decode": True}
        got = wait_until(lambda: [r for r in decode.state()["last_requests"] if r.get("token_ids")], 5)[-1]
        assert got["kv"]["kv_transfer_params"] == {**HELD, "remote_port": "5600"}
        assert got["stopping"]["max_new_tokens"] == 3
