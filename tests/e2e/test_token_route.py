"""Fields of a request that only some servers of the token route know, and streams that stall."""

import json
import socket
import socketserver
import threading
from contextlib import suppress

import pytest
from fairlead.launcher import ROOT
from fairlead.waiting import scaled

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 1}
RUST = ["rust-0.33", "rust-0.32"]


@pytest.fixture
def start(mock_engine, serve):
    def factory(flavor, *flags):
        engine = mock_engine("--speedup-ratio", "0", "--vocab-size", "2612", *flags, model="demo",
                             backend="vllm-http", flavor=flavor)
        return engine, serve([engine], backend="vllm-http", model_path=FOLDER)

    return factory


def sampling(engine):
    """Of what was generated; probes are refused."""
    return [request["sampling"] for request in engine.requests() if request["refusal"] is None]


def refused(server, **fields):
    """The field that a refusal names."""
    answer = server.post("/v1/completions", {**PROMPT, **fields})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]["param"]


@pytest.mark.parametrize("flavor", RUST)
def test_bad_words_arrive_as_token_ids(start, launcher, flavor):
    engine, server = start(flavor)
    answer = server.post("/v1/completions", {**PROMPT, "bad_words_token_ids": [[5, 6], [7]]})
    assert answer.status_code == 200, answer.text
    assert sampling(engine)[-1]["bad_words_token_ids"] == [[5, 6], [7]]
    answer = server.post("/v1/completions", {**PROMPT, "bad_words": ["one"]})
    assert answer.status_code == 200, answer.text
    one = launcher.run_lines("tokenize", "--model", FOLDER, lines=[{"text": "one"}])[0]["ids"]
    assert one in sampling(engine)[-1]["bad_words_token_ids"]
    assert refused(server, logit_bias={"7": 1}) == "logit_bias"
    assert len(sampling(engine)) == 2


def test_the_python_server_takes_biases_and_no_ids_of_bad_words(start):
    engine, server = start("python-0.32")
    answer = server.post("/v1/completions", {**PROMPT, "logit_bias": {"7": -3.5}})
    assert answer.status_code == 200, answer.text
    assert sampling(engine)[-1]["logit_bias"] == {"7": -3.5}
    for field, value in (("bad_words", ["one"]), ("bad_words_token_ids", [[5]])):
        assert refused(server, **{field: value}) == "bad_words_token_ids"
    assert len(sampling(engine)) == 1


def test_bad_words_need_a_server_that_knows_them(start):
    engine, server = start("rust-0.33", "--without", "bad-words-token-ids")
    assert refused(server, bad_words_token_ids=[[5]]) == "bad_words_token_ids"
    assert sampling(engine) == []


class StallBehindFinish(socketserver.ThreadingTCPServer):
    """Stands before an engine and passes everything on, but nothing behind the event of a stream that has
    the finish. `left` is set when such a connection is closed."""

    daemon_threads = True

    def __init__(self, engine):
        super().__init__(("127.0.0.1", 0), None)
        host, port = engine.url.rsplit("/", 1)[-1].rsplit(":", 1)
        self.engine = (host, int(port))
        self.url = "http://{}:{}".format(*self.server_address)
        self.left = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request, client_address):
        gone = threading.Event()
        with socket.create_connection(self.engine) as engine, suppress(OSError):
            threading.Thread(target=self.pass_on, args=(request, engine, gone), daemon=True).start()
            while part := engine.recv(65536):
                finish = part.find(b'"finish_reason":"length"')
                if finish >= 0:
                    request.sendall(part[:part.index(b"\n\n", finish) + 2])
                    if gone.wait(scaled(20)):
                        self.left.set()
                    return
                request.sendall(part)

    @staticmethod
    def pass_on(request, engine, gone):
        with suppress(OSError):
            while part := request.recv(65536):
                engine.sendall(part)
        gone.set()
        with suppress(OSError):
            engine.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_stalls_behind_the_finish_does_not_hold_the_answer(start, serve, stream):
    engine, plain = start("rust-0.33", "--reply", "echo")
    stalling = StallBehindFinish(engine)
    server = serve([stalling.url], backend="vllm-http", model_path=FOLDER)
    body = {**PROMPT, "max_tokens": 3, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}

    def read(server):
        answer = server.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        if not stream:
            return [answer.json()]
        lines = [line for line in answer.text.split("\n\n") if line]
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    expected, got = read(plain), read(server)
    texts = ["".join(choice["text"] for chunk in chunks for choice in chunk["choices"]) for chunks in (expected, got)]
    assert texts[0] and texts[0] == texts[1]
    assert got[-1]["usage"]["completion_tokens"] == 3
    reasons = [choice["finish_reason"] for chunk in got for choice in chunk["choices"]]
    assert reasons[-1] == "length"
    assert stalling.left.wait(scaled(10))
    engine.wait_idle()
    stalling.shutdown()
    stalling.server_close()
