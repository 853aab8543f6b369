"""Clients that leave while their request is between a prefill and a decode engine: the row P10."""

import contextlib
import json
import random
import socket

import pytest
from fairlead import wait_until
from fairlead.families import body, complete, formula
from fairlead.pairs import Pools, asked

SLOW = ("--speedup-ratio", "0.015")  # more than a second for a prompt
QUEUES = ("--router-mode", "kv", "--router-queue-threshold", "1")
BLOCK = 16
PROMPT = list(range(300, 300 + 5 * BLOCK))


class Client:
    """A request whose answer nobody reads."""

    def __init__(self, server, streamed, **fields):
        text = json.dumps(body(**{"prompt": PROMPT, "stream": streamed, **fields}))
        host, port = server.http.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 20)
        self._socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                             f"Content-Length: {len(text)}\r\n\r\n{text}".encode())

    def leave(self, after=0.0):
        """Now, or when the answer begins, so many seconds later at most."""
        if after > 0:
            self._socket.settimeout(after)
            with contextlib.suppress(TimeoutError):
                self._socket.recv(100)
        self._socket.close()


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def streamed(request):
    return request.param


def make(family, launcher, **options):
    """One engine of each kind; blocks stay with the prefill engine until they are fetched."""
    if family.backend != "sglang":
        options["prefill_flags"] = ("--kv-transfer-listen", "127.0.0.1:0", *options.get("prefill_flags", ()))
    return Pools(family, launcher, flags=("--block-size", BLOCK), **options)


def expect_released(pools):
    """Nothing runs and no block is in use on either side, none kept until a timeout; the next request is served."""
    pools.expect_idle()
    for engine in pools.engines:
        state = engine.wait_state(held_for_transfer=0, waiting_for_peer=0, kv_blocks_used=0)
        assert state["kv_transfer_timeouts_total"] == 0
    for engine in pools.engines:
        engine.set_faults()
    answer = complete(pools.server, "next", max_tokens=3)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == formula("next", 3)
    pools.expect_idle()


def test_P10_queued_requests_reach_no_engine(family, launcher, streamed):
    pools = make(family, launcher, prefill_flags=("--max-num-batched-tokens", 64), serve_flags=QUEUES)
    pools.prefill[0].set_faults("stall-open")
    first = Client(pools.server, streamed)
    wait_until(lambda: len(asked(pools.prefill[0])) == 1, 10, "the prefill engine to be busy")
    second = Client(pools.server, streamed)
    pools.server.wait_metric("fairlead_frontend_router_queue_pending_requests", 1)
    second.leave()
    pools.server.wait_metric("fairlead_frontend_router_queue_pending_requests", 0)
    first.leave()
    pools.server.wait_metric("fairlead_frontend_inflight_requests", 0)
    assert len(asked(pools.prefill[0])) == 1
    expect_released(pools)


def test_P10_during_prefill_the_engine_is_told_and_decode_hears_nothing(family, launcher, streamed):
    pools = make(family, launcher, prefill_flags=SLOW)
    client = Client(pools.server, streamed)
    pools.prefill[0].wait_state(running=1)
    client.leave()
    pools.prefill[0].wait_state(running=0, aborted_total=1, finished_total=0)
    if family.backend == "sglang":
        pools.decode[0].wait_state(running=0, aborted_total=1, finished_total=0)
    else:
        assert asked(pools.decode[0]) == []
    assert pools.released("transferred") == pools.released("timeout") == 0
    expect_released(pools)


def test_P10_before_the_first_token_decode_is_read_on_until_it_has_the_cache(family, launcher, streamed):
    if family.backend == "sglang":
        pytest.skip("both of its legs are aborted within a second")
    pools = make(family, launcher, decode_flags=("--fault", "slow:1500"))
    client = Client(pools.server, streamed, max_tokens=1000)
    wait_until(lambda: asked(pools.decode[0]), 10, "the decode engine to get its part")
    client.leave()
    pools.server.wait_metric("fairlead_frontend_disaggregation_releases_pending", 1)
    pools.server.wait_metric("fairlead_frontend_inflight_requests", 0)
    assert pools.decode[0].state()["aborted_total"] == 0
    pools.server.wait_metric("fairlead_frontend_disaggregation_releases_total", 1, outcome="transferred")
    pools.decode[0].wait_state(aborted_total=1, finished_total=0)
    assert pools.prefill[0].state()["kv_fetches_total"] == 1
    assert pools.released("timeout") == 0
    expect_released(pools)


def test_P10_decode_that_never_begins_is_kept_no_longer_than_the_bound(family, launcher, streamed):
    if family.backend == "sglang":
        pytest.skip("both of its legs are aborted within a second")
    pools = make(family, launcher, prefill_flags=("--kv-transfer-timeout-ms", 3000),
                 serve_flags=("--decode-release-timeout-secs", "1"))
    pools.decode[0].set_faults("stall-open")
    client = Client(pools.server, streamed)
    wait_until(lambda: asked(pools.decode[0]), 10, "the decode engine to get its part")
    client.leave()
    pools.server.wait_metric("fairlead_frontend_disaggregation_releases_total", 1, outcome="timeout")
    pools.server.wait_metric("fairlead_frontend_disaggregation_releases_pending", 0)
    pools.decode[0].wait_state(running=0, waiting=0, kv_blocks_used=0, aborted_total=1)
    pools.decode[0].set_faults()
    # The engine itself gives up blocks that nobody came for.
    pools.prefill[0].wait_state(held_for_transfer=0, kv_blocks_used=0, kv_transfer_timeouts_total=1)
    assert complete(pools.server, "bound", max_tokens=3).json()["choices"][0]["token_ids"] == formula("bound", 3)
    pools.expect_idle()


def test_P10_during_decode_it_is_aborted_at_once(family, launcher, streamed):
    pools = make(family, launcher, decode_flags=("--token-interval-ms", 50))
    client = Client(pools.server, streamed, max_tokens=1000)
    pools.decode[0].wait_state(running=1)
    pools.prefill[0].wait_state(running=0, finished_total=1)
    tokens = "fairlead_frontend_output_tokens_total"
    wait_until(lambda: pools.server.metrics().value(tokens) >= 2, 10, "two tokens")
    client.leave()
    pools.decode[0].wait_state(running=0, aborted_total=1, finished_total=0)
    assert pools.released("transferred") == pools.released("timeout") == 0
    expect_released(pools)


def test_P10_many_clients_that_leave_at_any_time_leave_nothing(family, launcher, seed):
    chance = random.Random(seed)
    pools = make(family, launcher, prefill_flags=("--speedup-ratio", "1", "--kv-transfer-timeout-ms", 2000),
                 decode_flags=("--token-interval-ms", 2, "--fault", "slow:10"))
    for _ in range(60):
        client = Client(pools.server, chance.random() < 0.5, max_tokens=chance.randrange(1, 30),
                        prompt=[chance.randrange(300, 2000) for _ in range(chance.randrange(1, 200))])
        client.leave(after=chance.random() * 0.08)
    # Where an abort crossed the end of a prefill, of which no decode engine will hear, the engine's own timeout frees
    # what it kept.
    pools.prefill[0].wait_state(running=0, waiting=0, held_for_transfer=0, kv_blocks_used=0)
    pools.expect_idle()
    assert complete(pools.server, "next", max_tokens=3).json()["choices"][0]["token_ids"] == formula("next", 3)
