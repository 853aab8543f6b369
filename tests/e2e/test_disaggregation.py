"""Prefill and decode on two engines: the rows D1, D2, D4, D5 and P9, and what a client sees of it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fairlead import wait_until
from fairlead.families import Stream, body, complete, formula, request_id
from fairlead.pairs import Pools, asked, sequence_formula

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "one two three"}], "ignore_eos": True,
        "return_token_ids": True}
SLOW = ("--speedup-ratio", "0.015")  # more than a second for a prompt
ROUTES = {"/v1/completions": body(), "/v1/chat/completions": CHAT}


def totals(engines):
    """How many requests each engine got; the looks of a probe are none."""
    return [len(asked(engine)) for engine in engines]


@pytest.mark.parametrize("mode", ["round-robin", "kv", "random"])
def test_D1_P9_each_request_uses_one_engine_of_each_kind(pair_family, launcher, mode):
    pools = Pools(pair_family, launcher, serve_flags=("--router-mode", mode))
    for i in range(5):
        answer = complete(pools.server, f"d1-{i}", max_tokens=6)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        assert (choice["token_ids"], choice["finish_reason"]) == (formula(f"d1-{i}", 6), "length")
        assert answer.json()["usage"]["completion_tokens"] == 6
        Stream(pools.server, body(6), f"d1-stream-{i}").read_all().expect_complete(formula(f"d1-stream-{i}", 6))
    assert totals(pools.engines) == [10, 10]
    prefill, decode = map(pools.id_of, pools.engines)
    pairs = pools.pairs(10)
    assert {(pair.prefill, pair.decode, pair.prefill_rank, pair.decode_rank) for pair in pairs} == {(prefill, decode, 0, 0)}
    assert sorted(pair.request_id for pair in pairs) == sorted(
        request_id(f"{name}-{i}") for name in ("d1", "d1-stream") for i in range(5))
    pools.expect_idle()


def test_D2_D5_all_engines_of_both_pools_get_requests(pair_family, launcher):
    pools = Pools(pair_family, launcher, 2, 2, serve_flags=("--router-mode", "round-robin"))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: complete(pools.server, f"d2-{i}", max_tokens=5), range(16)))
    for i, answer in enumerate(answers):
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == formula(f"d2-{i}", 5)
    assert totals(pools.prefill) == [8, 8]
    assert totals(pools.decode) == [8, 8]
    pairs = {pair.request_id: pair for pair in pools.pairs(16)}
    assert set(pairs) == {request_id(f"d2-{i}") for i in range(16)}
    for engines, side in ((pools.prefill, "prefill"), (pools.decode, "decode")):
        for engine in engines:
            mine = {id_ for id_, pair in pairs.items() if getattr(pair, side) == pools.id_of(engine)}
            assert {request["request_id"] for request in engine.requests() if request["request_id"]} == mine, "the line tells the truth"
    pools.expect_idle()


@pytest.mark.parametrize("mode", ["round-robin", "kv"])
def test_ranks_of_both_engines_are_used_and_told(pair_family, launcher, mode):
    pools = Pools(pair_family, launcher, flags=("--data-parallel-size", 2, "--fault", "slow:20"),
                  serve_flags=("--router-mode", mode))
    count = 8
    with ThreadPoolExecutor(count) as pool:
        answers = list(pool.map(lambda i: complete(pools.server, f"dp-{i}", max_tokens=5), range(count)))
    assert [answer.json()["choices"][0]["token_ids"] for answer in answers] == [
        formula(f"dp-{i}", 5) for i in range(count)]
    pairs = pools.pairs(count)
    if mode == "kv":  # the other modes leave the rank to the engine
        assert {pair.prefill_rank for pair in pairs} == {pair.decode_rank for pair in pairs} == {0, 1}
    else:
        assert {pair.prefill_rank for pair in pairs} == {pair.decode_rank for pair in pairs} == {2**32 - 1}
    for engine, side in ((pools.prefill[0], "prefill_rank"), (pools.decode[0], "decode_rank")):
        told = {request_of(request): rank_of(request) for request in asked(engine)}
        assert told == {pair.request_id: getattr(pair, side) for pair in pairs}
    pools.expect_idle()


def request_of(request):
    """Its id, whichever family's."""
    return request.get("rid") or request["request_id"]


def rank_of(request):
    """The data-parallel rank it names; else the number that stands for any."""
    return int(request.get("routed_dp_rank", request["metadata"].get("x-data-parallel-rank", 2**32 - 1)))


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
def test_several_sequences_are_several_pairs(pair_family, launcher, route, streamed):
    pools = Pools(pair_family, launcher, 2, 2, serve_flags=("--router-mode", "round-robin"))
    fields = {**ROUTES[route], "n": 2, "max_tokens": 5}
    prompts = 1
    if route == "/v1/completions":
        fields["prompt"] = [[5, 6, 7], [8, 9]]
        prompts = 2
    name = f"n-{route}-{streamed}"
    if streamed:
        stream = Stream(pools.server, fields, name, path=route).read_all()
        assert stream.done and not stream.errors
        tokens = {}
        for chunk in stream.chunks:
            for choice in chunk["choices"]:
                tokens.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
        usage = stream.usage
        assert stream.finish_reasons == ["length"] * 2 * prompts
    else:
        answer = pools.server.post(route, fields, headers={"request-id": request_id(name)})
        assert answer.status_code == 200, answer.text
        tokens = {choice["index"]: choice["token_ids"] for choice in answer.json()["choices"]}
        usage = answer.json()["usage"]
    assert tokens == {i: sequence_formula(name, i, 5) for i in range(2 * prompts)}
    assert usage["completion_tokens"] == 5 * 2 * prompts
    assert sorted(pair.request_id for pair in pools.pairs(2 * prompts)) == [
        f"{request_id(name)}-{i}" for i in range(2 * prompts)]
    pools.expect_idle()


def test_D4_decode_begins_when_the_prompt_is_computed(pair_family, launcher):
    pools = Pools(pair_family, launcher, prefill_flags=SLOW)
    (prefill,), (decode,) = pools.prefill, pools.decode
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, pools.server, "d4", max_tokens=4)
        prefill.wait_state(running=1)
        if pair_family.backend == "sglang":
            wait_until(lambda: totals([decode]) == [1], 10, "the decode engine to get its part")
            assert prefill.state()["finished_total"] == 0, "both have it at once"
        else:
            def order():
                # Read in this order: had decode begun, prefill would have finished before.
                begun, finished = totals([decode])[0], prefill.state()["finished_total"]
                assert begun <= finished
                return begun == 1
            wait_until(order, 10, "the decode engine to get its part")
        assert answer.result().json()["choices"][0]["token_ids"] == formula("d4", 4)
    pools.expect_idle()


def test_a_prefill_worker_is_free_when_it_has_handed_over(family, launcher):
    pools = Pools(family, launcher, prefill_flags=SLOW,
                  decode_flags=("--token-interval-ms", 30), serve_flags=("--router-mode", "kv"))
    server = pools.server
    prefill, decode = (str(pools.id_of(engine)) for engine in pools.engines)

    def load(worker):
        metrics = server.metrics()
        return tuple(metrics.value(f"fairlead_frontend_worker_{name}", worker_id=worker)
                     for name in ("inflight_requests", "active_prefill_tokens", "active_decode_blocks"))

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(Stream, server, body(2000, prompt=list(range(300, 364))), "load")
        pools.prefill[0].wait_state(running=1)
        requests, tokens, _ = load(prefill)
        assert (requests, tokens) == (1, 64)
        stream = started.result().read_tokens(2)
    wait_until(lambda: load(prefill) == (0, 0, 0), 5, f"the prefill worker to be free: {load(prefill)}")
    requests, tokens, blocks = load(decode)
    assert (requests, tokens) == (1, 0), "the decode worker computes no prompt"
    assert 1 <= blocks <= 3, "in blocks of 64 tokens"
    stream.close()
    pools.expect_idle()


def test_the_hand_off_reaches_decode_whole(pair_family, launcher):
    if pair_family.backend == "sglang":
        pytest.skip("its engines meet in a room")
    pools = Pools(pair_family, launcher)
    assert complete(pools.server, "whole", prompt=list(range(300, 500)), max_tokens=2).status_code == 200
    prefill, decode = (asked(engine)[-1] for engine in pools.engines)
    first, second = (connector(request) for request in (prefill, decode))
    assert first == {"do_remote_decode": True}
    # gRPC knows no whole numbers here, and vLLM pastes the port into a URL.
    port = "0" if pair_family.backend == "vllm" else 0
    assert second == {
        "do_remote_decode": False, "do_remote_prefill": True, "remote_engine_id": second["remote_engine_id"],
        "remote_host": "127.0.0.1", "remote_port": port, "remote_request_id": request_id("whole"), "tp_size": 1,
        "mocker_request_id": request_id("whole"), "remote_block_ids": [0, 1, 2, 3]}
    pools.expect_idle()


def connector(request):
    """The connector's parameters as an engine got them, gRPC or HTTP."""
    if "kv_transfer_params" in request:
        return request["kv_transfer_params"]
    return request["kv"]["kv_transfer_params"] if "kv" in request else request["sampling_params"]["kv_transfer_params"]
