"""Kv mode with engines that are driven over HTTP: what their metrics and first events tell."""

import contextlib

import httpx
import pytest
from fairlead import CardFolder, scaled, wait_until
from test_kv_routing import (BLOCK, EVENTS, FOLDER, complete, engine_blocks, prompt, states, wait_choices,
                             workers)

USED = "fairlead_frontend_worker_kv_used_blocks"
POLLS = "fairlead_frontend_engine_load_polls_total"
# All but one block can be used.
BLOCKS = 65


def start_engines(mock_engine, count, *flags, flavor="python-0.32", backend="vllm-http"):
    return [mock_engine("--speedup-ratio", "0", "--block-size", BLOCK, *flags, model="demo", backend=backend,
                        flavor=flavor if backend == "vllm-http" else None) for _ in range(count)]


def start(serve, engines, *flags, backend="vllm-http"):
    server = serve(engines, "--router-mode", "kv", *flags, backend=backend, model_path=FOLDER)
    wait_until(lambda: len(workers(server)) == len(engines), 20, "every worker in routing")
    return server


@contextlib.contextmanager
def another_frontends_request(engine, blocks):
    """Occupies blocks of the engine, past the frontend, for as long as the context lasts."""
    engine.set_faults("slow:200")
    body = {"token_ids": prompt(1000, blocks), "stream": True,
            "sampling_params": {"max_tokens": 300, "ignore_eos": True}}
    with httpx.stream("POST", engine.url + "/inference/v1/generate", json=body, trust_env=False,
                      timeout=scaled(60)) as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()  # closes the connection when it is forgotten
        assert "error" not in next(lines)
        yield
    engine.set_faults()


def set_threshold(server, value):
    answer = server.post("/busy_threshold", {"model": "demo", "active_decode_blocks_threshold": value})
    assert answer.status_code == 200, answer.text


def refused(server):
    answer = server.post("/v1/completions", {"model": "demo", "prompt": prompt(1), "max_tokens": 1})
    assert answer.status_code in (200, 503), answer.text
    return answer.status_code == 503


def test_blocks_that_the_engine_reports_in_use_count_against_the_threshold(mock_engine, serve):
    engine, = start_engines(mock_engine, 1, "--num-gpu-blocks", BLOCKS)
    server = start(serve, [engine])
    complete(server, prompt(1))
    metrics = server.metrics()
    assert not metrics.samples(USED) and metrics.value(POLLS) == 0, "nobody asks while nobody needs it"
    set_threshold(server, 0.5)
    wait_until(lambda: server.metrics().samples(USED), 10, "the engine's report")
    assert not refused(server)
    with another_frontends_request(engine, 40):
        wait_until(lambda: server.metrics().value(USED) >= 40, 10, "the blocks in use")
        assert server.metrics().value("fairlead_frontend_worker_active_decode_blocks") == 0
        assert refused(server)
        set_threshold(server, 0.9)
        assert not refused(server)
        set_threshold(server, 0.5)
        assert refused(server)
    wait_until(lambda: server.metrics().value(USED) == 0, 10, "the blocks to be free")
    assert not refused(server)
    metrics = server.metrics()
    assert metrics.value(POLLS, result="success") > 0 and metrics.value(POLLS, result="failure") == 0
    set_threshold(server, None)
    wait_until(lambda: not server.metrics().samples(USED), 10, "the report to be forgotten")


def test_a_card_names_the_blocks_that_a_rust_server_does_not_tell(mock_engine, serve, tmp_path):
    engine, = start_engines(mock_engine, 1, "--num-gpu-blocks", BLOCKS, flavor="rust-0.33")
    cards = CardFolder(tmp_path / "cards")
    cards.put("a", f"vllm-http={engine.url}", runtime_config={"total_kv_blocks": BLOCKS})
    server = serve([], *cards.flags, "--router-mode", "kv", "--active-decode-blocks-threshold", "0.5",
                   model_path=FOLDER)
    wait_until(lambda: workers(server), 20, "the worker")
    assert not refused(server)
    with another_frontends_request(engine, 40):
        wait_until(lambda: server.metrics().value(USED) >= 40, 10, "the blocks in use")
        assert refused(server)


@pytest.mark.parametrize("backend, flavor", [("vllm-http", "rust-0.33"), ("vllm", None)])
def test_engines_that_cannot_tell_are_not_asked(mock_engine, serve, backend, flavor):
    engines = start_engines(mock_engine, 1, backend=backend, flavor=flavor)
    server = start(serve, engines, "--active-decode-blocks-threshold", "0.5", backend=backend)
    for number in range(3):
        complete(server, prompt(number))
    other = start_engines(mock_engine, 1, "--num-gpu-blocks", BLOCKS)
    asked = start(serve, other, "--active-decode-blocks-threshold", "0.5")
    complete(asked, prompt(1))
    wait_until(lambda: asked.metrics().value(POLLS) >= 2, 10, "an engine that can tell to be asked")
    assert server.metrics().value(POLLS) == 0 and not server.metrics().samples(USED)


def test_the_first_events_tell_the_size_of_the_blocks(mock_engine, serve):
    engines = start_engines(mock_engine, 2, *EVENTS, flavor="rust-0.33")
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    server.process.wait_log("load alone decides until their first event tells it")
    assert not server.metrics().samples("fairlead_frontend_kv_view_state")
    complete(server, prompt(1))
    server.process.wait_log(f"have {BLOCK} tokens, as the events of worker_")
    ids = workers(server)
    wait_until(lambda: all(server.metrics().value("fairlead_frontend_kv_view_blocks", worker_id=str(ids[e.url])) ==
                           engine_blocks(e) for e in engines) and
               set(states(server).values()) <= {"live", "no_events"}, 20, "what was announced before, too")
    complete(server, prompt(1))
    first, again = wait_choices(server, 2)
    assert again == (first[0], 0, 4, 5)
    assert "they are left out of routing" not in server.process.log_text()


def test_an_engine_with_blocks_of_another_size_is_named(mock_engine, serve):
    engines = [*start_engines(mock_engine, 1, *EVENTS, flavor="rust-0.33"),
               mock_engine("--speedup-ratio", "0", "--block-size", 2 * BLOCK, *EVENTS, model="demo",
                           backend="vllm-http", flavor="rust-0.33")]
    server = start(serve, engines)
    ids = workers(server)
    first, other = ({"x-dynamo-worker-instance-id": str(ids[engine.url])} for engine in engines)
    complete(server, prompt(1), headers=first)
    server.process.wait_log(f"have {BLOCK} tokens, as the events of worker_{ids[engines[0].url]} say")
    complete(server, prompt(1), headers=other)
    server.process.wait_log(f"KV events of worker_{ids[engines[1].url]} dp_rank=0: 2 blocks of {2 * BLOCK} tokens")
    assert server.metrics().value("fairlead_frontend_kv_view_blocks", worker_id=str(ids[engines[1].url])) == 0
