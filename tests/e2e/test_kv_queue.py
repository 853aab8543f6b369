"""Kv mode when every engine is busy: requests wait, in order and within bounds, and nobody leaks."""

import json
import socket
import threading

import httpx
import pytest
from fairlead import CardFolder, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
# 100 tokens to compute are more than a step's 64, so one prompt makes the engine busy.
FLAGS = ["--speedup-ratio", "0", "--max-num-batched-tokens", "64"]
PREFILL = "fairlead_frontend_worker_active_prefill_tokens"


def prompt(number, tokens=100):
    return [10 + number] * tokens


class Held:
    """A request whose prompt is never computed, until its client leaves."""

    def __init__(self, server, engine, headers=None, tokens=100, booked=None):
        engine.set_faults("stall-open")
        body = json.dumps({"model": "demo", "prompt": prompt(77, tokens), "max_tokens": 1})
        host, port = server.http.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), 10)
        lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._socket.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{lines}"
                             f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        server.wait_metric(PREFILL, booked or tokens)
        self.requests = engine.state()["requests_total"]
        engine.set_faults()

    def let_go(self):
        self._socket.close()


class Request:
    """A request on a thread of its own."""

    def __init__(self, server, number, headers=None, tokens=100, model="demo", **fields):
        self.number = number
        self.answer = None
        self._thread = threading.Thread(target=self._run, args=(server, headers or {}, tokens, model, fields))
        self._thread.start()

    def _run(self, server, headers, tokens, model, fields):
        self.answer = server.post("/v1/completions", {"model": model, "prompt": prompt(self.number, tokens),
                                                      "max_tokens": 1, "ignore_eos": True, **fields},
                                  headers=headers, timeout=120)

    def status(self):
        self._thread.join()
        return self.answer.status_code


def waiting(server):
    return server.metrics().value("fairlead_frontend_router_queue_pending_requests")


def wait_waiting(server, count):
    wait_until(lambda: waiting(server) == count, 10, f"{count} requests that wait")


@pytest.fixture
def engine(mock_engine):
    return mock_engine(*FLAGS, model="demo")


def start(serve, engine, *flags):
    return serve([engine], "--router-mode", "kv", "--router-queue-threshold", "1", *flags, model_path=FOLDER)


def healthy(server):
    """URLs of the engines in routing."""
    return {i["endpoint"] for i in server.get("/health").json()["instances"] if i["healthy"]}


def wait_healthy(server, *engines):
    wait_until(lambda: healthy(server) == {engine.url for engine in engines}, 20, f"{len(engines)} engines in routing")


@pytest.fixture
def cards(tmp_path):
    return CardFolder(tmp_path / "cards")


def start_on_cards(serve, cards, engine, *flags):
    """A frontend with several reactors, whose requests wait, and what keeps its engine busy."""
    cards.put("a", engine.url)
    server = serve([], *cards.flags, "--router-mode", "kv", "--router-queue-threshold", "1", "--threads", "4", *flags,
                   model_path=FOLDER)
    wait_healthy(server, engine)
    return server, Held(server, engine)


def several_that_wait(server, count=6):
    requests = [Request(server, number) for number in range(count)]
    wait_waiting(server, count)
    return requests


def order_of(engine):
    """Numbers of the prompts in the order in which they reached the engine."""
    return [request["request_id"] for request in engine.requests()]


def test_requests_wait_while_the_engine_is_busy_and_go_in_order(engine, serve):
    server = start(serve, engine)
    held = Held(server, engine)
    requests = []
    for number in range(4):
        requests.append(Request(server, number))
        wait_waiting(server, number + 1)
    urgent = Request(server, 9, {"x-dynamo-request-strict-priority": "1"})
    wait_waiting(server, 5)
    assert engine.state()["requests_total"] == held.requests, "nobody who waits has reached the engine"
    held.let_go()
    assert [request.status() for request in [*requests, urgent]] == [200] * 5
    assert waiting(server) == 0
    assert engine.state()["requests_total"] == held.requests + 5
    metrics = server.metrics()
    assert metrics.value("fairlead_frontend_router_queued_requests_total") == 5
    assert metrics.value(PREFILL) == 0
    ids = [request.answer.json()["id"].removeprefix("cmpl-") for request in [urgent, *requests]]
    assert order_of(engine)[-5:] == ids


def test_a_full_queue_is_429(engine, serve):
    server = start(serve, engine, "--router-queue-limit", "2")
    held = Held(server, engine)
    requests = []
    for number in (1, 2):
        requests.append(Request(server, number))
        wait_waiting(server, number)
    refused = server.post("/v1/completions", {"model": "demo", "prompt": prompt(3), "max_tokens": 1})
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["message"]
    metrics = server.metrics()
    assert metrics.value("fairlead_frontend_router_queue_refused_total") == 1
    labels = {"model": "demo", "policy_class": "default"}
    assert metrics.value("fairlead_frontend_router_queue_class_refused_total", reason="all_classes", **labels) == 1
    assert metrics.value("fairlead_frontend_router_queue_class_pending_requests", **labels) == 2
    held.let_go()
    assert [request.status() for request in requests] == [200] * 2


def test_a_client_that_leaves_the_queue_never_reaches_the_engine(engine, serve):
    server = start(serve, engine)
    held = Held(server, engine)
    for number in range(1, 4):
        with pytest.raises(httpx.TimeoutException):
            httpx.post(server.base_url + "/v1/completions", timeout=0.5, trust_env=False,
                       json={"model": "demo", "prompt": prompt(number), "max_tokens": 1})
    wait_waiting(server, 0)
    held.let_go()
    assert Request(server, 8).status() == 200
    assert engine.state()["requests_total"] == held.requests + 1
    server.wait_metric("fairlead_frontend_inflight_requests", 0)


def test_those_who_wait_are_answered_when_the_engine_is_gone(engine, serve):
    server = start(serve, engine)
    held = Held(server, engine)
    request = Request(server, 1)
    wait_waiting(server, 1)
    engine.kill()
    assert request.status() in (502, 503)
    assert waiting(server) == 0
    held.let_go()


def test_an_idle_engine_that_joins_relieves_those_who_wait(engine, mock_engine, serve, cards):
    server, held = start_on_cards(serve, cards, engine)
    requests = several_that_wait(server)
    idle = mock_engine(*FLAGS, model="demo")
    cards.put("b", idle.url)
    assert [request.status() for request in requests] == [200] * len(requests)
    assert idle.state()["requests_total"] == len(requests)
    assert engine.state()["requests_total"] == held.requests
    held.let_go()


def test_an_engine_that_is_back_relieves_those_who_wait(engine, mock_engine, serve, cards):
    server, held = start_on_cards(serve, cards, engine)
    other = mock_engine(*FLAGS, model="demo")
    cards.put("b", other.url)
    wait_healthy(server, engine, other)
    other.kill()
    wait_healthy(server, engine)
    requests = several_that_wait(server)
    back = mock_engine(*FLAGS, model="demo", listen=other.address)
    assert [request.status() for request in requests] == [200] * len(requests)
    assert back.state()["requests_total"] == len(requests)
    held.let_go()


def test_those_who_wait_move_to_the_worker_set_that_takes_over(engine, mock_engine, serve, cards):
    server, held = start_on_cards(serve, cards, engine)
    requests = several_that_wait(server)
    successor = mock_engine(*FLAGS, model="demo")
    # Another limit makes another worker set, which takes over when the first one is gone.
    cards.put("b", successor.url, context_length=400)
    server.process.wait_log(f"engine left out.*endpoint={successor.url}")
    cards.remove("a")
    assert [request.status() for request in requests] == [200] * len(requests)
    assert successor.state()["requests_total"] == len(requests)
    assert waiting(server) == 0 and server.metrics().value(PREFILL) == 100, "what runs on the former set runs on"
    held.let_go()


def test_those_who_wait_for_a_worker_set_that_is_gone_are_told(engine, serve, cards):
    server, held = start_on_cards(serve, cards, engine)
    requests = several_that_wait(server)
    cards.remove("a")
    assert [request.status() for request in requests] == [503] * len(requests)
    assert waiting(server) == 0
    held.let_go()


def test_a_drain_ends_those_who_wait(engine, serve):
    server = start(serve, engine, "--graceful-shutdown-timeout-secs", "1")
    held = Held(server, engine)
    request = Request(server, 1)
    wait_waiting(server, 1)
    server.stop()
    assert request.status() == 503
    assert engine.state()["requests_total"] == held.requests
    held.let_go()


def test_classes_of_a_policy_file_have_queues_of_their_own(engine, serve, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("""
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: usual, policy_family: standard, cache_bucket: all, quantum: 100, prefill_busy_threshold_frac: 1.0, request_queue_limit_per_worker: 1}
  - {name: express, quantum: 100}
""")
    server = serve([engine], "--router-mode", "kv", "--router-policy-config", policy, model_path=FOLDER)
    held = Held(server, engine)
    request = Request(server, 1)
    wait_waiting(server, 1)
    refused = server.post("/v1/completions", {"model": "demo", "prompt": prompt(2), "max_tokens": 1})
    assert refused.status_code == 429
    express = Request(server, 3, {"x-dynamo-meta-policy-class": "express"})
    assert express.status() == 200  # its class makes nobody wait
    held.let_go()
    assert request.status() == 200


def test_who_waits_for_one_rank_holds_no_other_class(mock_engine, serve, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("""
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: usual, policy_family: standard, cache_bucket: all, quantum: 100, prefill_busy_threshold: 50}
  - {name: other, quantum: 100, prefill_busy_threshold: 50}
""")
    engine = mock_engine(*FLAGS, "--data-parallel-size", "2", model="demo")
    server = serve([engine], "--router-mode", "kv", "--router-policy-config", policy, model_path=FOLDER)
    ranks = [{"x-dynamo-dp-rank": str(rank)} for rank in range(2)]
    held = [Held(server, engine, rank, booked=100 * count) for count, rank in enumerate(ranks, 1)]
    picky = Request(server, 1, ranks[0])
    wait_waiting(server, 1)
    easy = Request(server, 2, {"x-dynamo-meta-policy-class": "other"})
    wait_waiting(server, 2)
    held[1].let_go()
    assert easy.status() == 200
    assert waiting(server) == 1
    held[0].let_go()
    assert picky.status() == 200


def worker_names(server, *engines):
    """Headers that name each engine."""
    wait_healthy(server, *engines)
    ids = {i["endpoint"]: i["worker_id"] for i in server.get("/health").json()["instances"]}
    return [{"x-dynamo-worker-instance-id": str(ids[engine.url])} for engine in engines]


def test_a_session_whose_worker_is_overloaded_waits_like_others(mock_engine, serve):
    home, other = engines = [mock_engine(*FLAGS, model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "kv", "--router-queue-threshold", "1", "--router-session-affinity-ttl-secs",
                   "600", "--active-prefill-tokens-threshold", "150", model_path=FOLDER)
    name_home, name_other = worker_names(server, home, other)
    session = {"x-dynamo-session-id": "chat-1"}
    assert Request(server, 0, {**session, **name_home}).status() == 200
    overloaded = Held(server, home, name_home, tokens=200)
    busy = Held(server, other, name_other, booked=300)
    requests = [Request(server, 1)]
    wait_waiting(server, 1)
    requests.append(Request(server, 2, session))
    wait_waiting(server, 2)
    busy.let_go()
    assert [request.status() for request in requests] == [200] * 2
    ids = [request.answer.json()["id"].removeprefix("cmpl-") for request in requests]
    assert order_of(other)[-2:] == ids
    overloaded.let_go()


def test_who_waits_again_after_a_failure_is_counted_once(mock_engine, serve):
    first, second = engines = [mock_engine(*FLAGS, model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "kv", "--router-queue-threshold", "1", model_path=FOLDER)
    names = worker_names(server, first, second)
    held = [Held(server, first, names[0]), Held(server, second, names[1], booked=200)]
    request = Request(server, 1)
    wait_waiting(server, 1)
    first.set_faults("error-after:0:UNAVAILABLE")
    held[0].let_go()
    server.process.wait_log("failed on worker")
    wait_waiting(server, 1)
    assert server.metrics().value("fairlead_frontend_router_queued_requests_total") == 1
    held[1].let_go()
    assert request.status() == 200
    assert server.metrics().value("fairlead_frontend_router_queued_requests_total") == 1


def test_a_bad_policy_file_is_one_line(launcher, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy_classes: [{name: x, quantum: 0}]\n")
    done = launcher.run("serve", "--direct", "--engine-url", "h:1", "--router-mode", "kv",
                        "--router-policy-config", policy)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "--router-policy-config" in done.stderr and "default_policy_family" in done.stderr
