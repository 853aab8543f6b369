"""One real SGLang engine that prefills and one that decodes, with a real transfer of the KV cache between them."""

import concurrent.futures
import contextlib
import itertools
import json
import socket
import time

import pytest
from fairlead import wait_until
from fairlead.real_sglang import FOLDER, MODEL, PAGE, sglang_engines

CLOSE = 2e-3
ROOMS = itertools.count(1)


@pytest.fixture(scope="module")
def legs(tmp_path_factory):
    with sglang_engines(tmp_path_factory.mktemp("sglang-pd"), {"role": "prefill"}, {"role": "decode"}) as engines:
        yield engines


@pytest.fixture(scope="module")
def server(module_launcher, legs):
    prefill, decode = legs
    return module_launcher.serve([decode.grpc], "--prefill-engine-url", prefill.grpc, backend="sglang",
                                 model_path=FOLDER, ready_timeout=60)


def busy(engine):
    """Requests in any of its queues."""
    load = engine.load()
    queues = load.get("disaggregation") or {}
    return load["num_running_reqs"] + load["num_waiting_reqs"] + sum(
        value for key, value in queues.items() if key.endswith("_queue_reqs"))


def wait_idle(legs, seconds=30):
    for engine in legs:
        wait_until(lambda e=engine: busy(e) == 0, seconds, f"an empty {engine.role} engine", interval=0.05)


def flush(legs):
    for engine in legs:
        engine.flush()


def own_answer(legs, ids, count, top):
    """What the engines answer when both legs are sent to them by hand."""
    prefill, decode = legs
    body = {"input_ids": ids, "return_logprob": True, "top_logprobs_num": top, "bootstrap_host": "127.0.0.1",
            "bootstrap_port": prefill.bootstrap, "bootstrap_room": next(ROOMS)}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(prefill.post, "/generate",
                            {**body, "sampling_params": {"temperature": 0, "max_new_tokens": 1}})
        second = pool.submit(decode.post, "/generate",
                             {**body, "sampling_params": {"temperature": 0, "max_new_tokens": count}})
        assert first.result().json()["meta_info"]["finish_reason"]["type"] == "length"
        return second.result().json()


def close(a, b):
    return abs(a - b) <= CLOSE


def test_twenty_answers_equal_what_both_legs_give_by_hand(legs, server):
    for i in range(20):
        top, count, words = i % 4, 6 + i % 7, f"Number {i} of {20 * i} is {'π and ' * (i % 9)}"
        flush(legs)
        body = {"model": MODEL, "temperature": 0, "return_token_ids": True, "return_tokens_as_token_ids": True}
        if i % 2:
            body |= {"prompt": words, "max_tokens": count, "logprobs": top}
            answer = server.post("/v1/completions", body, timeout=180)
        else:
            body |= {"messages": [{"role": "user", "content": words}], "max_tokens": count, "logprobs": True,
                     "top_logprobs": top}
            answer = server.post("/v1/chat/completions", body, timeout=180)
        assert answer.status_code == 200, answer.text
        answer = answer.json()
        choice = answer["choices"][0]
        ids = answer.get("prompt_token_ids") or choice["prompt_token_ids"]
        flush(legs)
        own = own_answer(legs, ids, count, top)
        meta = own["meta_info"]
        assert choice["token_ids"] == own["output_ids"]
        assert (choice["message"]["content"] if i % 2 == 0 else choice["text"]) == own["text"]
        assert choice["finish_reason"] == meta["finish_reason"]["type"] == "length"
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (
            meta["prompt_tokens"], meta["completion_tokens"])
        if i % 2:
            rows = list(zip(choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"],
                            choice["logprobs"]["top_logprobs"] or [{}] * count, strict=True))
        else:
            rows = [(e["token"], e["logprob"], {t["token"]: t["logprob"] for t in e["top_logprobs"]})
                    for e in choice["logprobs"]["content"]]
        assert [row[0] for row in rows] == [f"token_id:{entry[1]}" for entry in meta["output_token_logprobs"]]
        assert all(close(row[1], entry[0]) for row, entry in zip(rows, meta["output_token_logprobs"], strict=True))
        if top:
            for row, candidates in zip(rows, meta["output_top_logprobs"], strict=True):
                theirs = {f"token_id:{entry[1]}": entry[0] for entry in candidates}
                assert all(close(theirs[name], row[2][name]) for name in theirs.keys() & row[2].keys())
                assert len(theirs.keys() & row[2].keys()) >= top - 1  # the last may tie with the next
    wait_idle(legs)


def test_each_request_names_both_its_workers(legs, server):
    mark = server.process.log_mark()
    assert server.post("/v1/completions", {"model": MODEL, "prompt": "one two", "max_tokens": 3},
                       timeout=180).status_code == 200
    line = server.process.wait_log(r"prefill_worker_id=(\d+).*decode_worker_id=(\d+)", 10, mark)
    assert line.group(1) != line.group(2)


def test_cached_tokens_are_the_prefill_engines(legs, server):
    flush(legs)
    ids = list(range(2000, 2000 + 4 * PAGE + 3))
    counts = []
    for _ in range(2):
        usage = server.post("/v1/completions", {"model": MODEL, "prompt": ids, "max_tokens": 3},
                            timeout=180).json()["usage"]
        counts.append(usage["prompt_tokens_details"]["cached_tokens"])
    assert counts == [0, 4 * PAGE]


@contextlib.contextmanager
def request_on_a_socket(server, body):
    """A request whose answer nobody has read yet; leaving closes the connection."""
    host, port = server.http.rsplit(":", 1)
    data = json.dumps(body).encode()
    with socket.create_connection((host, int(port)), timeout=60) as sock:
        sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: fairlead\r\nContent-Type: application/json\r\n"
                     b"Content-Length: " + str(len(data)).encode() + b"\r\n\r\n" + data)
        yield sock


def long_request(i):
    return {"model": MODEL, "prompt": [3000 + i] * (40 * (1 + i % 5)), "max_tokens": 3000, "ignore_eos": True,
            "stream": True, "temperature": 0}


def test_twenty_cancels_free_both_engines(legs, server):
    """At every stage: seen by an engine, at the first token and later."""
    wait_idle(legs)
    slowest = 0.0
    for i in range(20):
        with request_on_a_socket(server, long_request(i)) as sock:
            if i % 3 == 0:
                wait_until(lambda: any(busy(engine) for engine in legs), 60, "a leg", interval=0.002)
            else:
                seen = b""
                while seen.count(b"data: ") < (1 if i % 3 == 1 else 12):
                    part = sock.recv(65536)
                    assert part, seen
                    seen += part
        left = time.monotonic()
        wait_idle(legs)
        slowest = max(slowest, time.monotonic() - left)
    assert slowest < 10
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    answer = server.post("/v1/completions", {"model": MODEL, "prompt": "after all", "max_tokens": 5}, timeout=180)
    assert answer.json()["usage"]["completion_tokens"] == 5


def test_cancels_at_once_free_both_engines(legs, server):
    """Of clients that leave when their request was just sent: SGLang loses an abort that overtakes it."""
    wait_idle(legs)
    for i in range(20):
        with request_on_a_socket(server, long_request(i)):
            pass
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    wait_idle(legs)
