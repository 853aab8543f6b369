"""Memory of kv mode: a thousand workers that come and go leave nothing behind, and prompts without end
stay within the bounds of the indexes.

The burst has 20,000 prompts; with FAIRLEAD_LONG=1 it has 200,000.
"""

import itertools
import json
import os
import statistics
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from fairlead import CardFolder, scaled, wait_until
from fairlead.launcher import ROOT
from fairlead.waiting import TIME_SCALE
from test_kv_routing import BLOCK, engine_blocks, prompt, start, states, workers

FOLDER = str(ROOT / "share/demo")
LONG = os.environ.get("FAIRLEAD_LONG") == "1"
ENGINE = ["--speedup-ratio", "0", "--block-size", BLOCK]
MIB = 1 << 20
BOUNDED = ("kv_index_bytes", "kv_index_blocks", "kv_routed_bytes", "kv_routed_blocks")

BATCH = 50  # workers at a time
WARM_UP = 15  # rounds
ROUNDS = 20
SESSIONS = 20  # of each batch
KEPT = 1000  # prompts of 500 blocks that are sent to a worker that stays


class Sender:
    """Sends completions over connections that stay open, as many at a time as asked for."""

    def __init__(self, server, at_once):
        self._client = httpx.Client(base_url=server.base_url, trust_env=False, timeout=scaled(60))
        self._pool = ThreadPoolExecutor(at_once)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def post(self, text, headers=None):
        answer = self._client.post("/v1/completions", content=text,
                                   headers={"content-type": "application/json", **(headers or {})})
        assert answer.status_code == 200, answer.text[:500]

    def post_all(self, requests):
        """Requests as (text, headers)."""
        for _ in self._pool.map(lambda request: self.post(*request), requests):
            pass


def body(tokens):
    return json.dumps({"model": "demo", "prompt": tokens, "max_tokens": 1, "ignore_eos": True})


def long_prompt(number):
    return body([10 + number] + [7] * (500 * BLOCK - 1))


def churn(server, sender, cards, engine, serial, numbers):
    """Workers nobody has seen before join, are used in every way and leave again. All are the same
    engine, by as many addresses of the loopback."""
    names = []
    for number in itertools.islice(serial, BATCH):
        names.append(f"w{number}")
        cards.put(names[-1], f"http://127.1.{number // 250}.{1 + number % 250}:{engine.port}")
    wait_until(lambda: len(workers(server)) == BATCH + 1 and "connecting" not in states(server).values(), 30,
               "the workers of a batch")
    pinned = [{"x-dynamo-worker-instance-id": str(worker)} for worker in workers(server).values()]
    bound = [{"x-dynamo-session-id": f"session-{next(numbers)}"} for _ in range(SESSIONS)]
    sender.post_all((body(prompt(next(numbers))), headers) for headers in pinned + bound)
    if "approximate" not in states(server).values():
        engine.wait_idle()
        held = engine_blocks(engine)
        wait_until(lambda: [view.value for view in views(server)].count(held) == BATCH, 20,
                   "every view to equal the engine's cache")
    for name in names:
        cards.remove(name)
    wait_until(lambda: len(views(server)) == 1, 20, "the batch to be gone")


def views(server):
    return server.metrics().samples("fairlead_frontend_kv_view_blocks")


def look(server):
    """What may not grow with the number of workers that ever were."""
    metrics = server.metrics()
    return {"series": {(sample.name, *sample.labels.items()) for sample in metrics.all},
            "files": server.process.open_files(),
            **{name: metrics.value(f"fairlead_frontend_{name}") for name in BOUNDED}}


@pytest.mark.parametrize("events", [True, False], ids=["events", "approximate"])
def test_a_thousand_workers_leave_nothing_behind(mock_engine, serve, tmp_path, events):
    publish = ["--kv-events", "0.0.0.0:0", "--kv-replay", "0.0.0.0:0"] if events else []
    stays = mock_engine(*ENGINE, "--num-gpu-blocks", KEPT * 400, *publish, model="demo")
    # The history that every worker replays is bounded, and covers what the engine has cached.
    engine = mock_engine(*ENGINE, "--num-gpu-blocks", "300", *publish, "--kv-events-buffer-steps", "20",
                         model="demo", listen="0.0.0.0:0")
    cards = CardFolder(tmp_path / "cards")
    server = serve([], *cards.flags, "--router-mode", "kv", "--router-session-affinity-ttl-secs", "3600",
                   "--router-ttl-secs", "3600", "--router-predicted-ttl-secs", "3600", model_path=FOLDER)
    cards.put("stays", stays.url)
    server.wait_model("demo")
    serial, numbers = itertools.count(), itertools.count()
    resident, looks = [], []
    with Sender(server, 4) as sender:
        sender.post_all((long_prompt(number), None) for number in range(KEPT))
        for _ in range(WARM_UP + ROUNDS):
            churn(server, sender, cards, engine, serial, numbers)
            resident.append(server.process.rss_bytes())
            looks.append(look(server))
    print("MiB resident after each round:", *(f"{size / MIB:.1f}" for size in resident))
    before, after = looks[WARM_UP - 1], looks[-1]
    assert after["series"] == before["series"], "no series of a worker that is gone"
    assert after["files"] <= before["files"] + 5
    assert after["kv_index_bytes"] <= 1.01 * before["kv_index_bytes"]
    assert after["kv_index_blocks"] <= 1.01 * before["kv_index_blocks"]
    # Prompts of the rounds that went to the worker that stays, whose own they are now.
    assert after["kv_routed_blocks"] <= before["kv_routed_blocks"] + ROUNDS * (SESSIONS + 1) * 4
    # What the allocator keeps for the next round differs a little from round to round.
    early, late = statistics.median(resident[WARM_UP - 10:WARM_UP]), statistics.median(resident[-10:])
    assert TIME_SCALE != 1 or late <= 1.05 * early, f"{early} bytes resident, then {late}"


PROMPTS = 200_000 if LONG else 20_000
PER_REQUEST = 100
AT_ONCE = 4
STEPS = 40
BLOCKS = 8  # of each prompt
TREE_BLOCKS = 1 << 20 if LONG else 100_000
INDEX_MIB = 32 if LONG else 4


def distinct_prompts(first):
    """Text of one request of prompts of which no two share a block."""
    tail = ",7" * (BLOCKS * BLOCK - 1)
    prompts = (f"[{10 + n % 1000},{10 + n // 1000}{tail}]" for n in range(first, first + PER_REQUEST))
    return f'{{"model":"demo","max_tokens":1,"ignore_eos":true,"prompt":[{",".join(prompts)}]}}'


@pytest.mark.parametrize("events", [True, False], ids=["events", "approximate"])
def test_a_burst_of_distinct_prompts_stays_within_the_bounds(mock_engine, serve, events):
    publish = ["--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0"]
    engines = [mock_engine(*ENGINE, "--num-gpu-blocks", 2 * PROMPTS * BLOCKS, *(publish if events else []),
                           model="demo") for _ in range(2)]
    server = start(serve, engines, "--router-max-tree-size", TREE_BLOCKS, "--router-index-limit-mb", INDEX_MIB)
    before = server.process.rss_bytes()
    looks, resident = [], []

    def look_again():
        looks.append(look(server))
        resident.append(server.process.rss_bytes() - before)

    with Sender(server, AT_ONCE) as sender:
        for step in range(STEPS):
            first = step * PROMPTS // STEPS
            sender.post_all((distinct_prompts(first + at), None)
                            for at in range(0, PROMPTS // STEPS, PER_REQUEST))
            look_again()
    if events:
        published = sum(rank["kv_event_batches"] for engine in engines for rank in engine.state()["ranks"])
        server.wait_metric("fairlead_frontend_kv_event_stream_total", published, 60, event="batch")
        look_again()
        assert server.metrics().value("fairlead_frontend_kv_cache_events_applied", status="index_full") > 0
        # The whole log: what is kept in memory ends long after that line.
        said = server.process.log_file.read_text().count("index of its worker set has reached")
        assert said == 1, "said once per worker set"
        # A table that grows has to fit in beside its successor.
        assert looks[-1]["kv_index_bytes"] > 0.7 * INDEX_MIB * MIB
    most = {name: max(seen[name] for seen in looks) for name in BOUNDED}
    print(f"{PROMPTS} prompts: most {most}; MiB resident above the start:",
          *(f"{size / MIB:.1f}" for size in resident))
    assert most["kv_index_bytes"] <= INDEX_MIB * MIB
    assert most["kv_routed_blocks"] <= TREE_BLOCKS + AT_ONCE * PER_REQUEST * BLOCKS
    assert most["kv_routed_bytes"] <= 60 * TREE_BLOCKS, "a block of so short a prompt costs some 30 bytes"
    if not events:
        assert looks[-1]["kv_routed_blocks"] >= 0.8 * TREE_BLOCKS, "what is latest is remembered"
    bound = most["kv_index_bytes"] + most["kv_routed_bytes"] + 32 * MIB
    assert TIME_SCALE != 1 or max(resident) <= bound, f"{max(resident)} bytes more resident than at the start"
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
