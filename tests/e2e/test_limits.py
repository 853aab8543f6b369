"""What the operator's limits and logs must give when they are reached."""

import json
import re
import socket
from pathlib import Path

import pytest
from fairlead import Launcher, binary_path, wait_until
from fairlead.launcher import ROOT
from fairlead.waiting import TIME_SCALE

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
        # Until the server has seen that they are gone, it refuses more.
        wait_until(lambda: serve.post("/v1/completions", PROMPT).status_code == 200, 10, "an answer to a new client")


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_engine_said_of_its_failure_is_logged(mock_engine, serve, stream):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault", "error-after:0:INTERNAL",
                         model="demo")
    server = serve([engine], model_path=FOLDER)
    answer = server.post("/v1/completions", {**PROMPT, "stream": stream})
    assert answer.status_code == 502
    assert "injected" not in answer.text, "engines' internals are not for clients"
    wait_until(lambda: "injected fault (INTERNAL)" in server.process.log_tail(50), 10, "the engine's words")


def upload(server, length, sent):
    host, port = server.http.rsplit(":", 1)
    client = socket.create_connection((host, int(port)), timeout=20)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n" % length + b" " * sent)
    return client


def test_unfinished_bodies_are_bounded_over_all_connections(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    server = serve([engine], "--threads", "2", "--http-body-limit-mb", "4", "--http-body-total-mb", "8",
                   "--retry-after-secs", "7", model_path=FOLDER)
    held = [upload(server, 4_000_000, 3_900_000) for _ in range(2)]
    server.wait_metric("fairlead_frontend_http_unfinished_request_bytes", 7_800_000)
    refused = upload(server, 4_000_000, 0)
    answer = refused.recv(4096)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 7\r\n" in answer
    assert b'"code":"overloaded"' in answer
    assert server.post("/v1/completions", PROMPT).status_code == 200, "small requests go on"
    for client in [*held, refused]:
        client.close()
    server.wait_metric("fairlead_frontend_http_unfinished_request_bytes", 0)
    assert server.metrics().value("fairlead_frontend_http_bodies_refused_total") == 1


def test_a_body_slower_than_the_least_rate_is_refused(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    server = serve([engine], "--http-body-timeout-secs", "1", "--http-body-min-rate-kb", "4", model_path=FOLDER)
    client = upload(server, 1_000_000, 1000)
    client.settimeout(0.1)
    answer = b""
    for _ in range(200):
        client.sendall(b" ")
        try:
            answer = client.recv(4096)
            break
        except TimeoutError:
            continue
    assert answer.startswith(b"HTTP/1.1 408 ")
    client.close()


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
def test_an_answer_that_is_not_streamed_is_bounded(mock_engine, serve, backend):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo", backend=backend)
    server = serve([engine], "--http-answer-limit-mb", "0.25", backend=backend, model_path=FOLDER)
    body = {"model": "demo", "prompt": "hello world " * 20, "max_tokens": 200, "n": 8, "logprobs": 5,
            "ignore_eos": True}
    refused = server.post("/v1/completions", body)
    assert refused.status_code == 400, refused.text[:300]
    error = refused.json()["error"]
    assert (error["code"], error["param"], error["type"]) == ("answer_too_large", "stream", "invalid_request_error")
    assert "0.25 MiB" in error["message"] and "stream it" in error["message"]
    engine.wait_idle()
    server.wait_metric("fairlead_frontend_http_answer_bytes", 0)
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    one = server.post("/v1/completions", {**body, "n": 1})
    assert one.status_code == 200
    assert len(one.json()["choices"][0]["logprobs"]["tokens"]) == 200
    streamed = server.post("/v1/completions", {**body, "stream": True})
    assert streamed.status_code == 200
    assert streamed.text.endswith("data: [DONE]\n\n")
    assert '"error"' not in streamed.text
    assert len(streamed.text) > 256 * 1024, "more than one answer may have"
    engine.wait_idle()
    server.wait_metric("fairlead_frontend_http_answer_bytes", 0)


def test_what_an_answer_repeats_of_its_prompt_counts_before_an_engine_is_asked(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    server = serve([engine], "--http-answer-limit-mb", "0.01", model_path=FOLDER)
    asked = engine.state()["requests_total"]
    answer = server.post("/v1/completions", {**PROMPT, "prompt": "hello " * 500, "echo": True, "n": 8})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "answer_too_large"
    assert engine.state()["requests_total"] == asked


def rss_mb(server):
    status = (Path("/proc") / str(server.process.pid) / "status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
def test_what_engines_have_not_finished_is_bounded(mock_engine, serve, backend):
    engine = mock_engine("--vocab-size", "2612", "--speedup-ratio", "0", "--max-logprobs", "2612",
                         "--max-num-batched-tokens", "2000000", "--num-gpu-blocks", "200000", model="demo",
                         backend=backend)
    server = serve([engine], "--http-answer-limit-mb", "2", "--http-answer-total-mb", "8", "--threads", "1",
                   backend=backend, model_path=FOLDER)
    assert server.post("/v1/completions", PROMPT).status_code == 200
    before = rss_mb(server)
    # Each engine's message alone is tens of megabytes.
    body = {"model": "demo", "prompt": ["hello " * 300] * 8, "max_tokens": 1, "prompt_logprobs": -1}
    refused = server.post("/v1/completions", body, timeout=120)
    assert refused.status_code == 400, refused.text[:300]
    assert refused.json()["error"]["code"] == "answer_too_large"
    assert TIME_SCALE != 1 or rss_mb(server) - before < 100  # memory of a sanitizer build says nothing
    engine.wait_idle()
    server.wait_metric("fairlead_frontend_http_answer_bytes", 0)
    few = server.post("/v1/completions", {**body, "prompt": "hello " * 50, "prompt_logprobs": 3})
    assert few.status_code == 200
    assert len(few.json()["choices"][0]["prompt_logprobs"]) >= 50


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
def test_what_a_stream_holds_back_is_bounded(mock_engine, serve, tmp_path, backend):
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps([87] * 4000) + "\n")  # `x`
    engine = mock_engine("--vocab-size", "2612", "--speedup-ratio", "0", "--reply", f"script:{script}",
                         "--max-num-seqs", "1000", "--num-gpu-blocks", "200000", model="demo", backend=backend)
    server = serve([engine], "--http-answer-limit-mb", "2", "--http-answer-total-mb", "8", "--threads", "1",
                   backend=backend, model_path=FOLDER)
    body = {"model": "demo", "prompt": "hello", "n": 16, "max_tokens": 3900, "stream": True, "logprobs": 20,
            "ignore_eos": True}
    assert server.post("/v1/completions", {**body, "n": 1, "max_tokens": 10}).status_code == 200
    before = rss_mb(server)
    refused = server.post("/v1/completions", {**body, "stop": "x" * 4500}, timeout=120)
    assert '"answer_too_large"' in refused.text[-500:]
    assert TIME_SCALE != 1 or rss_mb(server) - before < 30  # memory of a sanitizer build says nothing
    engine.wait_idle()
    server.wait_metric("fairlead_frontend_http_answer_bytes", 0)
