"""Extra arguments of the engine, from the client's body to the engine's sampling parameters."""

import json

import pytest
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "one two three"}]}
PROMPT = {"model": "demo", "prompt": [5, 6, 7]}
ROUTES = {"/v1/chat/completions": CHAT, "/v1/completions": PROMPT}


def extra_args(engine):
    """What the engine was last asked to generate with, whichever name its version has for it."""
    asked = [request for request in engine.state()["last_requests"] if request["token_ids"]]  # others are probes
    params = asked[-1]["sampling_params"]
    return params.get("extra_args", params.get("vllm_xargs"))


@pytest.fixture
def engine(mock_engine):
    return mock_engine("--speedup-ratio", "0", model="demo", backend="vllm-http")


@pytest.mark.parametrize("route", ROUTES)
def test_every_kind_of_value_arrives_as_it_was_written(engine, serve, route):
    server = serve([engine], backend="vllm-http", model_path=FOLDER)
    given = {"text": "ключ \"\n", "whole": 4, "large": 2**64 - 1, "small": -(2**63), "half": 0.5, "one": 1.0,
             "yes": True, "no": False, "list": ["a", 1, 2.5, False], "none": []}
    answer = server.post(route, {**ROUTES[route], "max_tokens": 2, "vllm_xargs": given})
    assert answer.status_code == 200, answer.text
    seen = extra_args(engine)
    assert seen == given
    assert json.dumps(seen, sort_keys=True) == json.dumps(given, sort_keys=True), "1 and 1.0 are not the same"


@pytest.mark.parametrize("route", ROUTES)
def test_the_engine_acts_on_them(engine, serve, route):
    server = serve([engine], backend="vllm-http", model_path=FOLDER)
    body = {**ROUTES[route], "max_tokens": 3, "logprobs": True if "chat" in route else 1,
            "return_tokens_as_token_ids": True, "vllm_xargs": {"target_token": 1777}}
    answer = server.post(route, body)
    assert answer.status_code == 200, answer.text
    logprobs = answer.json()["choices"][0]["logprobs"]
    tokens = [entry["token"] for entry in logprobs["content"]] if "chat" in route else logprobs["tokens"]
    assert tokens == ["token_id:1777"] * 3


def test_the_switch_for_unknown_fields_never_drops_them(engine, serve):
    server = serve([engine], "--ignore-unsupported-fields", backend="vllm-http", model_path=FOLDER)
    answer = server.post("/v1/completions", {**PROMPT, "max_tokens": 1, "frobnicate": 1, "vllm_xargs": {"k": 1}})
    assert answer.status_code == 200, answer.text
    assert extra_args(engine) == {"k": 1}
    for body, param in [({"vllm_xargs": {"k": None}}, "vllm_xargs.k"),
                        ({"vllm_xargs": None}, "vllm_xargs"),
                        ({"vllm_xargs": {"kv_transfer_params": {"a": 1}}}, "vllm_xargs.kv_transfer_params"),
                        ({"kv_transfer_params": {"a": 1}}, "kv_transfer_params"),
                        ({"kv_hints": {}}, "kv_hints"),
                        ({"bootstrap_room": 1}, "bootstrap_room"),
                        ({"nvext": {"bootstrap_host": "h"}}, "nvext.bootstrap_host")]:
        answer = server.post("/v1/completions", {**PROMPT, **body})
        assert answer.status_code == 400, body
        assert answer.json()["error"]["param"] == param
    assert engine.state()["finished_total"] == 1


def test_defaults_lie_under_the_request_key_by_key(engine, serve):
    defaults = {"extra_args": {"kept": [1], "over": 1, "kv_transfer_params": {"a": 1}}}
    server = serve([engine], "--default-sampling-params", json.dumps(defaults), backend="vllm-http",
                   model_path=FOLDER)
    for xargs, expected in [({"over": 2, "new": True}, {"kept": [1], "over": 2, "new": True}),
                            ({}, {"kept": [1], "over": 1}),
                            ({"kept": "x"}, {"kept": "x", "over": 1})]:
        answer = server.post("/v1/completions", {**PROMPT, "max_tokens": 1, "vllm_xargs": xargs})
        assert answer.status_code == 200, answer.text
        assert extra_args(engine) == expected


def test_defaults_alone_reach_an_engine_without_a_place_for_them(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    server = serve([engine], "--default-sampling-params", '{"extra_args": {"k": 1}}', model_path=FOLDER)
    assert server.post("/v1/completions", {**PROMPT, "max_tokens": 1}).status_code == 200
    assert server.post("/v1/completions", {**PROMPT, "max_tokens": 1, "vllm_xargs": {}}).status_code == 200
    refused = server.post("/v1/completions", {**PROMPT, "max_tokens": 1, "vllm_xargs": {"k": 2}})
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert "vllm_xargs" in error["message"]
    assert engine.state()["finished_total"] == 2


def test_the_sdk_sends_them_as_an_extra_body(engine, serve):
    server = serve([engine], backend="vllm-http", model_path=FOLDER)
    with server.client() as client:
        stream = client.chat.completions.create(**CHAT, max_tokens=3, stream=True,
                                                extra_body={"vllm_xargs": {"target_token": 1778}})
        assert len(list(stream)) > 1
    assert extra_args(engine) == {"target_token": 1778}
