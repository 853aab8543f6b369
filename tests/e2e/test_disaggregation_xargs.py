"""Extra arguments of the engine with prefill and decode: who may be asked, and what each leg is sent (the row PD-9)."""

import pytest
from fairlead import wait_until
from fairlead.families import body, formula, request_id, wait_healthy
from fairlead.pairs import TOKEN_ROUTE, asked, serve

OLD = ("--without", "vllm-xargs")
XARGS = {"k": [1, "a", False], "n": 7}
UNAVAILABLE = (503, "capability_unavailable")
UNSUPPORTED = (400, "capability_unsupported")


def start(launcher, prefill, decode):
    """Engines of both kinds, each able (true) or not, and a frontend."""
    pools = [[TOKEN_ROUTE.engine(launcher, "--role", role, *([] if able else OLD)) for able in kinds]
             for role, kinds in (("prefill", prefill), ("decode", decode))]
    server = serve(TOKEN_ROUTE, launcher, *pools, "--router-mode", "round-robin")
    wait_healthy(server, len(prefill) + len(decode))
    return server, *pools


def ask(server, name=None, **fields):
    return server.post("/v1/completions", body(3, **fields), headers={"request-id": request_id(name)} if name else {})


def given(request):
    """The extra arguments of a request that an engine got."""
    params = request["sampling_params"]
    return params.get("extra_args", params.get("vllm_xargs"))


def test_both_legs_get_them(launcher):
    server, prefill, decode = start(launcher, [True, True], [True, True])
    for i in range(4):
        answer = ask(server, f"xargs-{i}", vllm_xargs=XARGS)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == formula(f"xargs-{i}", 3)
    for engine in (*prefill, *decode):
        assert [given(request) for request in asked(engine)] == [XARGS] * 2


@pytest.mark.parametrize(("prefill", "decode", "refusal"), [
    ([True, False], [True], UNAVAILABLE),
    ([False], [True, True], UNAVAILABLE),
    ([True], [True, False], UNAVAILABLE),
    ([True], [False], UNAVAILABLE),
    ([True, False], [False], UNAVAILABLE),
    ([False], [False], UNSUPPORTED),
], ids=str)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_vllm_xargs_requires_capable_prefill_peers(launcher, prefill, decode, refusal, streamed):
    server, *pools = start(launcher, prefill, decode)
    for _ in range(3):
        answer = ask(server, vllm_xargs=XARGS, stream=streamed)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (*refusal, "vllm_xargs")
        assert "vllm_xargs" in error["message"]
    assert [asked(engine) for pool in pools for engine in pool] == [[]] * (len(prefill) + len(decode))
    # Others are served by all, and no worker is held to be at fault.
    for i in range(2):
        assert ask(server, f"others-{i}").json()["choices"][0]["token_ids"] == formula(f"others-{i}", 3)
    for pool in pools:
        assert [len(asked(engine)) for engine in pool] == [2 // len(pool)] * len(pool)
    wait_healthy(server, len(prefill) + len(decode))


def test_a_prefill_peer_that_becomes_able_lets_requests_in(launcher):
    server, prefill, _ = start(launcher, [False], [True])
    assert ask(server, vllm_xargs=XARGS).status_code == 503
    prefill[0].kill()
    TOKEN_ROUTE.engine(launcher, "--role", "prefill", listen=prefill[0].address)
    wait_until(lambda: ask(server, vllm_xargs=XARGS).status_code == 200, 20, "the new engine's capability")


def test_connector_and_hints_of_both_legs_do_not_depend_on_them(launcher):
    server, prefill, decode = start(launcher, [True], [True])
    headers = {"x-dynamo-session-id": "s"}
    for fields in ({}, {"vllm_xargs": XARGS}):
        answer = server.post("/v1/completions", body(3, priority=2, cache_salt="salt", **fields),
                             headers={**headers, "request-id": request_id("same")})
        assert answer.status_code == 200, answer.text
    for engine in (*prefill, *decode):
        without, with_them = asked(engine)
        assert given(with_them) == XARGS
        assert not given(without)
        for request in (without, with_them):
            for key in ("extra_args", "vllm_xargs"):
                request["sampling_params"].pop(key, None)
            request["metadata"] = {k: v for k, v in request["metadata"].items() if k != "content-length"}
        assert with_them.pop("kv_transfer_params") == without.pop("kv_transfer_params")
        assert with_them == without
