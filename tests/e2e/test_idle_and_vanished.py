"""Many idle streams, and clients that vanish without a word."""

import json
import socket

import pytest
from fairlead.launcher import ROOT
from fairlead.waiting import TIME_SCALE

FOLDER = str(ROOT / "share/demo")
TCP_REPAIR = 19
IDLE_STREAMS = 1000
KIB_PER_STREAM = 16  # the promise of docs/benchmarks.md


def request_bytes(max_tokens):
    body = json.dumps({"model": "demo", "stream": True, "max_tokens": max_tokens, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "one two three four five"}]}).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body)) + body


def open_streams(server, count, max_tokens=100):
    host, port = server.http.rsplit(":", 1)
    data = request_bytes(max_tokens)
    connections = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)), 30)
        connection.sendall(data)
        connections.append(connection)
    for connection in connections:
        received = b""
        while received.count(b"data: ") < 2:
            part = connection.recv(65536)
            assert part, received
            received += part
    return connections


@pytest.mark.skipif(TIME_SCALE != 1, reason="memory of a sanitizer build says nothing")
def test_a_thousand_idle_streams_stay_small(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault", "stall-after:8",
                         "--extra-engine-args", '{"max_num_seqs": 4096}', "--num-gpu-blocks", "100000",
                         model="demo")
    server = serve([engine], model_path=FOLDER)
    # What is allocated once, whatever the number of streams, must not count.
    for connection in open_streams(server, 50):
        connection.close()
    engine.wait_idle(20)
    before = server.process.rss_bytes()
    connections = open_streams(server, IDLE_STREAMS)
    each = (server.process.rss_bytes() - before) / 1024 / IDLE_STREAMS
    for connection in connections:
        connection.close()
    engine.wait_idle(30)
    server.wait_metric("fairlead_frontend_inflight_requests", 0, timeout=30)
    assert each <= KIB_PER_STREAM


def test_clients_that_vanish_are_cut(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "20", model="demo")
    server = serve([engine], "--tcp-user-timeout-secs", "3", model_path=FOLDER)
    connections = open_streams(server, 20, max_tokens=4000)
    engine.wait_state(running=20)
    for connection in connections:
        # A socket closed in repair mode says nothing to its peer: the machine went away.
        connection.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        connection.close()
    engine.wait_idle(10)
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    assert engine.state()["aborted_total"] == 20
