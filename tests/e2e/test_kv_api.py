"""What kv mode tells of itself and lets be changed: /v1/route, /busy_threshold, /health, /v1/kv/dump."""

import itertools
import json
import struct

import httpx
import pytest
import xxhash
from fairlead import scaled, wait_until
from test_kv_routing import (BLOCK, cached, complete, engine_blocks, last_choice, prompt, settle, start, start_engines,
                             workers)

GAUGES = ("worker_active_decode_blocks", "worker_active_prefill_tokens", "inflight_requests")


def explain(server, tokens, headers=None, **fields):
    """The choice that would be made for a prompt of token ids."""
    answer = server.post("/v1/route", {"model": "demo", "prompt": tokens, **fields}, headers=headers or {})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def nothing_booked(server):
    metrics = server.metrics()
    return all(metrics.value(f"fairlead_frontend_{name}") == 0 for name in GAUGES)


def requests_total(engines):
    return sum(engine.state()["requests_total"] for engine in engines)


def test_a_route_is_what_the_next_request_does(mock_engine, serve):
    engines = start_engines(mock_engine, 3, "--data-parallel-size", "2")
    server = start(serve, engines, "--router-predicted-ttl-secs", "0")
    for number in range(6):
        complete(server, prompt(number))
    settle(server, engines)
    urls = {worker: url for url, worker in workers(server).items()}
    for count, number in enumerate(range(6), 7):
        served = requests_total(engines)
        picks = server.metrics().value("fairlead_frontend_router_picks_total")
        for _ in range(3):
            choice = explain(server, prompt(number))
        assert requests_total(engines) == served and nothing_booked(server)
        assert server.metrics().value("fairlead_frontend_router_picks_total") == picks
        answer = complete(server, prompt(number))
        assert last_choice(server, count) == (choice["worker_id"], choice["dp_rank"], 4, 5)
        assert cached(answer) == choice["cached_tokens"] == 4 * BLOCK
        assert choice["prompt_tokens"] == answer["usage"]["prompt_tokens"] == 4 * BLOCK + 5
        assert choice["overlap_blocks"] == {"device": 4, "host": 0, "disk": 0}
        assert (choice["confirmed_blocks"], choice["total_blocks"], choice["block_size"]) == (4, 5, BLOCK)
        assert (choice["reason"], choice["prefill_tokens"]) == ("overlap", 5)
        assert choice["endpoint"] == urls[choice["worker_id"]]
        candidates = choice["candidates"]
        assert choice["candidates_total"] == len(candidates) == 6
        assert [c["cost"] for c in candidates] == sorted(c["cost"] for c in candidates)
        assert candidates[0]["worker_id"] == choice["worker_id"] and candidates[0]["cost"] == choice["cost"]
        assert {c["kv_view"] for c in candidates} <= {"live", "no_events"}
        assert not any(c["overloaded"] for c in candidates)
        for candidate in candidates:
            terms = candidate["terms"]
            assert candidate["cost"] == pytest.approx(sum(
                terms[term] for term in ("adjusted_prefill", "decode", "requests", "recompute")))
        assert sum(c["overlap_blocks"]["device"] for c in candidates) == 4
    # The hold of a prompt that was only looked at is not remembered either.
    first = explain(server, prompt(100))
    assert first["reason"] == "least_loaded"
    assert explain(server, prompt(100))["reason"] == "least_loaded"


def test_a_chat_is_explained_like_a_chat(mock_engine, serve):
    engines = start_engines(mock_engine, 2)
    server = start(serve, engines)
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello there, " * 40}], "max_tokens": 1}
    answer = server.post("/v1/chat/completions", body).json()
    settle(server, engines)
    route = server.post("/v1/route", body).json()
    assert route["model"] == "demo"
    assert route["choices"][0]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    assert route["choices"][0]["reason"] == "overlap"
    again = server.post("/v1/chat/completions", body).json()
    assert cached(again) == route["choices"][0]["cached_tokens"] > 0


def test_pins_and_sessions_are_explained(mock_engine, serve):
    engines = start_engines(mock_engine, 2, "--data-parallel-size", "2")
    server = start(serve, engines, "--router-session-affinity-ttl-secs", "600")
    one, two = workers(server).values()
    for worker in (one, two):
        pin = {"x-dynamo-worker-instance-id": str(worker), "x-dynamo-dp-rank": "1"}
        choice = explain(server, prompt(1), pin)
        assert (choice["worker_id"], choice["dp_rank"], choice["reason"]) == (worker, 1, "pinned")
        # Only ranks of that number were considered, on all workers.
        assert {c["worker_id"] for c in choice["candidates"]} == {one, two}
    session = {"x-dynamo-session-id": "chat-7"}
    assert explain(server, prompt(2), session)["reason"] == "least_loaded"
    assert explain(server, prompt(2), session)["reason"] == "least_loaded", "looking binds nothing"
    complete(server, prompt(2), session)
    bound = last_choice(server, 1)
    choice = explain(server, prompt(3), session)
    assert (choice["worker_id"], choice["dp_rank"], choice["reason"]) == (*bound[:2], "affinity")
    for headers, status in [({"x-dynamo-worker-instance-id": "5"}, 503),
                            ({"x-dynamo-worker-instance-id": str(one), "x-dynamo-dp-rank": "9"}, 400),
                            ({"x-dynamo-dp-rank": "9"}, 400)]:
        for path in ("/v1/route", "/v1/completions"):
            refused = server.post(path, {"model": "demo", "prompt": prompt(1)}, headers=headers)
            assert refused.status_code == status, (path, headers, refused.text)
            assert refused.json()["error"]["param"] == ("x-dynamo-dp-rank" if status == 400 else None)
    # The binding beats whatever worker is named, one that is gone as well.
    for named in ("5", str(one), str(two)):
        headers = {**session, "x-dynamo-worker-instance-id": named}
        choice = explain(server, prompt(3), headers)
        assert (choice["worker_id"], choice["dp_rank"], choice["reason"]) == (*bound[:2], "affinity"), named
        complete(server, prompt(4), headers)
    assert server.metrics().value("fairlead_frontend_router_picks_total", reason="affinity") == 3


def test_a_large_prompt_is_explained(mock_engine, serve):
    engines = start_engines(mock_engine, 2)
    server = start(serve, engines)
    tokens = prompt(1, blocks=400)
    complete(server, tokens)
    settle(server, engines)
    choice = explain(server, tokens)
    assert choice["overlap_blocks"]["device"] == 400 and choice["total_blocks"] == 401


def test_thresholds_refuse_while_all_workers_are_busy(mock_engine, serve):
    engines = start_engines(mock_engine, 2, "--token-interval-ms", "20")
    server = start(serve, engines)
    unset = {"active_decode_blocks_threshold": None, "active_prefill_tokens_threshold": None,
             "active_prefill_tokens_threshold_frac": None}
    assert server.get("/busy_threshold").json() == {"thresholds": [{"model": "demo", **unset}]}
    with server.client() as client:
        streams = [client.completions.create(model="demo", prompt=prompt(number, blocks=20), max_tokens=500,
                                             stream=True, extra_body={"ignore_eos": True}) for number in range(10, 16)]
        for stream in streams:
            next(stream)
        assert explain(server, prompt(1))["candidates_total"] == 2
        answer = server.post("/busy_threshold", {"model": "demo", "active_decode_blocks_threshold": 0.0001})
        assert answer.json() == {"model": "demo", **unset, "active_decode_blocks_threshold": 0.0001}
        for path in ("/v1/completions", "/v1/route"):
            refused = server.post(path, {"model": "demo", "prompt": prompt(1), "max_tokens": 1})
            assert refused.status_code == 503, (path, refused.text)
            assert refused.headers["retry-after"] == "1"
        pinned = server.post("/v1/completions", {"model": "demo", "prompt": prompt(1)},
                             headers={"x-dynamo-worker-instance-id": str(next(iter(workers(server).values())))})
        assert pinned.status_code == 503
        answer = server.post("/busy_threshold", {"model": "demo", "active_decode_blocks_threshold": None})
        assert answer.json() == {"model": "demo", **unset}
        complete(server, prompt(1))
        for stream in streams:
            stream.close()
    wait_until(lambda: nothing_booked(server), 10, "bookings to be given back")


def test_thresholds_of_the_command_line_are_listed(mock_engine, serve):
    engines = start_engines(mock_engine, 1)
    server = start(serve, engines, "--active-prefill-tokens-threshold", "5000")
    assert server.get("/busy_threshold").json()["thresholds"][0]["active_prefill_tokens_threshold"] == 5000
    assert server.post("/busy_threshold", {"model": "none", "active_prefill_tokens_threshold": 1}).status_code == 404
    wrong = server.post("/busy_threshold", {"model": "demo", "active_prefill_tokens_threshold": "many"})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "active_prefill_tokens_threshold"
    assert server.get("/busy_threshold").json()["thresholds"][0]["active_prefill_tokens_threshold"] == 5000


def test_health_tells_the_state_of_every_view(mock_engine, serve):
    engines = start_engines(mock_engine, 2, "--data-parallel-size", "2")
    server = start(serve, engines)
    for number, (worker, rank) in enumerate(itertools.product(workers(server).values(), "01")):
        complete(server, prompt(number), {"x-dynamo-worker-instance-id": str(worker), "x-dynamo-dp-rank": rank})
    settle(server, engines)

    def views():
        return [view for instance in server.get("/health").json()["instances"] for view in instance["kv_views"]]
    wait_until(lambda: [view["state"] for view in views()] == ["live"] * 4, 10, "live views")
    assert [view["dp_rank"] for view in views()] == [0, 1] * 2


def test_the_admin_routes_can_be_left_out(mock_engine, serve):
    engines = start_engines(mock_engine, 1)
    server = start(serve, engines, "--disable-admin-api")
    for method, path in [("GET", "/busy_threshold"), ("POST", "/busy_threshold"), ("POST", "/v1/route"),
                         ("GET", "/v1/kv/dump")]:
        answer = server.get(path) if method == "GET" else server.post(path, {"model": "demo", "prompt": "a"})
        assert answer.status_code == 404, (method, path)
    complete(server, prompt(1))


def test_other_modes_say_that_there_is_nothing_to_explain(mock_engine, serve):
    server = serve(start_engines(mock_engine, 1), model_path="share/demo")
    refused = server.post("/v1/route", {"model": "demo", "prompt": "a"})
    assert refused.status_code == 400 and "--router-mode kv" in refused.json()["error"]["message"]
    assert server.get("/busy_threshold").status_code == 400


def dump(server):
    """The lines of a dump, checked to be whole: sequence hashes by engine hash, by worker id and rank."""
    with httpx.Client(base_url=f"http://{server.http}", trust_env=False, timeout=scaled(30)) as client:
        answer = client.get("/v1/kv/dump")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/x-ndjson"
    version, *lines, end = [json.loads(line) for line in answer.text.splitlines()]
    assert version == {"version": 2}
    targets, held, announced = [], {}, 0
    for line in lines:
        if "target" in line:
            targets.append(line["target"])
            announced += line["target"]["blocks"]
            blocks = held[line["target"]["worker_id"], line["target"]["dp_rank"]] = {}
        elif "salted" in line:
            assert 0 < len(line["salted"]) <= min(512, targets[-1]["checkpoint"]["salted"])
        else:
            assert 0 < len(line["blocks"]) <= 512
            for engine_hash, sequence_hash, *copies in line["blocks"]:
                assert copies == [1, 0, 0, 0]
                assert blocks.setdefault(engine_hash, sequence_hash) == sequence_hash
    total = sum(map(len, held.values()))
    assert end == {"end": {"targets": len(targets), "blocks": total}} and announced == total
    return targets, held


def hashes(tokens, salt):
    """Sequence hashes of a chain of full blocks, from the rules in docs/kv-index.md."""
    seed = (1337 + (xxhash.xxh3_64_intdigest(salt.encode(), 1) if salt else 0)) % 2**64
    sequence = None
    for i in range(0, len(tokens), BLOCK):
        local = xxhash.xxh3_64_intdigest(struct.pack(f"<{BLOCK}I", *tokens[i:i + BLOCK]), seed)
        sequence = local if sequence is None else xxhash.xxh3_64_intdigest(struct.pack("<QQ", sequence, local), 1337)
        yield sequence


def cache(engine, rank):
    """What a dump must say of a rank of an engine."""
    out = {}
    for chain in engine.kv()["chains"]:
        if chain["rank"] == rank:
            assert chain["complete"]
            out.update(zip(chain["block_hashes"], hashes(chain["token_ids"], chain["cache_salt"]), strict=True))
    return out


def test_a_dump_is_what_the_engines_have(mock_engine, serve):
    engines = start_engines(mock_engine, 2, "--data-parallel-size", "2")
    server = start(serve, engines)
    for number in range(12):
        complete(server, prompt(number), cache_salt=["tenant", None][number % 2])
        complete(server, prompt(number)[:2 * BLOCK] + prompt(100 + number, blocks=60))
    settle(server, engines)
    targets, held = dump(server)
    ids = workers(server)
    assert held == {(ids[engine.url], rank): cache(engine, rank) for engine in engines for rank in (0, 1)}
    assert sum(map(len, held.values())) > 12 * 64
    for target in targets:
        engine = next(engine for engine in engines if ids[engine.url] == target["worker_id"])
        assert (target["model"], target["block_size"], target["bigram"]) == ("demo", BLOCK, False)
        assert target["endpoint"] == engine.url and target["instance_id"]
        assert target["state"] in ("live", "no_events")


def test_a_dump_of_many_pieces_is_whole(mock_engine, serve):
    engines = start_engines(mock_engine, 1, "--num-gpu-blocks", "40000")
    server = start(serve, engines)
    for number in range(24):
        complete(server, prompt(number, blocks=400))
    settle(server, engines)
    _, held = dump(server)
    assert [len(blocks) for blocks in held.values()] == [engine_blocks(engines[0])] == [24 * 400]


def test_an_empty_index_is_a_dump_too(mock_engine, serve):
    server = start(serve, start_engines(mock_engine, 1), "--no-router-kv-events")
    complete(server, prompt(1))
    targets, held = dump(server)
    assert [target["state"] for target in targets] == ["approximate"]
    assert list(held.values()) == [{}], "what was only routed there is not dumped"
