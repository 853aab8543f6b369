"""Failures on the wire to an engine, by the rows W1 to W10 of the conformance list: what the client of a frontend that
dials engines itself sees, and that nothing is left anywhere."""

import signal
import socket
import struct

import pytest
from fairlead import wait_until
from fairlead.families import FOLDER, Stream, body, complete, expect_idle, formula, plain, request_id, send, wait_healthy
from fairlead.fault_proxy import black_hole, cut, reset
from fairlead.vllm_api import logprob
from wire import MISBEHAVIOURS, WireEngine

# gRPC status -> HTTP status, code of the error object, whether the engine leaves routing until it is probed again.
STATUSES = {
    "UNAVAILABLE": (503, "service_unavailable", True),
    "DEADLINE_EXCEEDED": (504, "engine_timeout", True),
    "RESOURCE_EXHAUSTED": (503, "overloaded", False),
    "CANCELLED": (502, "engine_cancelled", False),
    "INVALID_ARGUMENT": (400, "invalid_request", False),
    "OUT_OF_RANGE": (400, "invalid_request", False),
    "FAILED_PRECONDITION": (400, "invalid_request", False),
    "ALREADY_EXISTS": (400, "invalid_request", False),
    "INTERNAL": (502, "engine_error", False),
    "DATA_LOSS": (502, "engine_error", False),
}
# So slow that the beginning of an answer is on its way to the client before its end is there.
PACED = ("--token-interval-ms", "20")
LEFT = r"engine left routing .*reason=\"a request failed\""


def expect_recovery(server, engine, name="after"):
    """The next request on the same engine works, once it is in routing."""
    wait_healthy(server, 1)
    answer = complete(server, name, max_tokens=5)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == formula(name, 5)
    expect_idle(server, engine)


# W1: exact tokens, one terminal, right usage, data after the terminal ignored.


@pytest.mark.parametrize("count", [1, 2, 300])
def test_W1_exact_tokens_one_end_by_length_and_usage(family, launcher, count):
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    stream = Stream(server, body(count), f"w1-{count}").read_all()
    stream.expect_complete(formula(f"w1-{count}", count))
    assert stream.usage["prompt_tokens"] == 3
    answer = complete(server, f"w1-unary-{count}", max_tokens=count).json()
    assert answer["choices"][0]["token_ids"] == formula(f"w1-unary-{count}", count)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, count)
    expect_idle(server, engine)
    assert engine.state()["finished_total"] == 2


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_W1_what_comes_behind_the_end_is_ignored(odd_engine, stream):
    engine, server = odd_engine
    fields = body(6, prompt=[MISBEHAVIOURS["more-behind-the-end"], 6, 7])
    expected = complete(server, max_tokens=6, prompt=[600, 6, 7]).json()["usage"]["completion_tokens"]
    assert expected == 6
    if stream:
        answer = Stream(server, fields).read_all()
        answer.expect_complete(answer.tokens)
        assert len(answer.tokens) == 6
    else:
        answer = server.post("/v1/completions", fields).json()
        assert len(answer["choices"][0]["token_ids"]) == answer["usage"]["completion_tokens"] == 6
    expect_idle(server)
    assert engine.wait_event("finished", 2)


# W2: open failure, early end, read failure.


def test_W2_an_engine_that_cannot_be_reached(family, launcher, fault_proxy):
    engine = family.engine(launcher)
    proxy = fault_proxy(engine)
    server = family.serve(launcher, [proxy], "--engine-health-interval-secs", "600")
    proxy.refuse()
    proxy.strike(cut())
    answer = complete(server)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "service_unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert engine.state()["requests_total"] == 0
    server.process.wait_log(LEFT)
    proxy.recover()
    expect_recovery(server, engine)


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("status", STATUSES)
def test_W2_a_status_instead_of_an_answer(family, launcher, status, stream):
    http_status, code, leaves = STATUSES[status]
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    engine.set_faults(f"error-after:0:{status}")
    answer = complete(server, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (http_status, code)
    assert ("injected" in answer.text) == (http_status == 400), "the engine's words are shown when it blames the request"
    assert ("retry-after" in answer.headers) == (http_status == 503)
    engine.set_faults()
    if leaves:
        server.process.wait_log(LEFT)
    expect_recovery(server, engine)
    assert ("left routing" in server.process.log_text()) == leaves


@pytest.mark.parametrize("status", STATUSES)
def test_W2_a_status_in_the_middle_keeps_the_prefix(family, launcher, status):
    _, code, leaves = STATUSES[status]
    engine = family.engine(launcher, *PACED)
    server = family.serve(launcher, [engine])
    engine.set_faults(f"error-after:10:{status}")
    name = plain("w2", 10)
    Stream(server, body(50), name).read_all().expect_failed(formula(name, 10), code)
    engine.set_faults()
    if leaves:
        server.process.wait_log(LEFT)
    expect_recovery(server, engine)
    assert ("left routing" in server.process.log_text()) == leaves


@pytest.mark.parametrize("fault", ["end-after:10", "reset-after:10"])
def test_W2_an_early_end_and_a_reset_stream_keep_the_prefix(family, launcher, fault):
    engine = family.engine(launcher, *PACED)
    server = family.serve(launcher, [engine])
    engine.set_faults(fault)
    name = plain("w2", 10)
    Stream(server, body(50), name).read_all().expect_failed(formula(name, 10), "engine_disconnected")
    answer = complete(server, max_tokens=50)
    assert answer.status_code in (502, 503), "no success without the end"
    engine.set_faults()
    expect_recovery(server, engine)


@pytest.mark.parametrize("fault", [cut(), reset(), cut(100), reset(100)], ids=["fin", "rst", "fin-inside", "rst-inside"])
def test_W2_a_lost_connection_keeps_the_prefix(family, launcher, fault_proxy, fault):
    engine = family.engine(launcher, "--token-interval-ms", "5")
    proxy = fault_proxy(engine)
    server = family.serve(launcher, [proxy])
    stream = Stream(server, body(3000), "w2").read_tokens(3)
    proxy.strike(fault)
    stream.read_all()
    assert 3 <= len(stream.tokens) < 3000
    stream.expect_failed(formula("w2", len(stream.tokens)), "engine_disconnected")
    engine.wait_state(running=0, aborted_total=1)
    expect_recovery(server, engine)


# W3: rejection by the engine.


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_W3_a_rejection_reaches_the_client_in_the_engines_words(family, launcher, stream):
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    engine.set_faults("error-after:0:INVALID_ARGUMENT")
    for _ in range(5):
        answer = complete(server, stream=stream)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request")
        assert "injected fault" in error["message"]
    assert engine.state()["requests_total"] == 5, "never tried again"
    engine.set_faults()
    expect_recovery(server, engine)
    assert "left routing" not in server.process.log_text()


# W4: an end that makes no sense.


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize("what", ["unknown-reason", "wrong-total", "count-unlike-ids", "another-index"])
def test_W4_an_invalid_end_is_a_protocol_error_behind_the_prefix(odd_engine, what, stream):
    engine, server = odd_engine
    fields = body(30, prompt=[MISBEHAVIOURS[what], 6, 7])
    if stream:
        good = Stream(server, body(30, prompt=[600, 6, 7])).read_all()
        assert len(good.tokens) == 30
        answer = Stream(server, fields).read_all()
        answer.expect_failed(answer.tokens, "engine_protocol_error")
        assert len(answer.tokens) == 29
    else:
        answer = server.post("/v1/completions", fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_protocol_error")
    assert complete(server, max_tokens=4).status_code == 200, "the engine is not blamed"
    expect_idle(server)
    assert "left routing" not in server.process.log_text()


# W5: cancelled before the stream is open, while it waits for headers, while it is read.


def test_W5_cancelled_before_it_is_open_nothing_is_submitted(family, launcher, fault_proxy):
    engine = family.engine(launcher)
    proxy = fault_proxy(engine)
    server = family.serve(launcher, [proxy], "--engine-health-interval-secs", "600")
    proxy.plan(black_hole())
    proxy.strike(cut())
    connection = send(server, body(50))
    proxy.wait_for("black-hole")
    connection.close()
    expect_idle(server)
    assert engine.state()["requests_total"] == 0
    proxy.clear()
    wait_until(lambda: complete(server).status_code == 200, 10, "an answer behind the pause of the dialing")
    expect_recovery(server, engine)
    assert engine.state()["requests_total"] == 2


def test_W5_cancelled_while_it_waits_for_headers(family, launcher):
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    engine.set_faults("stall-open")
    connection = send(server, body(50))
    engine.wait_state(requests_total=1)
    connection.close()
    engine.wait_state(running=0, waiting=0, aborted_total=1)
    engine.set_faults()
    expect_recovery(server, engine)


def test_W5_cancelled_while_read_another_on_the_same_connection_finishes(family, launcher, fault_proxy):
    engine = family.engine(launcher, "--token-interval-ms", "5")
    proxy = fault_proxy(engine)
    server = family.serve(launcher, [proxy], "--threads", "1")
    a = Stream(server, body(5000), "a").read_tokens(2)
    b = Stream(server, body(60), "b").read_tokens(2)
    connections = [c.number for c in proxy.connections()]
    assert len(connections) == 2, "one of the control reactor, one of the only lane"
    a.close()
    b.read_all().expect_complete(formula("b", 60))
    expect_idle(server, engine)
    state = engine.state()
    assert (state["finished_total"], state["aborted_total"]) == (1, 1)
    assert [c.number for c in proxy.connections()] == connections


# W6: explicit cancel of running work.


def test_W6_an_abort_ends_the_stream_with_the_prefix_and_frees_the_engine(family, launcher, stubs):
    engine = family.engine(launcher, "--token-interval-ms", "5")
    server = family.serve(launcher, [engine])
    stream = Stream(server, body(5000), "w6").read_tokens(4)
    family.abort(engine, stubs, "w6")
    stream.read_all()
    assert 4 <= len(stream.tokens) < 5000
    stream.expect_failed(formula("w6", len(stream.tokens)), "engine_cancelled")
    state = engine.wait_state(running=0, waiting=0, aborted_total=1)
    assert state["kv_blocks_used"] == 0
    expect_recovery(server, engine)
    assert "left routing" not in server.process.log_text()


def test_W6_a_cancel_reaches_the_engine_as_an_abort(family, launcher):
    engine = family.engine(launcher, "--token-interval-ms", "5")
    server = family.serve(launcher, [engine])
    Stream(server, body(5000), "w6-client").read_tokens(4).close()
    engine.wait_state(running=0, waiting=0, aborted_total=1, abort_calls_total=1)
    assert engine.state()["last_aborted_ids"] == [request_id("w6-client")]
    expect_recovery(server, engine)


# W7: the consumer drops the stream.


@pytest.mark.parametrize("how", ["fin", "rst", "unread"])
def test_W7_a_dropped_stream_is_released(family, launcher, how):
    engine = family.engine(launcher, "--token-interval-ms", "2")
    server = family.serve(launcher, [engine])
    connections = [send(server, body(8000)) for _ in range(4)]
    for connection in connections:
        assert connection.recv(100 if how == "unread" else 4096).startswith(b"HTTP/1.1 200")
    engine.wait_state(running=4)
    for connection in connections:
        if how == "rst":
            linger_reset(connection)
        connection.close()
    state = engine.wait_state(running=0, waiting=0, aborted_total=4)
    assert state["kv_blocks_used"] == 0
    expect_recovery(server, engine)


# W8: before the start, at the end, after the end.


def test_W8_nothing_is_generated_before_the_start_or_after_the_end(family, launcher):
    engine = family.engine(launcher, "--token-interval-ms", "20")
    address = engine.address
    engine.stop()
    server = family.serve(launcher, [f"http://{address}"], "--graceful-shutdown-timeout-secs", "600",
                          wait_models=False)
    assert complete(server).status_code in (404, 503)
    engine = family.engine(launcher, "--token-interval-ms", "20", listen=address)
    server.wait_ready()
    stream = Stream(server, body(5000), "w8").read_tokens(2)
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
    assert complete(server).status_code == 503
    assert engine.state()["requests_total"] == 1, "nothing is admitted any more"
    server.process.signal(signal.SIGTERM)  # again, and at once
    server.process.wait_exit(10)
    engine.wait_state(running=0, waiting=0, aborted_total=1)
    stream.close()


def test_W8_the_end_cancels_live_streams_and_says_so(family, launcher):
    engine = family.engine(launcher, "--token-interval-ms", "20")
    server = family.serve(launcher, [engine], "--graceful-shutdown-timeout-secs", "1")
    streams = [Stream(server, body(5000), f"w8-{i}").read_tokens(2) for i in range(3)]
    server.process.signal(signal.SIGTERM)
    for i, stream in enumerate(streams):
        stream.read_all()
        stream.expect_failed(formula(f"w8-{i}", len(stream.tokens)), "service_unavailable")
    assert server.process.wait_exit(15) == 0
    engine.wait_state(running=0, waiting=0, aborted_total=3)


# W9: the engine ends with clients alive.


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_W9_an_engine_that_ends_leaves_prefixes_and_typed_failures(family, launcher, how):
    flags = ["--token-interval-ms", "10"]
    engine = family.engine(launcher, *flags)
    server = family.serve(launcher, [engine])
    streams = [Stream(server, body(5000), f"w9-{i}").read_tokens(2) for i in range(4)]
    getattr(engine, how)()
    for i, stream in enumerate(streams):
        stream.read_all()
        stream.expect_failed(formula(f"w9-{i}", len(stream.tokens)), "engine_disconnected", "engine_cancelled",
                             "service_unavailable")
    expect_idle(server)
    wait_healthy(server, 0)
    back = family.engine(launcher, *flags, listen=engine.address)
    expect_recovery(server, back)


# W10: log-probabilities and fields.


def test_W10_logprobs_of_tokens_and_prompt_and_fields_pass_through(family, launcher):
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    fields = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "min_p": 0.125, "seed": 11, "presence_penalty": 0.5,
              "frequency_penalty": -0.5, "repetition_penalty": 1.5, "min_tokens": 2, "priority": 3}
    answer = complete(server, max_tokens=6, logprobs=3, prompt_logprobs=2, return_tokens_as_token_ids=True, **fields)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    tokens, shown = choice["token_ids"], choice["logprobs"]
    assert len(tokens) == 6
    assert shown["token_logprobs"] == pytest.approx([logprob(token) for token in tokens], rel=1e-4)
    for token, top in zip(tokens, shown["top_logprobs"], strict=True):
        assert len(top) >= 3 and top[f"token_id:{token}"] == pytest.approx(logprob(token), rel=1e-4)
        assert max(top, key=top.get) == f"token_id:{token}"
    assert choice["prompt_logprobs"][0] is None
    assert [str(token) in entry for token, entry in zip([6, 7], choice["prompt_logprobs"][1:], strict=True)] == [True] * 2
    sent = engine.requests()[-1]
    expect_fields(sent, fields)
    expect_idle(server, engine)


def expect_fields(sent, fields):
    flat = {}
    for name, value in sent.items():
        flat |= value if isinstance(value, dict) else {name: value}
    for name in ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
                 "repetition_penalty"):
        assert float(flat[name]) == pytest.approx(fields[name]), (name, sent)


@pytest.fixture
def odd_engine(tmp_path, launcher):
    """An engine of other making that ends some generations in odd ways, and a frontend of it."""
    with WireEngine(tmp_path / "wire", "newest", "--model-name", "demo", "--first-id", 256, "--last-id", 2600,
                    "--token-interval-ms", 10, "--misbehave") as engine:
        server = launcher.serve([engine.url], "--model-name", "demo", model_path=FOLDER)
        server.wait_model("demo")
        yield engine, server


def linger_reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
