"""The rows P4 to P10 of the conformance list: failures as the clients of the whole program see them."""

import signal

import pytest
from fairlead import wait_until
from fairlead.families import (
    Stream,
    body,
    complete,
    expect_idle,
    formula,
    healthy,
    plain,
    request_id,
    send,
    wait_healthy,
)
from fairlead.fault_proxy import DOWN, delay

MESSAGES = [{"role": "user", "content": "hello"}]
INVALID = "error-after:0:INVALID_ARGUMENT"


def chat(**fields):
    return {"model": "demo", "messages": MESSAGES, "max_tokens": 8, "ignore_eos": True, **fields}


# P4: engines generate one sequence each; more are fanned out here.


def test_P4_n_sequences_are_so_many_requests_of_one_each(family, launcher):
    engines = [family.engine(launcher) for _ in range(2)]
    server = family.serve(launcher, engines)
    wait_healthy(server, 2)
    answer = complete(server, "p4", n=3, max_tokens=5)
    assert answer.status_code == 200, answer.text
    choices = answer.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert answer.json()["usage"] == answer.json()["usage"] | {"prompt_tokens": 3, "completion_tokens": 15}
    seen = [request for engine in engines for request in engine.requests()]
    assert sorted(request["request_id"] for request in seen) == [f"{request_id('p4')}-{i}" for i in range(3)]
    assert all(request.get("sampling", {}).get("num_sequences", 1) == 1 for request in seen)
    expect_idle(server, *engines)


def test_P4_one_failed_sequence_fails_the_request_and_ends_the_others(family, launcher):
    engines = [family.engine(launcher, "--token-interval-ms", "20") for _ in range(2)]
    server = family.serve(launcher, engines)
    wait_healthy(server, 2)
    stream = Stream(server, body(4000, n=2), "p4").read_tokens(4)
    for engine in engines:
        engine.wait_state(running=1)
    engines[0].kill()
    stream.read_all()
    assert [error["code"] for error in stream.errors] == ["engine_disconnected"]
    assert stream.done and not stream.finish_reasons
    engines[1].wait_state(running=0, aborted_total=1)
    expect_idle(server, engines[1])


# P5: rejection, not streamed.


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_P5_a_rejection_is_a_400_with_the_engines_reason(family, launcher, path):
    engine = family.engine(launcher)
    server = family.serve(launcher, [engine])
    engine.set_faults(INVALID)
    answer = server.post(path, body() if path == "/v1/completions" else chat())
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error == error | {"type": "invalid_request_error", "code": "invalid_request", "param": None}
    assert "injected fault" in error["message"]
    assert engine.state()["requests_total"] == 1
    expect_idle(server, engine)


# P6: failure behind the first tokens of a stream.


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize(("status", "code"), [("UNAVAILABLE", "service_unavailable"), ("INTERNAL", "engine_error")])
def test_P6_a_stream_that_fails_says_so_once_and_ends(family, launcher, path, status, code):
    engine = family.engine(launcher, "--token-interval-ms", "100")
    server = family.serve(launcher, [engine])
    engine.set_faults(f"error-after:2:{status}")
    name = plain("p6", 2)
    fields = body() if path == "/v1/completions" else chat(return_token_ids=True)
    stream = Stream(server, fields, name, path=path).read_all()
    stream.expect_failed(formula(name, 2), code)
    assert stream.errors[0]["type"] == "server_error"
    assert not any("injected" in frame or engine.address in frame for frame in stream.frames)
    assert stream.frames[-1] == "[DONE]" and '"error"' in stream.frames[-2]
    expect_idle(server, engine)


# P7: the same path serves again.


def test_P7_after_each_failure_the_same_path_serves(family, launcher):
    engine = family.engine(launcher, "--token-interval-ms", "10")
    server = family.serve(launcher, [engine])
    faults = [INVALID, "error-after:0:UNAVAILABLE", "error-after:4:UNAVAILABLE", "error-after:0:INTERNAL", "reset-after:0",
              "reset-after:4", "end-after:0", "end-after:4"]
    paths = {"/v1/completions": body(20), "/v1/chat/completions": chat(return_token_ids=True)}
    for number, fault in enumerate(faults):
        for path, fields in paths.items():
            for stream in (False, True):
                engine.set_faults(fault)
                if stream:
                    failed = Stream(server, fields, path=path).read_all()
                    assert failed.status >= 400 or (len(failed.errors), failed.done) == (1, True), (fault, failed.frames)
                    assert not failed.finish_reasons
                else:
                    assert server.post(path, fields).status_code >= 400, fault
                engine.set_faults()
                name = f"p7-{number}-{stream}"

                def served(path=path, fields=fields, name=name):
                    answer = Stream(server, fields, name, path=path).read_all()
                    return answer if answer.status != 503 else None

                # The engine leaves routing for a moment, perhaps only after it looked well again.
                good = wait_until(served, 10, "the path to serve again")
                good.expect_complete(formula(name, fields["max_tokens"]))
    expect_idle(server, engine)
    state = engine.state()
    assert state["finished_total"] == len(faults) * 4


# P8: SIGTERM.


def test_P8_readiness_goes_first_then_the_stream_ends_then_the_program(family, launcher):
    engine = family.engine(launcher, "--token-interval-ms", "10")
    server = family.serve(launcher, [engine], "--graceful-shutdown-timeout-secs", "60")
    stream = Stream(server, body(150), "p8").read_tokens(2)
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: server.get("/ready").status_code == 503, 10, "no readiness")
    assert engine.state()["running"] == 1, "the active request goes on"
    assert complete(server).status_code == 503
    stream.read_all().expect_complete(formula("p8", 150))
    assert server.process.wait_exit(15) == 0
    engine.wait_state(running=0, finished_total=1, aborted_total=0)


def test_P8_an_engine_that_is_draining_gets_nothing_new_and_finishes(family, launcher):
    engines = [family.engine(launcher, "--token-interval-ms", "10") for _ in range(2)]
    server = family.serve(launcher, engines)
    wait_healthy(server, 2)
    streams = [Stream(server, body(300), f"p8-{i}").read_tokens(2) for i in range(2)]
    engines[0].set_faults("not-serving")
    wait_until(lambda: healthy(server) == [engines[1].url], 15, "one engine in routing")
    before = engines[0].state()["requests_total"]
    for _ in range(4):
        assert complete(server, max_tokens=2).status_code == 200
    assert engines[0].state()["requests_total"] == before
    for i, stream in enumerate(streams):
        stream.read_all().expect_complete(formula(f"p8-{i}", 300))
    engines[0].set_faults()
    wait_healthy(server, 2)
    expect_idle(server, *engines)


# P9: the hand-off.


def test_P9_the_hand_off_works_again_and_again(family, launcher):
    prefills, decodes = family.pairs(launcher, 1, 1)
    server = family.serve_pairs(launcher, prefills, decodes)
    for i in range(20):
        if i % 2:
            Stream(server, body(6), f"p9-{i}").read_all().expect_complete(formula(f"p9-{i}", 6))
        else:
            assert complete(server, f"p9-{i}", max_tokens=6).json()["choices"][0]["token_ids"] == formula(f"p9-{i}", 6)
    assert [engine.state()["finished_total"] for engine in (*prefills, *decodes)] == [20, 20]
    expect_idle(server, *prefills, *decodes)


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
def test_P9_a_prefill_engine_may_be_heard_late(family, launcher, fault_proxy, stream):
    prefills, decodes = family.pairs(launcher, 1, 1, "--token-interval-ms", "20")  # in the middle of the answer
    proxy = fault_proxy(prefills[0])
    server = family.serve_pairs(launcher, [proxy], decodes)
    assert complete(server, max_tokens=2).status_code == 200
    proxy.plan(delay(0.1, DOWN))
    proxy.strike(delay(0.1, DOWN))
    if stream:
        Stream(server, body(40), "late").read_all().expect_complete(formula("late", 40))
    else:
        assert complete(server, "late", max_tokens=40).json()["choices"][0]["token_ids"] == formula("late", 40)
    proxy.clear()
    expect_pair_serves(server, prefills, decodes)


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize(("fault", "statuses"), [
    ("error-after:0:INTERNAL", {502}), (INVALID, {400}), ("error-after:0:UNAVAILABLE", {503}), ("reset-after:0", {502, 503}),
    ("end-after:0", {502, 503})])
def test_P9_a_failed_prefill_is_an_error_and_no_answer(family, launcher, fault, statuses, stream):
    prefills, decodes = family.pairs(launcher, 1, 1)
    server = family.serve_pairs(launcher, prefills, decodes)
    prefills[0].set_faults(fault)
    answer = complete(server, stream=stream)
    assert answer.status_code in statuses, answer.text
    assert "finish_reason" not in answer.text
    if family.backend == "vllm":
        assert decodes[0].state()["requests_total"] == 0, "it never reaches the decode engine"
    prefills[0].set_faults()
    expect_pair_serves(server, prefills, decodes)


def test_P9_a_failed_decode_is_an_error_and_the_prefill_engine_is_free(family, launcher):
    prefills, decodes = family.pairs(launcher, 1, 1, "--token-interval-ms", "20")
    server = family.serve_pairs(launcher, prefills, decodes)
    decodes[0].set_faults("error-after:10:INTERNAL")
    name = plain("p9", 10)
    Stream(server, body(50), name).read_all().expect_failed(formula(name, 10), "engine_error")
    decodes[0].set_faults()
    expect_pair_serves(server, prefills, decodes)


# P10: cancels around the hand-off.


@pytest.mark.parametrize("stage", ["prefill", "before-the-first-token", "decode"])
def test_P10_a_cancel_at_the_hand_off_frees_both_engines(family, launcher, stage):
    prefills, decodes = family.pairs(launcher, 1, 1, "--token-interval-ms", "10")
    server = family.serve_pairs(launcher, prefills, decodes, "--decode-release-timeout-secs", "2")
    if stage == "prefill":
        prefills[0].set_faults("stall-open")
    elif stage == "before-the-first-token":
        decodes[0].set_faults("stall-open")
    connection = send(server, body(2000), "p10")
    if stage == "prefill":
        prefills[0].wait_state(requests_total=1)
    else:
        decodes[0].wait_state(requests_total=1)
    if stage == "decode":
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    connection.close()
    for engine in (*prefills, *decodes):
        engine.wait_idle()
        engine.set_faults()
    assert decodes[0].state()["finished_total"] == 0, "no answer was made for nobody"
    if stage == "prefill" and family.backend == "vllm":
        assert decodes[0].state()["requests_total"] == 0
    expect_pair_serves(server, prefills, decodes)


def expect_pair_serves(server, prefills, decodes):
    wait_healthy(server, len(prefills) + len(decodes))
    answer = complete(server, "pair", max_tokens=5)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == formula("pair", 5)
    expect_idle(server, *prefills, *decodes)
