"""What the operator's limits and logs must give when they are reached."""

import socket

import pytest
from fairlead import Launcher, binary_path, wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": "hello", "max_tokens": 2}


def test_idle_clients_cannot_take_the_descriptors_that_engines_need(tmp_path):
    wrapper = tmp_path / "few-files"
    wrapper.write_text(f'#!/bin/sh\nulimit -n 64\nexec {binary_path()} "$@"\n')
    wrapper.chmod(0o755)
    clients = []
    with Launcher(tmp_path, binary=wrapper) as launcher:
        engine = launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
        serve = launcher.serve([engine], "--threads", "2", model_path=FOLDER)
        host, port = serve.http.rsplit(":", 1)
        try:
            clients = [socket.create_connection((host, int(port)), timeout=5) for _ in range(100)]
            wait_until(lambda: "connections are refused" in serve.process.log_tail(50), 10, "the warning")
            # The first clients are connected; the lanes have no connection to the engine yet.
            body = b'{"model":"demo","prompt":"hello","max_tokens":2}'
            for client in clients[:4]:
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
            assert "left routing" not in serve.process.log_tail(200)
        finally:
            for client in clients:
                client.close()
        assert serve.post("/v1/completions", PROMPT).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_said_of_its_failure_is_logged(mock_engine, serve, stream):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault", "error-after:0:INTERNAL",
                         model="demo")
    server = serve([engine], model_path=FOLDER)
    answer = server.post("/v1/completions", {**PROMPT, "stream": stream})
    assert answer.status_code == 502
    assert "injected" not in answer.text, "engines' internals are not for clients"
    wait_until(lambda: "injected fault (INTERNAL)" in server.process.log_tail(50), 10, "the engine's words")
