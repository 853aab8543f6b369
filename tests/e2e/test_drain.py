"""Shutdown: running answers end, new work is refused, nothing is left on the engine."""

import json
import os
import signal
import socket

import httpx
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")


def open_stream(server, max_tokens):
    host, port = server.http.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), 20)
    body = json.dumps({"model": "demo", "stream": True, "max_tokens": max_tokens, "ignore_eos": True,
                       "messages": [{"role": "user", "content": "drain me please"}]}).encode()
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                       b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return connection, connection.recv(65536)


def read_all(connection, received):
    while data := connection.recv(65536):
        received += data
    return received.decode()


def test_streams_finish_and_new_work_is_refused(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "10", model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "20", model_path=FOLDER)
    streams = [open_stream(server, 100) for _ in range(32)]
    keep_alive = httpx.Client(base_url=server.base_url, trust_env=False)
    assert keep_alive.get("/ready").status_code == 200
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status_code == 503, 10, "readiness off")
    assert server.get("/live").status_code == 200
    refused = server.post("/v1/chat/completions",
                          {"model": "demo", "messages": [{"role": "user", "content": "x"}]})
    assert refused.status_code == 503
    assert refused.headers["connection"] == "close"
    for connection, received in streams:
        text = read_all(connection, received)
        assert '"finish_reason":"length"' in text
        assert "data: [DONE]" in text
    assert server.process.wait_exit(20) == 0
    engine.wait_idle()
    assert engine.state()["aborted_total"] == 0


def test_streams_that_outlast_the_deadline_are_aborted_on_the_engine(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "50", model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "1", model_path=FOLDER)
    streams = [open_stream(server, 2000) for _ in range(4)]
    server.process.signal(signal.SIGTERM)
    assert server.process.wait_exit(20) == 0
    engine.wait_idle()
    assert engine.state()["aborted_total"] == 4
    for connection, _ in streams:
        connection.close()


def test_a_second_signal_ends_at_once(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "50", model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "600", model_path=FOLDER)
    connection, _ = open_stream(server, 2000)
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
    server.process.signal(signal.SIGTERM)
    server.process.wait_exit(10)
    connection.close()
    engine.wait_idle()


def test_a_taken_port_is_a_clear_error(mock_engine, serve, launcher):
    engine = mock_engine(model="demo")
    server = serve([engine], model_path=FOLDER)
    port = server.http.rsplit(":", 1)[1]
    done = launcher.run("serve", "--direct", "--direct-backend", "vllm", "--engine-url", engine.url,
                        "--model-path", FOLDER, "--http-host", "127.0.0.1", "--http-port", port)
    assert done.returncode == 1
    assert "already in use" in done.stderr and port in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_full_stderr_pipe_never_stops_serving(launcher, mock_engine):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    process = launcher.start("serve", "--direct", "--direct-backend", "vllm", "--engine-url", engine.url,
                             "--model-path", FOLDER, "--http-host", "127.0.0.1", "--http-port", "0",
                             "--log-level", "debug", read_stderr=False)
    address = process.ready(20)["http"]
    with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=20) as client:
        wait_until(lambda: client.get("/ready").status_code == 200, 10, "ready")
        for i in range(3000):
            answer = client.get(f"/no/such/route/{i}" + "x" * 200)
            assert answer.status_code == 404
        answer = client.post("/v1/chat/completions", json={
            "model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]})
        assert answer.status_code == 200
    process.kill()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGINT])
def test_other_signals_drain_as_well(mock_engine, serve, number):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "10", model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "20", model_path=FOLDER)
    connection, begin = open_stream(server, 60)
    server.process.signal(number)
    assert read_all(connection, begin).rstrip().endswith("0")
    assert server.process.wait_exit() == 0
    assert engine.wait_idle()["aborted_total"] == 0


def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(launcher, mock_engine):
    engine = mock_engine(model="demo")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        server = launcher.serve([engine], model_path=FOLDER)
    finally:
        signal.signal(signal.SIGHUP, before)
    status = open(f"/proc/{server.process.pid}/status").read()
    blocked, ignored = (int(line.split()[1], 16) for key in ("SigBlk:", "SigIgn:")
                        for line in status.splitlines() if line.startswith(key))
    hangup = 1 << (signal.SIGHUP - 1)
    assert ignored & hangup and not blocked & hangup
    server.process.signal(signal.SIGHUP)
    assert server.get("/ready").status_code == 200
    server.stop()
