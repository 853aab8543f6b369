"""Routing by KV cache: prompts return to the engine that has them, and the view follows the engines."""

import itertools
import random
import re

import httpx
import pytest
from fairlead import scaled, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
BLOCK = 16
EVENTS = ["--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0"]
BEST = re.compile(r"\[ROUTING\] Best: worker_(\d+) dp_rank=(\d+) with (\d+)/(\d+) blocks overlap")


def start_engines(mock_engine, count, *flags, events=True):
    return [mock_engine("--speedup-ratio", "0", "--block-size", BLOCK, *(EVENTS if events else []), *flags,
                        model="demo") for _ in range(count)]


def start(serve, engines, *flags):
    server = serve(engines, "--router-mode", "kv", *flags, model_path=FOLDER)
    def ready():
        instances = server.get("/health").json()["instances"]
        return (len(workers(server)) == len(engines) and
                all(view["state"] != "connecting" for instance in instances for view in instance["kv_views"]))
    wait_until(ready, 20, "every worker in routing and its view connected")
    return server


def workers(server):
    """Worker id by engine URL, of those in routing."""
    return {i["endpoint"]: i["worker_id"] for i in server.get("/health").json()["instances"] if i["healthy"]}


def prompt(number, blocks=4, tail=5):
    """A prompt of its own of so many full blocks and a tail."""
    rng = random.Random(number)
    return [rng.randrange(10, 2000) for _ in range(blocks * BLOCK + tail)]


def complete(server, tokens, headers=None, **fields):
    """The body of the answer to a prompt of token ids."""
    answer = server.post("/v1/completions", {"model": "demo", "prompt": tokens, "max_tokens": 1,
                                             "ignore_eos": True, **fields}, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def choices(server, after=0):
    """(worker, rank, overlap, blocks) of every choice in the log."""
    return [tuple(map(int, found.groups())) for found in BEST.finditer(server.process.log_text(after))]


def wait_choices(server, count):
    """The first choices, once there are so many: lines are written by a thread of their own."""
    return wait_until(lambda: len(seen := choices(server)) >= count and seen, 10, f"{count} choices")[:count]


def last_choice(server, count):
    return wait_choices(server, count)[-1]


def settle(server, engines, lost=0):
    """Waits until every batch of events was applied, each view holds as many blocks as its engine has, and
    it is known that engines which told something do. `lost` batches are those of engines that are gone."""
    def agree():
        told = {engine: [rank["kv_event_batches"] for rank in engine.state()["ranks"]] for engine in engines}
        metrics, ids = server.metrics(), workers(server)
        silent = {view for view, state in states(server).items() if state == "no_events"}
        return (metrics.value("fairlead_frontend_kv_event_stream_total", event="batch") == sum(map(sum, told.values())) + lost
                and not any(count and (ids[engine.url], rank) in silent
                            for engine in engines for rank, count in enumerate(told[engine]))
                and all(metrics.value("fairlead_frontend_kv_view_blocks", worker_id=str(ids[engine.url]))
                        == engine_blocks(engine) for engine in engines))
    wait_until(agree, 20, "the views to equal the engines' caches")


def engine_blocks(engine):
    """Blocks the engine has cached, each hash once."""
    kv = engine.kv()
    assert not kv["truncated"]
    return len({block for chain in kv["chains"] for block in chain["block_hashes"]})


def reset_cache(engine):
    answer = httpx.post(f"http://{engine.addresses['debug']}/debug/reset_prefix_cache", trust_env=False,
                        timeout=scaled(10))
    assert answer.json()["success"]


def states(server):
    """State of every rank's view by worker id and rank."""
    return {(int(s.labels["worker_id"]), int(s.labels["dp_rank"])): s.labels["state"]
            for s in server.metrics().samples("fairlead_frontend_kv_view_state")}


@pytest.mark.parametrize("count", [2, 8])
def test_a_prompt_returns_to_the_engine_that_has_it(mock_engine, serve, count):
    engines = start_engines(mock_engine, count)
    server = start(serve, engines, "--router-predicted-ttl-secs", "0", "--router-seed", "3")
    homes, prompts = {}, 16
    for number in range(prompts):
        complete(server, prompt(number))
        homes[number], rank, overlap, total = last_choice(server, number + 1)
        assert (rank, overlap, total) == (0, 0, 5)
    assert len(set(homes.values())) > 1, "idle engines share distinct prompts"
    settle(server, engines)
    for turn, number in enumerate(random.Random(1).sample(range(prompts), prompts)):
        assert cached(complete(server, prompt(number))) == 4 * BLOCK
        assert last_choice(server, prompts + turn + 1) == (homes[number], 0, 4, 5)
    # A longer one of the same beginning goes there, too.
    longer = prompt(0)[:3 * BLOCK] + prompt(99)
    assert cached(complete(server, longer)) == 3 * BLOCK
    assert last_choice(server, 2 * prompts + 1)[0] == homes[0]
    metrics = server.metrics()
    assert metrics.value("fairlead_frontend_kv_believed_cached_tokens_total") == metrics.value("fairlead_frontend_kv_reported_cached_tokens_total")
    assert metrics.value("fairlead_frontend_kv_misprediction_ratio") == 0
    assert metrics.value("fairlead_frontend_router_picks_total", reason="overlap") == prompts + 1
    assert metrics.value("fairlead_frontend_router_picks_total", reason="least_loaded") == prompts
    rate = metrics.samples("fairlead_frontend_router_kv_hit_rate_count")
    assert sum(sample.value for sample in rate) == 2 * prompts + 1
    for step in ("block_hashing", "indexer_find_matches", "scheduling", "total"):
        name = f"fairlead_frontend_router_overhead_{step}_ms"
        assert metrics.value(name + "_count", model="demo") == 2 * prompts + 1
        assert metrics.value(name + "_sum", model="demo") > 0
    parts = sum(metrics.value(f"fairlead_frontend_router_overhead_{step}_ms_sum", model="demo")
                for step in ("block_hashing", "indexer_find_matches", "scheduling"))
    assert parts <= metrics.value("fairlead_frontend_router_overhead_total_ms_sum", model="demo")
    for name in ("worker_active_decode_blocks", "worker_active_prefill_tokens"):
        server.wait_metric(f"fairlead_frontend_{name}", 0)


def test_adapters_and_salts_have_prefixes_of_their_own(mock_engine, serve):
    engines = start_engines(mock_engine, 2)
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    counted = itertools.count(1)
    for salt in ("", "tenant-a", "tenant-b"):
        complete(server, prompt(1), cache_salt=salt or None)
        assert last_choice(server, next(counted))[2] == 0
        settle(server, engines)
        assert cached(complete(server, prompt(1), cache_salt=salt or None)) == 4 * BLOCK
        assert last_choice(server, next(counted))[2] == 4


def test_the_view_follows_eviction_and_reset(mock_engine, serve):
    engines = start_engines(mock_engine, 2, "--num-gpu-blocks", "40")
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    for number in range(40):
        complete(server, prompt(number))
    settle(server, engines)
    assert sum(map(engine_blocks, engines)) <= 80
    for number in range(40):
        answer = complete(server, prompt(number))
        assert cached(answer) == last_choice(server, 41 + number)[2] * BLOCK
        settle(server, engines)
    for engine in engines:
        engine.wait_idle()
        reset_cache(engine)
    # The engines announce it with their next step.
    ids = workers(server)
    for engine in engines:
        complete(server, prompt(200), {"x-dynamo-worker-instance-id": str(ids[engine.url])})
    settle(server, engines)
    assert cached(complete(server, prompt(39))) == 0
    assert last_choice(server, 81)[2] == 0  # named workers have no line


def test_an_engine_that_restarts_is_empty(mock_engine, serve):
    engines = start_engines(mock_engine, 2)
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    complete(server, prompt(1))
    settle(server, engines)
    home = last_choice(server, 1)[0]
    url = next(url for url, worker in workers(server).items() if worker == home)
    victim = next(engine for engine in engines if engine.url == url)
    victim.kill()
    lost = server.metrics().value("fairlead_frontend_kv_event_stream_total", event="batch")
    wait_until(lambda: home not in workers(server).values(), 20, "the dead engine to leave")
    complete(server, prompt(1))
    assert last_choice(server, 2)[0] != home, "no request for a dead engine"
    back = start_engines(mock_engine, 0) or mock_engine(
        "--speedup-ratio", "0", "--block-size", BLOCK, *EVENTS, model="demo", listen=victim.address)
    wait_until(lambda: home in workers(server).values(), 20, "the engine to come back")
    engines[engines.index(victim)] = back
    settle(server, engines, lost)
    assert server.metrics().value("fairlead_frontend_kv_view_blocks", worker_id=str(home)) == 0
    assert cached(complete(server, prompt(1))) == 4 * BLOCK
    assert last_choice(server, 3)[0] != home


def test_a_burst_of_one_prompt_stays_together(mock_engine, serve):
    """Prompts that are still being computed elsewhere count, before any event can tell."""
    engines = start_engines(mock_engine, 4)
    server = start(serve, engines)
    complete(server, prompt(1, blocks=100))
    first = last_choice(server, 1)
    complete(server, prompt(1, blocks=100))
    again = last_choice(server, 2)
    assert (again[0], again[2]) == (first[0], 100)


def test_engines_without_events_are_approximated_and_said_so(mock_engine, serve):
    engines = start_engines(mock_engine, 2, events=False)
    server = start(serve, engines, "--router-seed", "3")
    server.process.wait_log(r"publishes no KV events", 10)
    assert set(states(server).values()) == {"approximate"}
    for number in range(16):
        complete(server, prompt(number))
    homes = [choice[0] for choice in wait_choices(server, 16)]
    assert len(set(homes)) == 2
    for number in range(16):
        assert cached(complete(server, prompt(number))) == 4 * BLOCK
        assert last_choice(server, 17 + number)[:3] == (homes[number], 0, 4)
    assert len(re.findall("publishes no KV events", server.process.log_text())) == 2, "once per worker"


def test_events_that_are_wrong_persistently_lose_their_trust(mock_engine, serve):
    """The engine forgets everything and its events do not say so."""
    engine = mock_engine("--speedup-ratio", "0", "--block-size", BLOCK, "--kv-events", "127.0.0.1:0", model="demo")
    server = start(serve, [engine], "--router-predicted-ttl-secs", "0")
    for number in range(40):
        complete(server, prompt(number))
    settle(server, [engine])
    assert list(states(server).values()) == ["live"]
    engine.set_faults("drop-event:1")
    engine.wait_idle()
    reset_cache(engine)
    ratios = []
    for number in range(40):
        complete(server, prompt(number))
        ratios.append(server.metrics().value("fairlead_frontend_kv_misprediction_ratio"))
    assert max(ratios) > 0.2
    server.process.wait_log(r"worker_\d+ dp_rank=0: \d+ % of the prompts were cached otherwise", 10)
    wait_until(lambda: list(states(server).values()) == ["distrusted"], 10, "a view that does not count")
    # What was routed there since counts, and the fallback is visible.
    picks = server.metrics().value("fairlead_frontend_router_picks_total", reason="stale_view")
    complete(server, prompt(300))
    complete(server, prompt(300))
    assert last_choice(server, 82)[2] == 4
    assert server.metrics().value("fairlead_frontend_router_picks_total", reason="stale_view") >= picks + 1


def test_without_following_events_all_is_approximated(mock_engine, serve):
    engines = start_engines(mock_engine, 2)
    server = start(serve, engines, "--no-router-kv-events")
    complete(server, prompt(1))
    assert cached(complete(server, prompt(1))) == 4 * BLOCK
    assert set(states(server).values()) == {"approximate"}
    assert "publishes no KV events" not in server.process.log_text()


def test_ranks_are_told_apart(mock_engine, serve):
    engines = start_engines(mock_engine, 1, "--data-parallel-size", "4")
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    for number in range(12):
        complete(server, prompt(number))
    seen = wait_choices(server, 12)
    assert len({rank for _, rank, _, _ in seen}) > 1
    wait_until(lambda: server.metrics().value("fairlead_frontend_kv_view_blocks") == 48, 10, "the blocks of all ranks")
    assert len(states(server)) == 4
    for number in range(12):
        assert cached(complete(server, prompt(number))) == 4 * BLOCK
        assert last_choice(server, 13 + number) == (seen[number][0], seen[number][1], 4, 5)


def test_a_session_stays_where_it_began(mock_engine, serve):
    engines = start_engines(mock_engine, 3)
    server = start(serve, engines, "--router-session-affinity-ttl-secs", "600")
    header = {"x-dynamo-session-id": "chat-1"}
    for number in range(9):
        complete(server, prompt(number), header)
    served = sorted(engine.state()["requests_total"] for engine in engines)
    assert served == [0, 0, 9]
    assert server.metrics().value("fairlead_frontend_router_picks_total", reason="affinity") == 8


def test_a_client_that_leaves_gives_its_booking_back(mock_engine, serve):
    """Whatever ends a request, its booking is given back."""
    engines = start_engines(mock_engine, 2, "--token-interval-ms", "20")
    server = start(serve, engines)
    with server.client() as client:
        streams = [client.completions.create(model="demo", prompt=prompt(number), max_tokens=500, stream=True,
                                             extra_body={"ignore_eos": True}) for number in range(8)]
        for stream in streams:
            next(stream)
        assert server.metrics().value("fairlead_frontend_worker_active_decode_blocks") >= 32
        assert server.metrics().value("fairlead_frontend_worker_active_prefill_tokens") == 0
        for stream in streams:
            stream.close()
    for engine in engines:
        engine.wait_idle()
    server.wait_metric("fairlead_frontend_worker_active_decode_blocks", 0)
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
