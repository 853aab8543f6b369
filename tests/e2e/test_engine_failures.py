"""Engines that die, hang or are cut off among others: who notices, and what becomes of the requests.

FAIRLEAD_LONG=1 measures what a hung engine costs the others, and stays silent for ten minutes.
"""

import json
import os
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fairlead import CardFolder, scaled, wait_until
from fairlead.families import (
    FOLDER,
    Stream,
    body,
    chain,
    complete,
    expect_idle,
    formula,
    healthy,
    request_id,
    wait_healthy,
)
from fairlead.fault_proxy import UP, black_hole, cut, half_open, reset
from wire import WireEngine

LONG = os.environ.get("FAIRLEAD_LONG") == "1"
SILENCE = 600 if LONG else 3
BLOCK = 16
EVENTS = ("--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0", "--block-size", BLOCK)


def wait_running(engines, count):
    """Waits until so many requests run; how many on each engine."""
    return wait_until(lambda: sum(running := [e.state()["running"] for e in engines]) == count and running, 20,
                      f"{count} running requests")


# PD-4: kill -9 of one of three engines under load.


def test_PD4_without_migration_only_the_streams_of_a_killed_engine_fail(family, launcher):
    count, tokens = 24, 800
    engines = [family.engine(launcher, "--token-interval-ms", "10") for _ in range(3)]
    server = family.serve(launcher, engines, "--router-mode", "round-robin")
    wait_healthy(server, 3)
    with ThreadPoolExecutor(count) as pool:
        streams = list(pool.map(lambda i: Stream(server, body(tokens), f"pd4-{i}").read_tokens(2), range(count)))
    assert wait_running(engines, count) == [count // 3] * 3
    victim, others = engines[0], engines[1:]
    victim.kill()
    # What comes now goes elsewhere, from the first request on.
    later = [complete(server, f"pd4-later-{i}", max_tokens=3) for i in range(6)]
    assert [answer.status_code for answer in later] == [200] * 6
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(Stream.read_all, streams))
    failed = [i for i, stream in enumerate(streams) if stream.errors]
    assert len(failed) == count // 3
    for i, stream in enumerate(streams):
        if i in failed:
            stream.expect_failed(formula(f"pd4-{i}", len(stream.tokens)), "engine_disconnected")
            assert 2 <= len(stream.tokens) < tokens
        else:
            stream.expect_complete(formula(f"pd4-{i}", tokens))
    assert sum(engine.state()["aborted_total"] for engine in others) == 0
    expect_idle(server, *others)
    back = family.engine(launcher, "--token-interval-ms", "10", listen=victim.address)
    wait_healthy(server, 3)
    for i in range(6):
        assert complete(server, max_tokens=2).status_code == 200
    assert back.state()["requests_total"] == 2


def test_PD4_with_migration_no_stream_fails(family, launcher):
    count, tokens = 24, 600
    engines = [family.engine(launcher, "--token-interval-ms", "10", "--reply", "chain") for _ in range(3)]
    server = family.serve(launcher, engines, "--router-mode", "round-robin", "--migration-limit", "3")
    wait_healthy(server, 3)
    prompts = [[300 + i, 5, 6, 7] for i in range(count)]
    # The last ones cannot be gone on with exactly: several sequences of one request.
    fixed = [Stream(server, body(tokens, n=2), f"fixed-{i}") for i in range(3)]
    with ThreadPoolExecutor(count) as pool:
        streams = list(pool.map(lambda prompt: Stream(server, body(tokens, prompt=prompt)).read_tokens(2), prompts))
    for stream in fixed:
        stream.read_tokens(4)
    running = wait_running(engines, count + 6)
    engines[0].kill()
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(Stream.read_all, [*streams, *fixed]))
    for prompt, stream in zip(prompts, streams, strict=True):
        stream.expect_complete(chain(prompt, tokens))
        assert stream.usage["prompt_tokens"] == len(prompt), "what was replayed is no prompt"
    whole = complete(server, prompt=prompts[0], max_tokens=tokens).json()["choices"][0]
    assert whole["token_ids"] == streams[0].tokens
    assert whole["text"] == "".join(choice["text"] for chunk in streams[0].chunks for choice in chunk["choices"])
    broken = [stream for stream in fixed if stream.errors]
    assert all(stream.done and [e["code"] for e in stream.errors] == ["engine_disconnected"] for stream in broken)
    moved = server.metrics().value("fairlead_frontend_model_migration_total", migration_type="ongoing_request")
    assert 0 < running[0] - 6 <= moved <= running[0]
    expect_idle(server, *engines[1:])


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_PD4_a_pair_that_loses_its_decode_engine_goes_on_in_another(family, launcher, stream):
    tokens, prompt = 150, [300, 5, 6, 7]
    prefills, decodes = family.pairs(launcher, 2, 2, "--token-interval-ms", "10", "--reply", "chain")
    server = family.serve_pairs(launcher, prefills, decodes, "--migration-limit", "3")
    with ThreadPoolExecutor(1) as pool:
        if stream:
            answer = pool.submit(lambda: Stream(server, body(tokens, prompt=prompt)).read_all())
        else:
            answer = pool.submit(complete, server, prompt=prompt, max_tokens=tokens)
        wait_until(lambda: server.metrics().value("fairlead_frontend_output_tokens_total") >= 20, 10, "some output")
        victim = next(engine for engine in decodes if engine.state()["running"])
        victim.kill()
        answer = answer.result(scaled(30))
    if stream:
        answer.expect_complete(chain(prompt, tokens))
    else:
        choice = answer.json()["choices"][0]
        assert (choice["token_ids"], choice["prompt_token_ids"]) == (chain(prompt, tokens), prompt)
        assert answer.json()["usage"]["completion_tokens"] == tokens
    expect_idle(server, *prefills, *(e for e in decodes if e is not victim))


# PD-5: an engine that accepts and never answers.

WATCH = ("--engine-health-interval-secs", "0.2", "--engine-health-timeout-secs", "0.5", "--engine-retry-interval-secs",
         "0.2", "--engine-probe-timeout-secs", "1", "--router-seed", "1")


def hang(how, engine, proxy):
    """Makes the engine hang; what ends that."""
    if how == "frozen":
        engine.process.freeze()
        return engine.process.thaw
    proxy.plan(black_hole())
    proxy.strike(half_open())
    return proxy.clear


@pytest.mark.parametrize("how", ["frozen", "cut-off"])
@pytest.mark.parametrize("mode", ["round-robin", "kv", "least-loaded"])
def test_PD5_a_hung_engine_leaves_within_its_time_and_comes_back(family, launcher, fault_proxy, mode, how):
    engines = [family.engine(launcher, *EVENTS) for _ in range(3)]
    proxy = fault_proxy(engines[2])
    server = family.serve(launcher, [*engines[:2], proxy], *WATCH, "--router-mode", mode)
    wait_healthy(server, 3)
    end = hang(how, engines[2], proxy)
    # Two silent checks, each after a pause; the rest is for a busy machine.
    wait_until(lambda: proxy.url not in healthy(server), 5, "the hung engine to leave")
    assert len(healthy(server)) == 2
    before = sum(engine.state()["requests_total"] for engine in engines[:2])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: complete(server, f"pd5-{i}", max_tokens=4, prompt=[300 + i, 5, 6]), range(40)))
    assert [answer.status_code for answer in answers] == [200] * 40
    assert [answer.json()["choices"][0]["token_ids"] for answer in answers] == [formula(f"pd5-{i}", 4) for i in range(40)]
    assert sum(engine.state()["requests_total"] for engine in engines[:2]) == before + 40, "none was sent to it"
    expect_idle(server, *engines[:2])
    end()
    wait_healthy(server, 3)
    assert complete(server, max_tokens=2).status_code == 200
    expect_idle(server, *engines)


def latencies(server, count, clients=8):
    """Seconds of each of so many short requests, so many at a time."""
    with httpx.Client(base_url=server.base_url, trust_env=False, timeout=scaled(30)) as client:
        def one(_):
            begun = time.monotonic()
            assert client.post("/v1/completions", json=body(4)).status_code == 200
            return time.monotonic() - begun
        with ThreadPoolExecutor(clients) as pool:
            return list(pool.map(one, range(count)))


@pytest.mark.timeout(600)
@pytest.mark.skipif(not LONG, reason="a measurement; FAIRLEAD_LONG=1 makes it")
def test_PD5_a_hung_engine_costs_the_others_nothing(family, launcher):
    differences = []
    engines = [family.engine(launcher) for _ in range(3)]
    server = family.serve(launcher, engines, *WATCH)
    for pair in range(5):
        p99 = {}
        for hung in (False, True) if pair % 2 else (True, False):
            if hung:
                engines[2].process.freeze()
                wait_healthy(server, 2)
            else:
                wait_healthy(server, 3)
            p99[hung] = statistics.quantiles(latencies(server, 2000), n=100)[98]
            if hung:
                engines[2].process.thaw()
                wait_healthy(server, 3)
        differences.append((p99[True] - p99[False]) * 1000)
    print(f"p99 with a hung engine minus p99 without, ms: {[round(d, 2) for d in differences]}")
    assert statistics.median(differences) <= 10
    expect_idle(server, *engines)


# PD-8: silence.


@pytest.mark.parametrize("fault", [reset(0, UP), cut(0, UP), half_open()], ids=["reset", "closed", "swallowed"])
def test_PD8_the_first_request_after_a_connection_was_dropped_silently_succeeds(family, launcher, fault_proxy, fault):
    engine = family.engine(launcher)
    proxy = fault_proxy(engine)
    server = family.serve(launcher, [proxy], "--threads", "1")
    assert complete(server, "first", max_tokens=3).status_code == 200
    quiet_from = time.monotonic()
    wait_until(lambda: time.monotonic() - quiet_from > 1.2, 5, "the connection to be quiet for long enough to be doubted")
    assert proxy.strike(fault, only=lambda connection: connection.number > 1) == 1  # the first one is of the health checks
    begun = time.monotonic()
    answer = complete(server, "second", max_tokens=3)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == formula("second", 3)
    assert time.monotonic() - begun < scaled(8)
    assert engine.state()["requests_total"] == 2
    assert "left routing" not in server.process.log_text()
    expect_idle(server, engine)


def test_PD8_an_engine_announced_a_hundred_times_keeps_load_and_prefixes(family, launcher, tmp_path):
    cards = CardFolder(tmp_path / "cards")
    engines = [family.engine(launcher, *EVENTS, "--token-interval-ms", "20") for _ in range(2)]
    for i, engine in enumerate(engines):
        cards.put(f"engine-{i}", f"{family.backend}={engine.url}")
    server = family.serve(launcher, [], *cards.flags, "--router-mode", "kv")
    wait_healthy(server, 2)
    wait_until(lambda: all(view["state"] != "connecting" for i in server.get("/health").json()["instances"]
                           for view in i["kv_views"]), 20, "the views")
    prompt = list(range(300, 300 + 4 * BLOCK + 3))
    assert complete(server, prompt=prompt, max_tokens=1).status_code == 200
    server.wait_metric("fairlead_frontend_kv_view_blocks", 4)
    stream = Stream(server, body(8000, prompt=prompt), "pd8").read_tokens(2)
    worker = next(i for i, engine in enumerate(engines) if engine.state()["running"])

    def load():
        metrics = server.metrics()
        return [metrics.value(f"fairlead_frontend_{name}") for name in
                ("worker_active_decode_blocks", "worker_inflight_requests", "kv_view_blocks")]

    before = load()
    assert before[0] >= 4 and before[1] == 1
    mark = server.process.log_mark()
    for turn in range(100):
        cards.put(f"engine-{worker}", f"{family.backend}={engines[worker].url}", **({"max_model_len": 8000 + turn} if turn % 2 else {}))
        assert len(healthy(server)) == 2
    assert load()[0] >= before[0] and load()[1] == 1 and load()[2] >= before[2], (before, load())
    answer = complete(server, prompt=prompt, max_tokens=1)
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 4 * BLOCK
    assert engines[worker].state()["requests_total"] == 3, "the prefix is still known to be there"
    assert "left routing" not in server.process.log_text(mark)
    stream.read_tokens(len(stream.tokens) + 10)
    assert stream.tokens == formula("pd8", len(stream.tokens))
    stream.close()
    expect_idle(server, *engines)


def test_PD8_a_drain_ends_at_its_deadline_with_a_hung_stream(family, launcher):
    engines = [family.engine(launcher, "--token-interval-ms", "10") for _ in range(2)]
    server = family.serve(launcher, engines, "--router-mode", "round-robin", "--graceful-shutdown-timeout-secs", "3")
    wait_healthy(server, 2)
    engines[0].set_faults("stall-after:5")
    streams = [Stream(server, body(100), f"drain-{i}").read_tokens(2) for i in range(2)]
    hung = 0 if request_id("drain-0") in json.dumps(engines[0].state()["last_requests"]) else 1
    begun = time.monotonic()
    server.process.signal(signal.SIGTERM)
    streams[1 - hung].read_all().expect_complete(formula(f"drain-{1 - hung}", 100))
    streams[hung].read_all()
    streams[hung].expect_failed(formula(f"drain-{hung}", len(streams[hung].tokens)), "service_unavailable")
    assert server.process.wait_exit(15) == 0
    assert time.monotonic() - begun >= 3
    engines[0].wait_state(running=0, aborted_total=1)
    engines[1].wait_state(running=0, finished_total=1)


@pytest.mark.timeout(SILENCE + scaled(120))
def test_PD8_silence_ends_no_connection_and_no_request(launcher, fault_proxy, tmp_path):
    """A server of grpc-core, which ends connections of clients that ping too often."""
    with WireEngine(tmp_path / "wire", "newest", "--model-name", "demo", "--first-id", 256, "--last-id", 2600,
                    "--token-interval-ms", SILENCE * 1000) as engine:
        proxy = fault_proxy(engine.address)
        server = launcher.serve([proxy.url], "--model-name", "demo", "--threads", "1",
                                "--engine-health-timeout-secs", "10", model_path=FOLDER)
        server.wait_model("demo")
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(lambda: Stream(server, body(1)).read_all())
            engine.wait_event("generate")
            connections = [connection.number for connection in proxy.connections()]
            stream = reading.result(scaled(SILENCE + 30))
        assert (stream.errors, stream.finish_reasons, stream.done) == ([], ["length"], True)
        assert [connection.number for connection in proxy.connections()] == connections
        assert proxy.counts.get("close", 0) == 0
        expect_idle(server)
