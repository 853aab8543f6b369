"""Clients that leave at any stage leave nothing behind."""

import json
import random
import socket
import struct
import threading

import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")


def request_bytes(max_tokens=2000, stream=True, words=30, n=1):
    body = json.dumps({"model": "demo", "stream": stream, "max_tokens": max_tokens, "n": n,
                       "ignore_eos": True,
                       "messages": [{"role": "user", "content": "word " * words}]}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)) + body


def connect(server, receive_buffer=None):
    host, port = server.http.rsplit(":", 1)
    connection = socket.socket()
    if receive_buffer:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    return connection


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def expect_idle(server, *engines):
    for engine in engines:
        engine.wait_idle(15)
    for gauge in ("inflight_requests", "queued_requests", "worker_inflight_requests"):
        server.wait_metric(f"fairlead_frontend_{gauge}", 0)


@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["fin", "rst"])
def test_a_leaving_client_stops_the_engine(mock_engine, serve, leave):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "10", model="demo")
    server = serve([engine], model_path=FOLDER)
    connection = connect(server)
    connection.sendall(request_bytes())
    assert b"200" in connection.recv(4096)
    engine.wait_state(running=1)
    leave(connection)
    expect_idle(server, engine)
    assert engine.state()["aborted_total"] == 1


@pytest.mark.parametrize("behind_kib", [300, 2048])
@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("leave", [socket.socket.close, reset], ids=["fin", "rst"])
def test_a_leaving_client_is_seen_behind_what_it_pipelined(mock_engine, serve, leave, stream, behind_kib):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "10", model="demo")
    server = serve([engine], model_path=FOLDER)
    connection = connect(server)
    one = request_bytes(stream=stream)
    connection.sendall(one + one * (behind_kib * 1024 // len(one)))
    engine.wait_state(running=1)
    leave(connection)
    expect_idle(server, engine)
    state = engine.state()
    assert (state["requests_total"], state["aborted_total"]) == (1, 1), "none of the rest was begun"


def test_a_client_that_does_not_read_is_seen_leaving_behind_what_it_pipelined(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    server = serve([engine], model_path=FOLDER)
    connection = connect(server, receive_buffer=4096)
    one = request_bytes(max_tokens=4000, n=100)
    connection.sendall(one + one * (1024 * 1024 // len(one)))
    server.wait_metric("fairlead_frontend_inflight_requests", 1)
    assert connection.recv(100).startswith(b"HTTP/1.1 200")
    connection.close()
    for gauge in ("inflight_requests", "worker_inflight_requests"):
        server.wait_metric(f"fairlead_frontend_{gauge}", 0, timeout=5)
    expect_idle(server, engine)
    assert engine.state()["requests_total"] == 100


def test_a_client_that_waits_for_headers_and_leaves(mock_engine, serve):
    engine = mock_engine("--fault", "stall-open", model="demo")
    server = serve([engine], model_path=FOLDER)
    for stream in (True, False):
        connection = connect(server)
        connection.sendall(request_bytes(stream=stream))
        server.wait_metric("fairlead_frontend_inflight_requests", 1)
        connection.close()
        expect_idle(server, engine)


def test_a_slow_reader_does_not_stop_its_neighbours(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0",
                         model="demo")
    server = serve([engine], "--threads", "1", model_path=FOLDER)
    stuck = connect(server, receive_buffer=4096)
    stuck.sendall(request_bytes(max_tokens=4000, n=100))
    assert stuck.recv(100).startswith(b"HTTP/1.1 200")
    with server.client() as client:
        for _ in range(5):
            answer = client.chat.completions.create(
                model="demo", max_tokens=500, extra_body={"ignore_eos": True}, messages=[{"role": "user", "content": "hello " * 10}])
            assert answer.usage.completion_tokens == 500
    metrics = server.metrics()
    assert metrics.value("fairlead_frontend_inflight_requests") == 1
    # Held back, neither finished nor cut: of its 400,000 tokens few were taken from the engine.
    assert metrics.value("fairlead_frontend_output_tokens_total") < 50_000
    stuck.close()
    expect_idle(server, engine)


def test_two_hundred_random_cancels_under_load(mock_engine, serve):
    flags = ["--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "2"]
    engines = [mock_engine(*flags, model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "least-loaded", model_path=FOLDER)
    wait_until(lambda: all(i["healthy"] for i in server.get("/health").json()["instances"]), 10, "both workers")
    rng = random.Random(7)
    stop = threading.Event()
    problems = []

    def steady():
        with server.client() as client:
            while not stop.is_set():
                try:
                    stream = client.chat.completions.create(
                        model="demo", max_tokens=20, stream=True,
                        messages=[{"role": "user", "content": "steady traffic " * 5}])
                    parts = list(stream)
                    assert parts[-1].choices[0].finish_reason == "length"
                except Exception as error:  # noqa: BLE001 - reported by the main thread
                    problems.append(repr(error))
                    return

    def cancel(seed):
        own = random.Random(seed)
        connection = connect(server, receive_buffer=own.choice([None, 4096]))
        data = request_bytes(stream=own.random() < 0.8)
        stage = own.choice(["partial", "at-once", "first-byte", "mid", "unread"])
        if stage == "partial":
            connection.sendall(data[: own.randrange(1, len(data))])
        else:
            connection.sendall(data)
        if stage in ("first-byte", "mid") and b'"stream": true' in data:
            for _ in range(1 if stage == "first-byte" else own.randrange(2, 6)):
                if not connection.recv(own.randrange(1, 2000)):
                    break
        (reset if own.random() < 0.5 else socket.socket.close)(connection)

    threads = [threading.Thread(target=steady) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            batch = [threading.Thread(target=cancel, args=(rng.random(),)) for _ in range(10)]
            for thread in batch:
                thread.start()
            for thread in batch:
                thread.join()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems
    expect_idle(server, *engines)
    for engine in engines:
        state = engine.state()
        assert state["requests_total"] == state["finished_total"] + state["aborted_total"]


def test_a_thousand_disconnects_log_at_most_a_line_each(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "50", model="demo")
    server = serve([engine], model_path=FOLDER)
    mark = server.process.log_mark()
    for _ in range(10):
        connections = [connect(server) for _ in range(100)]
        for connection in connections:
            connection.sendall(request_bytes(max_tokens=50))
        for connection in connections:
            reset(connection)
    expect_idle(server, engine)
    assert len(server.process.log_lines(mark)) <= 1000
