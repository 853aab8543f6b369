"""Prefill and decode engines that refuse, die or hang: who takes over, and that nothing is left behind."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from fairlead import wait_until
from fairlead.families import Stream, body, complete, formula, plain, wait_healthy
from fairlead.pairs import TOKEN_ROUTE, Pools, asked

SLOW = ("--speedup-ratio", "0.015")  # more than a second for a prompt
ROBIN = ("--router-mode", "round-robin")
FAILED = {"a refused call": "error-after:0:UNAVAILABLE", "a reset before any answer": "reset-after:0",
          "an end before any answer": "end-after:0"}


def counts(engines):
    return [len(asked(engine)) for engine in engines]


def expect_answers(pools, name, count=4, tokens=5):
    """So many requests, one after the other, are answered rightly."""
    for i in range(count):
        answer = complete(pools.server, f"{name}-{i}", max_tokens=tokens)
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == formula(f"{name}-{i}", tokens)


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("fault", FAILED.values(), ids=FAILED)
def test_before_the_first_token_another_engine_takes_over(family, launcher, role, fault):
    pools = Pools(family, launcher, 2, 2, serve_flags=ROBIN)
    broken = getattr(pools, role)[0]
    broken.set_faults(fault)
    expect_answers(pools, f"{role}-{fault}")
    assert counts([broken])[0] >= 1, "it was tried"
    broken.set_faults()
    wait_healthy(pools.server, 4)
    before = counts([broken])[0]
    expect_answers(pools, f"{role}-{fault}-recovered")
    assert counts([broken])[0] > before, "it is in rotation again"
    pools.expect_idle()


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("fault", ["stall-open", "stall-after:0"])
def test_answers_that_come_whole_are_not_waited_for_without_end(launcher, role, fault):
    pools = Pools(TOKEN_ROUTE, launcher, 2, 2,
                  serve_flags=(*ROBIN, "--first-token-timeout-secs", "1", "--stream-timeout-secs", "1"))
    broken = getattr(pools, role)[0]
    broken.set_faults(fault)
    expect_answers(pools, f"whole-{role}-{fault}", count=2, tokens=2)
    assert counts([broken])[0] >= 1, "it was tried"
    broken.set_faults()
    pools.expect_idle()


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_killed_engine_is_replaced_amid_the_prompt(family, launcher, role):
    # The decode engine is never at its first token while the client is told nothing.
    pools = Pools(family, launcher, 2, 2, serve_flags=ROBIN, **{f"{role}_flags": SLOW})
    engines = getattr(pools, role)
    if role == "decode":
        for engine in engines:
            engine.set_faults("slow:1000")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(complete, pools.server, f"kill-{role}", max_tokens=4)
        victim = wait_until(lambda: next((e for e in engines if asked(e)), None), 10, "an engine to begin")
        victim.kill()
        answer = answer.result()
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == formula(f"kill-{role}", 4)
    if role == "prefill" and family.backend != "sglang":
        assert sum(counts(pools.decode)) == 1, "decode hears of prompts that were computed"
    pools.restart(role, victim)
    wait_healthy(pools.server, 4)
    pools.expect_idle()


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_hung_engine_is_left_for_another(family, launcher, role):
    pools = Pools(family, launcher, 2, 2, serve_flags=(*ROBIN, "--first-token-timeout-secs", "1"))
    hung = getattr(pools, role)[0]
    hung.set_faults("stall-open")
    expect_answers(pools, f"hung-{role}", count=2)
    assert hung.state()["finished_total"] == 0
    hung.set_faults()
    pools.expect_idle()
    wait_healthy(pools.server, 4)
    expect_answers(pools, f"hung-{role}-recovered")
    pools.expect_idle()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("fault", "statuses"), [("error-after:0:INVALID_ARGUMENT", (400,)),
                                                 ("error-after:0:RESOURCE_EXHAUSTED", (503,)),
                                                 ("error-after:0:INTERNAL", (502,)),
                                                 ("reset-after:0", (502, 503))])
def test_P9_a_failed_prefill_never_reaches_decode(family, launcher, fault, statuses, streamed):
    pools = Pools(family, launcher)
    pools.prefill[0].set_faults(fault)
    answer = complete(pools.server, stream=streamed)
    assert answer.status_code in statuses, answer.text
    assert "error" in answer.json()
    assert "finish_reason" not in answer.text
    if family.backend != "sglang":
        assert counts(pools.decode) == [0]
    pools.prefill[0].set_faults()
    wait_healthy(pools.server, 2)
    expect_answers(pools, f"p9-{fault}", count=2)
    pools.expect_idle()


def test_a_decode_engine_that_dies_in_the_stream_ends_it_in_band(family, launcher):
    pools = Pools(family, launcher, 1, 2, decode_flags=("--token-interval-ms", 20), serve_flags=ROBIN)
    name = plain("dies", 8)
    stream = Stream(pools.server, body(1000), name).read_tokens(2)
    victim = wait_until(lambda: next((e for e in pools.decode if e.state()["running"]), None), 10, "the decode engine")
    victim.kill()
    stream.read_all()
    stream.expect_failed(formula(name, len(stream.tokens)), "engine_disconnected", "service_unavailable")
    expect_answers(pools, "dies-others")
    pools.restart("decode", victim)
    wait_healthy(pools.server, 3)
    pools.expect_idle()


def test_a_decode_engine_that_dies_in_the_stream_is_followed_by_another_pair(family, launcher):
    pools = Pools(family, launcher, 1, 2, flags=("--reply", "chain"), decode_flags=("--token-interval-ms", 20),
                  serve_flags=(*ROBIN, "--migration-limit", "3"))
    whole = complete(pools.server, "pd-migrates", max_tokens=60).json()
    stream = Stream(pools.server, body(60), "pd-migrates").read_tokens(4)
    victim = wait_until(lambda: next((e for e in pools.decode if e.state()["running"]), None), 10, "the decode engine")
    victim.kill()
    stream.read_all()
    stream.expect_complete(whole["choices"][0]["token_ids"])
    assert stream.usage["prompt_tokens"] == 3
    pools.server.wait_metric("fairlead_frontend_model_migration_total", 1, migration_type="ongoing_request")
    pools.restart("decode", victim)
    wait_healthy(pools.server, 3)
    pools.expect_idle()


def test_without_its_only_decode_engine_the_prompt_is_given_up(family, launcher):
    pools = Pools(family, launcher)
    pools.decode[0].set_faults("reset-after:0")
    answer = complete(pools.server)
    assert answer.status_code in (502, 503), answer.text
    pools.decode[0].set_faults()
    wait_healthy(pools.server, 2)
    expect_answers(pools, "only-decode", count=2)
    pools.expect_idle()


def test_concurrent_requests_survive_a_kill_of_one_engine_of_each_kind(family, launcher):
    pools = Pools(family, launcher, 2, 2, flags=("--reply", "chain"), decode_flags=("--token-interval-ms", 10),
                  serve_flags=(*ROBIN, "--migration-limit", "3"))
    count, tokens = 12, 100
    whole = complete(pools.server, max_tokens=tokens).json()["choices"][0]["token_ids"]
    with ThreadPoolExecutor(count) as pool:
        streams = list(pool.map(lambda _: Stream(pools.server, body(tokens)).read_tokens(2), range(count)))
        victims = [("prefill", pools.prefill[0]), ("decode", pools.decode[0])]
        for _, victim in victims:
            victim.kill()
        later = list(pool.map(lambda _: complete(pools.server, max_tokens=tokens), range(4)))
        for stream in pool.map(Stream.read_all, streams):
            stream.expect_complete(whole)
    for answer in later:
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"][0]["token_ids"] == whole
    for role, victim in victims:
        pools.restart(role, victim)
    wait_healthy(pools.server, 4)
    pools.expect_idle()
