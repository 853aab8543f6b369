"""Shutdown: running answers end, new work is refused, nothing is left on the engine."""

import json
import os
import signal
import socket
import subprocess

import httpx
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT, binary_path
from fairlead.waiting import scaled

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
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored where tests run under nohup
    try:
        server = serve([engine], "--graceful-shutdown-timeout-secs", "20", model_path=FOLDER)
    finally:
        signal.signal(signal.SIGHUP, before)
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


@pytest.fixture
def start_with_full_stderr():
    """Starts a command whose stderr is a full pipe that nobody reads; the process, once it is ready, and what it
    printed."""
    started = []

    def start(*arguments):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while os.write(writer, b"x" * 4096):
                pass
        except BlockingIOError:
            os.set_blocking(writer, True)
        process = subprocess.Popen([binary_path(), *arguments], stdout=subprocess.PIPE, stderr=writer)
        os.close(writer)
        started.append((process, reader))
        return process, json.loads(process.stdout.readline())

    yield start
    for process, reader in started:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(reader)


@pytest.mark.parametrize("command", ["serve", "mock-engine", "demo"])
def test_a_full_stderr_pipe_does_not_stop_the_end(start_with_full_stderr, mock_engine, command):
    arguments = {
        "serve": ["--http-host", "127.0.0.1", "--http-port", "0", "--log-level", "debug", "--direct",
                  "--direct-backend", "vllm", "--model-path", FOLDER],
        "mock-engine": ["--backend", "vllm", "--listen", "127.0.0.1:0", "--model", "demo", "--log-level", "debug"],
        "demo": ["--http-port", "0", "--log-level", "debug"],
    }[command]
    if command == "serve":
        arguments += ["--engine-url", mock_engine(model="demo").url]
    process, _ = start_with_full_stderr(command, *arguments)
    process.send_signal(signal.SIGTERM)
    assert process.wait(scaled(10)) == 0


def test_a_second_signal_ends_at_once_with_a_full_stderr_pipe(start_with_full_stderr, mock_engine):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "50", model="demo")
    process, ready = start_with_full_stderr(
        "serve", "--http-host", "127.0.0.1", "--http-port", "0", "--direct", "--direct-backend", "vllm",
        "--engine-url", engine.url, "--model-path", FOLDER, "--graceful-shutdown-timeout-secs", "600")
    with httpx.Client(base_url=f"http://{ready['http']}", trust_env=False, timeout=20) as client:
        wait_until(lambda: client.get("/ready").status_code == 200, 10, "ready")
        with client.stream("POST", "/v1/chat/completions", json={
                "model": "demo", "stream": True, "max_tokens": 2000, "ignore_eos": True,
                "messages": [{"role": "user", "content": "drain me please"}]}) as answer:
            assert answer.status_code == 200
            process.send_signal(signal.SIGTERM)
            wait_until(lambda: httpx.get(f"http://{ready['http']}/health", trust_env=False).status_code == 503, 10,
                       "the drain")
            process.send_signal(signal.SIGTERM)
            assert process.wait(scaled(10)) == 0


def test_an_answer_that_is_read_slowly_arrives_whole(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", "--max-num-seqs", "100", "--vocab-size", "2612",
                         model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "60", model_path=FOLDER)
    host, port = server.http.rsplit(":", 1)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        connection.settimeout(scaled(20))
        connection.connect((host, int(port)))
        # More than the kernel takes.
        body = json.dumps({"model": "demo", "prompt": "Hi", "max_tokens": 1000, "n": 16, "logprobs": 20,
                           "ignore_eos": True}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
        received = connection.recv(1024)  # the head: all is generated
        server.process.signal(signal.SIGTERM)
        wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
        with pytest.raises(AssertionError, match="still runs"):
            server.process.wait_exit(1)
        text = read_all(connection, received)
    head, _, answer = text.partition("\r\n\r\n")
    assert f"content-length: {len(answer.encode())}" in head.lower()
    assert json.loads(answer)["usage"]["completion_tokens"] == 16000
    assert server.process.wait_exit(10) == 0


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def windows(count):
    return frame(8, 0, 0, count.to_bytes(4)) + frame(8, 0, 1, count.to_bytes(4))


def test_an_http2_answer_that_waits_for_its_window_arrives_whole(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", "--max-num-seqs", "100", "--vocab-size", "2612",
                         model="demo")
    server = serve([engine], "--graceful-shutdown-timeout-secs", "60", model_path=FOLDER)
    host, port = server.http.rsplit(":", 1)
    body = json.dumps({"model": "demo", "prompt": "Hi", "max_tokens": 300, "logprobs": 20, "n": 2,
                       "ignore_eos": True}).encode()
    fields = [b":method", b"POST", b":path", b"/v1/completions", b":scheme", b"http", b":authority", b"x",
              b"content-type", b"application/json"]
    block = b"".join((b"" if i % 2 else b"\0") + bytes([len(text)]) + text for i, text in enumerate(fields))
    with socket.create_connection((host, int(port)), scaled(20)) as connection, connection.makefile("rb") as reader:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 4, 1, block)
                           + frame(0, 1, 1, body))
        answer, ended, draining = b"", False, False
        while not ended:
            head = reader.read(9)
            assert len(head) == 9, f"cut after {len(answer)} bytes"
            payload = reader.read(int.from_bytes(head[:3]))
            if head[3] != 0:
                continue
            answer += payload
            ended = bool(head[4] & 1)
            if draining and not ended:
                connection.sendall(windows(len(payload)))
            if len(answer) == 65535:  # the window that a connection begins with
                draining = True
                server.process.signal(signal.SIGTERM)
                wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
                with pytest.raises(AssertionError, match="still runs"):
                    server.process.wait_exit(1)
                connection.sendall(windows(65535))
    assert draining, "the answer fits into the window"
    assert json.loads(answer)["usage"]["completion_tokens"] == 600
    assert server.process.wait_exit(10) == 0
