"""Log-probabilities and extra arguments of real engines, over gRPC and over the token route.

Every request carries a salt of its own, so that no prefix is cached and both sides compute the same
prefill: then the numbers are equal but for printing.
"""

import itertools
import json

import httpx
import pytest
from fairlead.real_engine import HOME, MODEL

CLOSE = 2e-3
SALTS = itertools.count()
PROMPT = "The capital of France is"
CHAT = [{"role": "user", "content": "Name three colours, é 😀 too."}]


@pytest.fixture(scope="session", params=["grpc", "http", "http-python"])
def pair(request, tmp_path_factory):
    """An engine and a function that starts a frontend in front of it."""
    engine = request.getfixturevalue("python_engine" if request.param == "http-python" else "engine")
    url = engine.grpc if request.param == "grpc" else f"vllm-http={engine.url}"
    return engine, url


@pytest.fixture
def server(pair, launcher):
    return launcher.serve([pair[1]], model_path=HOME / "models" / MODEL)


def ask(base, path, body):
    body = {"model": MODEL, "temperature": 0, "cache_salt": f"salt-{next(SALTS)}", **body}
    answer = httpx.post(base + path, json=body, timeout=180)
    assert answer.status_code == 200, answer.text
    return answer.json()


def both(pair, server, path, body):
    own, ours = ask(pair[0].url, path, body), ask(server.base_url, path, body)
    return own, ours


def close(a, b):
    return a == b or (a is not None and b is not None and abs(a - b) <= CLOSE)


def partial(text):
    """A part of a character, or a special token. Engines show nothing, U+FFFD, or the whole character with
    its last part; here every token shows its own bytes."""
    return text == "" or "\ufffd" in text or text.startswith("<|")


def compare_candidates(own, ours):
    """Equal but for candidates so close to the last one that either may be cut off, and for names
    that several tokens share."""
    last = min(own.values(), default=0)
    for name in own.keys() | ours.keys():
        if partial(name) or not name.isascii():
            continue
        if name in own and name in ours:
            assert close(own[name], ours[name]), name
        else:
            assert abs((own | ours)[name] - last) <= CLOSE, name


def compare_content(own, ours):
    assert len(own) == len(ours) > 0
    for a, b in zip(own, ours, strict=True):
        if not partial(a["token"]) and not partial(b["token"]):
            assert a["token"] == b["token"]
            if not a["token"].startswith("token_id:"):
                assert a["bytes"] == b["bytes"]
        assert close(a["logprob"], b["logprob"])
        compare_candidates({t["token"]: t["logprob"] for t in a["top_logprobs"]},
                           {t["token"]: t["logprob"] for t in b["top_logprobs"]})


def compare_arrays(own, ours):
    assert all(a == b for a, b in zip(own["tokens"], ours["tokens"], strict=True) if not partial(a) and not partial(b))
    assert own["text_offset"] == ours["text_offset"]
    assert len(own["token_logprobs"]) == len(ours["token_logprobs"]) > 0
    assert all(map(close, own["token_logprobs"], ours["token_logprobs"]))
    for a, b in zip(own["top_logprobs"], ours["top_logprobs"], strict=True):
        compare_candidates(a or {}, b or {})


def compare_prompt(own, ours):
    assert len(own) == len(ours)
    assert own[0] is None and ours[0] is None
    for a, b in zip(own[1:], ours[1:], strict=True):
        compare_candidates({k: v["logprob"] for k, v in a.items()}, {k: v["logprob"] for k, v in b.items()})
        for key in a.keys() & b.keys():
            if not partial(a[key]["decoded_token"]) and not partial(b[key]["decoded_token"]):
                assert a[key]["decoded_token"] == b[key]["decoded_token"]


@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize("as_ids", [False, True])
def test_chat_logprobs_equal_the_engines_own(pair, server, top, as_ids):
    body = {"messages": CHAT, "max_tokens": 12, "logprobs": True, "top_logprobs": top,
            "return_tokens_as_token_ids": as_ids}
    own, ours = both(pair, server, "/v1/chat/completions", body)
    assert own["choices"][0]["message"]["content"] == ours["choices"][0]["message"]["content"]
    compare_content(own["choices"][0]["logprobs"]["content"], ours["choices"][0]["logprobs"]["content"])
    assert len(ours["choices"][0]["logprobs"]["content"]) == ours["usage"]["completion_tokens"]


@pytest.mark.parametrize("count", [0, 1, 20])
@pytest.mark.parametrize("echo", [False, True])
def test_completions_logprobs_equal_the_engines_own(pair, server, count, echo):
    body = {"prompt": PROMPT, "max_tokens": 8, "logprobs": count, "echo": echo}
    own, ours = both(pair, server, "/v1/completions", body)
    assert own["choices"][0]["text"] == ours["choices"][0]["text"]
    compare_arrays(own["choices"][0]["logprobs"], ours["choices"][0]["logprobs"])


def test_prompt_logprobs_equal_the_engines_own(pair, server):
    own, ours = both(pair, server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "prompt_logprobs": 3})
    compare_prompt(own["choices"][0]["prompt_logprobs"], ours["choices"][0]["prompt_logprobs"])
    own, ours = both(pair, server, "/v1/chat/completions", {"messages": CHAT, "max_tokens": 2, "prompt_logprobs": 1})
    compare_prompt(own["prompt_logprobs"], ours["prompt_logprobs"])


def test_chosen_tokens_get_their_logprobs(pair, server):
    ids = [7042, 260, 198, 5]
    body = {"prompt": PROMPT, "max_tokens": 4, "logprobs": 1, "logprob_token_ids": ids,
            "return_tokens_as_token_ids": True}
    ours = ask(server.base_url, "/v1/completions", body)["choices"][0]["logprobs"]
    wide = ask(pair[0].url, "/v1/completions",
               {"prompt": PROMPT, "max_tokens": 4, "logprobs": 20, "return_tokens_as_token_ids": True})
    wide = wide["choices"][0]["logprobs"]
    assert ours["tokens"] == wide["tokens"]
    for sampled, mine, theirs in zip(ours["tokens"], ours["top_logprobs"], wide["top_logprobs"], strict=True):
        assert mine.keys() == {f"token_id:{i}" for i in ids} | {sampled}
        shared = mine.keys() & theirs.keys()
        assert all(close(mine[key], theirs[key]) for key in shared) and shared


def test_streams_carry_the_same_logprobs(pair, server):
    body = {"messages": CHAT, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    folded = ask(server.base_url, "/v1/chat/completions", body)["choices"][0]["logprobs"]["content"]
    streamed = []
    with httpx.stream("POST", f"{server.base_url}/v1/chat/completions", timeout=180, json={
            "model": MODEL, "temperature": 0, "cache_salt": f"salt-{next(SALTS)}", "stream": True, **body}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    streamed += (choice["logprobs"] or {}).get("content", [])
    compare_content(folded, streamed)


def test_token_ids_are_returned(pair, server):
    own, ours = both(pair, server, "/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "return_token_ids": True})
    for key in ("token_ids", "prompt_token_ids"):
        assert own["choices"][0][key] == ours["choices"][0][key]


def forced(answer):
    return set(answer["choices"][0]["token_ids"])


def test_extra_arguments_reach_the_logits_processor(pair, server):
    body = {"prompt": PROMPT, "max_tokens": 3, "return_token_ids": True, "vllm_xargs": {"target_token": 100}}
    if pair[1].startswith("http"):  # gRPC: the wire has no place for them
        answer = server.post("/v1/completions", {"model": MODEL, **body})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "capability_unsupported"
        return
    assert forced(ask(server.base_url, "/v1/completions", body)) == {100}
    chat = {"messages": CHAT, "max_tokens": 3, "return_token_ids": True, "vllm_xargs": {"target_token": 101}}
    assert forced(ask(server.base_url, "/v1/chat/completions", chat)) == {101}
    assert forced(ask(server.base_url, "/v1/completions", {**body, "vllm_xargs": {"other": 1}})) != {100}


def test_default_extra_arguments_are_overlaid(pair, launcher):
    defaults = json.dumps({"extra_args": {"target_token": 100, "other": [1, "a"]}})
    server = launcher.serve([pair[1]], "--default-sampling-params", defaults, model_path=HOME / "models" / MODEL)
    body = {"prompt": PROMPT, "max_tokens": 3, "return_token_ids": True}
    plain = forced(ask(server.base_url, "/v1/completions", body))
    if pair[1].startswith("http"):  # gRPC: defaults that have no place are left out
        assert plain != {100}
        return
    assert plain == {100}
    assert forced(ask(server.base_url, "/v1/completions", {**body, "vllm_xargs": {"target_token": 101}})) == {101}
    assert forced(ask(server.base_url, "/v1/completions", {**body, "vllm_xargs": {"another": True}})) == {100}
