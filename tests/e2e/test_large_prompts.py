"""Prompts large enough for the CPU pool: refused early when hopeless, dropped when their client left, and never in the
way of small ones or of shutdown."""

import json
import signal
import socket

import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
PREFIX = "fairlead_frontend_"
MEGABYTE = 1_000_000


@pytest.fixture
def engine(mock_engine):
    return mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")


def slow_body(size):
    """Tokenized whole, since it is to be truncated; as one word, which takes longest."""
    return json.dumps({"model": "demo", "prompt": " " * size, "max_tokens": 1, "truncate_prompt_tokens": 8}).encode()


def send(server, body):
    host, port = server.http.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), 30)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return connection


def small(server):
    """More than is prepared inline."""
    return server.post("/v1/completions", {"model": "demo", "prompt": "word " * 5000, "max_tokens": 1,
                                           "truncate_prompt_tokens": 8}, timeout=60)


def test_a_hopeless_prompt_is_refused_without_tokenizing_it(engine, serve):
    server = serve([engine], model_path=FOLDER)
    answer = server.post("/v1/chat/completions",
                         {"model": "demo", "messages": [{"role": "user", "content": " " * (40 * MEGABYTE)}]})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "has at least" in error["message"]


def test_what_nobody_waits_for_is_dropped(engine, serve):
    server = serve([engine], model_path=FOLDER)
    connections = [send(server, slow_body(20 * MEGABYTE)) for _ in range(8)]
    wait_until(lambda: server.metrics().value(PREFIX + "cpu_queue_jobs") > 0, 20, "queued jobs")
    for connection in connections:
        connection.close()
    for gauge in ("cpu_queue_jobs", "cpu_running_jobs", "cpu_queue_bytes", "inflight_requests", "queued_requests"):
        server.wait_metric(PREFIX + gauge, 0)
    assert server.metrics().value(PREFIX + "model_cancellation_total", model="unknown") > 0
    assert small(server).status_code == 200


def test_a_large_prompt_is_visible_and_lets_small_ones_pass(engine, serve):
    server = serve([engine], model_path=FOLDER)
    with send(server, slow_body(40 * MEGABYTE)) as connection:
        server.wait_metric(PREFIX + "cpu_running_jobs", 1)
        metrics = server.metrics()
        assert metrics.value(PREFIX + "inflight_requests", model="unknown") == 1
        assert metrics.value(PREFIX + "cpu_queue_bytes") > 40 * MEGABYTE
        assert small(server).status_code == 200
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):  # the large one has no answer yet
            connection.recv(1)


def test_no_more_bytes_wait_than_allowed(engine, serve):
    server = serve([engine], "--cpu-queue-mb", "1", model_path=FOLDER)
    with send(server, slow_body(40 * MEGABYTE)):
        server.wait_metric(PREFIX + "cpu_running_jobs", 1)
        assert small(server).status_code in (429, 503, 529)
        assert server.metrics().value(PREFIX + "model_rejection_total") == 1
    server.wait_metric(PREFIX + "cpu_queue_bytes", 0)
    assert small(server).status_code == 200


def test_the_drain_ends_what_is_still_prepared(engine, serve):
    server = serve([engine], "--graceful-shutdown-timeout-secs", "1", model_path=FOLDER)
    connections = [send(server, slow_body(40 * MEGABYTE)) for _ in range(3)]
    wait_until(lambda: server.metrics().value(PREFIX + "cpu_queue_jobs") > 0, 20, "queued jobs")
    server.process.signal(signal.SIGTERM)
    assert server.process.wait_exit(10) == 0
    assert connections[-1].recv(100).startswith(b"HTTP/1.1 503 ")
    for connection in connections:
        connection.close()


def test_a_second_signal_ends_although_a_prompt_is_prepared(engine, serve):
    server = serve([engine], "--graceful-shutdown-timeout-secs", "600", model_path=FOLDER)
    with send(server, slow_body(40 * MEGABYTE)):
        server.wait_metric(PREFIX + "cpu_running_jobs", 1)
        server.process.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
        server.process.signal(signal.SIGTERM)
        assert server.process.wait_exit(5) == 0
