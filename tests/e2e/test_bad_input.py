"""Hostile and broken clients: a clear 4xx each, nothing leaked, the process alive."""

import gzip
import json
import socket
import subprocess
import sys

import pytest
from fairlead import scaled
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


@pytest.fixture(scope="module")
def server(module_launcher):
    engine = module_launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    serve = module_launcher.serve([engine], "--http-body-limit-mb", "1", model_path=FOLDER)
    serve.engine = engine
    return serve


@pytest.fixture(autouse=True)
def nothing_leaks(server):
    yield
    server.engine.wait_idle()
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    assert server.post("/v1/chat/completions", CHAT).status_code == 200


def expect_error(answer, status, words, param=None):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert words.lower() in error["message"].lower(), error
    assert error["type"] and (error["code"] is None or isinstance(error["code"], str))
    if param:
        assert error["param"] == param


def chat(**changes):
    return {**CHAT, **changes}


@pytest.mark.parametrize(("body", "words"), [
    (b"", "json"),
    (b"{", "json"),
    (b"[]", "object"),
    (b"null", "object"),
    (b'{"model":"demo","messages":[{"role":"user","content":"a"}]} x', "json"),
    (b'{"model":"demo","messages":[{"role":"user","content":"\xff"}]}', "utf-8"),
    (b'{"model":"demo","messages":[{"role":"user","content":"a\x01b"}]}', "unescaped"),
    (b'{"model":"demo","messages":' + b"[" * 5000 + b"]" * 5000 + b"}", "nest"),
    (b'{"model":"demo","messages":[{"role":"user","content":"a"}],"x":' + b'{"a":' * 2000 + b"1"
     + b"}" * 2000 + b"}", ""),
    (b'{"model":"demo","messages":[{"role":"user","content":"\\ud800"}]}', ""),
])
def test_malformed_bodies(server, body, words):
    expect_error(server.post("/v1/chat/completions", body), 400, words)


@pytest.mark.parametrize(("changes", "param"), [
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages"),
    ({"messages": [{"role": "wizard", "content": "a"}]}, "messages"),
    ({"messages": [{"content": "a"}]}, "messages"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "messages"),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.1}, "min_p"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": -1}, "n"),
    ({"n": 1.5}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 99999999999999999999}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a"] * 33}, "stop"),
    ({"stop": [{}]}, "stop"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"1": 200}}, "logit_bias"),
    ({"logit_bias": {"word": 1}}, "logit_bias"),
    ({"logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"seed": "x"}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"min_tokens": 10, "max_tokens": 5}, "min_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": 5}, "logprobs"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"audio": {}}, "audio"),
    ({"vllm_xargs": {"a": None}}, "vllm_xargs.a"),
    ({"chat_template_kwargs": "x"}, "chat_template_kwargs"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [99999999]}, "stop_token_ids"),
])
def test_bad_fields_are_named(server, changes, param):
    answer = server.post("/v1/chat/completions", chat(**changes))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["param"] or "").startswith(param), error


def test_all_unknown_fields_are_named_at_once(server):
    answer = server.post("/v1/chat/completions", chat(frobnicate=1, bananas={"a": [1, {}]}))
    expect_error(answer, 400, "frobnicate")
    expect_error(answer, 400, "bananas")


def test_the_last_of_repeated_keys_counts(server):
    body = b'{"model":"nope","model":"demo","messages":[{"role":"user","content":"hi"}],"max_tokens":2}'
    assert server.post("/v1/chat/completions", body).status_code == 200


@pytest.mark.parametrize(("prompt", "words"), [
    ("", "prompt"), ([], "prompt"), ([[]], "prompt"), (["a", ""], "prompt"), ([1.5], "prompt"), ([-1], "prompt"),
    ([1, "a"], "prompt"), ({}, "prompt"), (None, "prompt"), ([2**40], "prompt"), ([[1], "a"], "prompt"),
])
def test_bad_prompts(server, prompt, words):
    expect_error(server.post("/v1/completions", {"model": "demo", "prompt": prompt}), 400, words)


def test_content_type_method_and_route(server):
    answer = server.post("/v1/chat/completions", json.dumps(CHAT), headers={"content-type": "text/plain"})
    expect_error(answer, 415, "content type")
    compressed = server.post("/v1/chat/completions", gzip.compress(json.dumps(CHAT).encode()),
                             headers={"content-type": "application/json", "content-encoding": "gzip"})
    expect_error(compressed, 415, "Content-Encoding")
    answer = server.get("/v1/chat/completions")
    assert answer.status_code == 405 and "POST" in answer.headers["allow"]
    expect_error(server.get("/no/such/route"), 404, "/no/such/route")


def test_an_oversized_body(server):
    expect_error(server.post("/v1/chat/completions", chat(user="x" * 2_000_000)), 413, "1048576")


def raw(server, data, timeout=20):
    host, port = server.http.rsplit(":", 1)
    with socket.create_connection((host, int(port)), scaled(timeout)) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionResetError:
            pass
    return received


@pytest.mark.parametrize("data", [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
    b"GET / HTTP/9.9\r\n\r\n",
    b"GARBAGE\r\n\r\n",
    b"GET /live HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /live HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET /live HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x00" * 1000,
], ids=range(12))
def test_what_is_not_a_request(server, data):
    answer = raw(server, data)
    assert not answer.startswith(b"HTTP/1.1 2")
    assert not answer.startswith(b"HTTP/1.1 5")


def test_slow_senders_are_cut(mock_engine, serve):
    engine = mock_engine(model="demo")
    server = serve([engine], "--http-header-timeout-secs", "1", "--http-body-timeout-secs", "1",
                   model_path=FOLDER)
    host, port = server.http.rsplit(":", 1)
    for start in (b"POST /v1/comp",
                  b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
                  b"Content-Type: application/json\r\n\r\n{"):
        with socket.create_connection((host, int(port)), scaled(20)) as connection:
            connection.sendall(start)
            assert connection.recv(4096).startswith(b"HTTP/1.1 408")
    assert server.get("/live").status_code == 200


@pytest.mark.parametrize("kind", ["http", "silent", "garbage"])
def test_an_engine_url_that_is_no_grpc_engine(serve, kind):
    script = {
        "http": "c.recv(65536); c.sendall(b'HTTP/1.1 400 Bad Request\\r\\nContent-Length: 0\\r\\n\\r\\n')",
        "silent": "import threading; threading.Event().wait()",
        "garbage": "c.sendall(b'\\xff' * 1000)",
    }[kind]
    peer = subprocess.Popen(
        [sys.executable, "-c",
         "import socket\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\n"
         f"while True:\n    c, _ = s.accept()\n    {script}\n    c.close()\n"],
        stdout=subprocess.PIPE, text=True)
    try:
        port = int(peer.stdout.readline())
        server = serve([f"http://127.0.0.1:{port}"], "--engine-probe-timeout-secs", "1",
                       model_path=FOLDER, wait_models=False)
        server.process.wait_log(rf"(?i)warn.*127\.0\.0\.1:{port}", 20)
        assert server.get("/live").status_code == 200
        assert server.get("/ready").status_code == 503
        answer = server.post("/v1/chat/completions", CHAT)
        assert answer.status_code in (404, 503), answer.text
    finally:
        peer.kill()
        peer.wait()


@pytest.mark.parametrize(("prepare", "words"), [
    (lambda folder: None, "no-such-folder"),
    (lambda folder: folder.mkdir(), "tokenizer.json"),
    (lambda folder: (folder.mkdir(), (folder / "tokenizer.json").write_text("{}"),
                     (folder / "config.json").write_text("{}")), "tokenizer.json"),
    (lambda folder: (folder.mkdir(), (folder / "tokenizer.json").write_bytes(b"\x00\xff garbage"),
                     (folder / "config.json").write_text("{}")), "tokenizer.json"),
])
def test_model_folders_that_cannot_serve(launcher, tmp_path, prepare, words):
    folder = tmp_path / "no-such-folder"
    prepare(folder)
    done = launcher.run("serve", "--direct", "--direct-backend", "vllm", "--engine-url", "http://127.0.0.1:9",
                        "--model-path", folder, "--http-host", "127.0.0.1", "--http-port", "0")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.strip()]) == 1
