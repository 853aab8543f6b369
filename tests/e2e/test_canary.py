"""Canaries: small generations that say whether an engine can generate, not only answer."""

import threading

import httpx
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT
from fairlead.vllm_api import set_faults
from fairlead.waiting import scaled

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 2}
QUICK = ["--health-check", "--canary-wait-secs", "0.2", "--health-check-request-timeout-secs", "1"]
METRIC = "fairlead_frontend_canary_requests_total"


def canaries(server, result="success"):
    return server.metrics().value(METRIC, result=result)


def last_request(engine):
    return engine.state()["last_requests"][-1]


def healthy(server):
    return sum(i["healthy"] for i in server.get("/health").json()["instances"])


def test_off_by_default(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    server = serve([engine], "--canary-wait-secs", "0.05", model_path=FOLDER)
    assert server.post("/v1/completions", PROMPT).status_code == 200
    assert engine.state()["requests_total"] == 1
    assert canaries(server) == 0


def test_an_idle_engine_is_tried_again_and_again_and_clients_figures_do_not_show_it(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    server = serve([engine], *QUICK, model_path=FOLDER)
    wait_until(lambda: canaries(server) >= 3, 10, "three canaries")
    sent = last_request(engine)
    assert sent["request_id"].startswith("canary-")
    assert "temperature" not in sent
    metrics = server.metrics()
    for name in ("requests_started_total", "requests_total", "inflight_requests", "output_tokens_total",
                 "worker_inflight_requests"):
        assert metrics.value(f"fairlead_frontend_{name}") == 0, name
    assert engine.state()["aborted_total"] == 0


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
def test_a_model_that_refuses_any_temperature_becomes_healthy_by_default(mock_engine, serve, backend):
    engine = mock_engine("--speedup-ratio", "0", "--refuse-temperature", model="demo", backend=backend)
    server = serve([engine], *QUICK, backend=backend, model_path=FOLDER)
    assert healthy(server) == 1
    assert canaries(server, "success") >= 1
    assert canaries(server, "failure") == 0


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
def test_such_a_model_fails_a_payload_with_a_temperature(mock_engine, serve, backend):
    engine = mock_engine("--speedup-ratio", "0", "--refuse-temperature", model="demo", backend=backend)
    payload = '{"token_ids": [1], "sampling_options": {"temperature": 0.0}, "stop_conditions": {"max_tokens": 1}}'
    server = serve([engine], *QUICK, "--health-check-payload", payload, backend=backend, model_path=FOLDER,
                   wait_models=False)
    wait_until(lambda: canaries(server, "failure") >= 2, 10, "two failed canaries")
    assert server.get("/ready").status_code == 503
    assert server.post("/v1/completions", PROMPT).status_code == 503
    assert canaries(server, "success") == 0


def test_a_payload_of_the_models_own_wins(mock_engine, serve, tmp_path):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    file = tmp_path / "payload.json"
    file.write_text('{"token_ids": [8, 9], "stop_conditions": {"max_tokens": 2}}')
    server = serve([engine], *QUICK, "--health-check-payload", '{"token_ids": [4]}',
                   "--health-check-payload", f"demo=@{file}", model_path=FOLDER)
    wait_until(lambda: canaries(server) >= 1, 10, "a canary")
    sent = last_request(engine)
    assert "8" in str(sent) and sent["request_id"].startswith("canary-")
    assert sent["token_ids"]["ids"] == [8, 9]


def test_an_engine_that_stops_generating_leaves_routing_and_returns(mock_engine, serve):
    engines = [mock_engine("--speedup-ratio", "0", model="demo") for _ in range(2)]
    server = serve(engines, *QUICK, model_path=FOLDER)
    wait_until(lambda: healthy(server) == 2, 10, "two workers")
    set_faults(engines[0], "stall-open")  # answers health checks, generates nothing
    wait_until(lambda: healthy(server) == 1, 15, "one worker")
    assert canaries(server, "timeout") >= 1
    before = engines[1].state()["requests_total"]
    for _ in range(4):
        assert server.post("/v1/completions", PROMPT).status_code == 200
    assert engines[1].state()["requests_total"] >= before + 4
    set_faults(engines[0])
    wait_until(lambda: healthy(server) == 2, 15, "both workers")
    engines[0].wait_idle()


def test_a_busy_engine_is_not_tried_until_it_stalls(mock_engine, serve):
    """That it is then tried is another test's: here no lack of processor time may look like a stall."""
    engine = mock_engine("--speedup-ratio", "0", "--token-interval-ms", "30", model="demo")
    server = serve([engine], "--health-check", "--canary-wait-secs", "0.2", "--health-check-request-timeout-secs", "60",
                   "--health-check-busy-stall-secs", "600", model_path=FOLDER)
    body = {**PROMPT, "max_tokens": 8000, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{server.base_url}/v1/completions", json=body, trust_env=False,
                      timeout=scaled(60)) as answer:
        lines = answer.iter_lines()
        next(lines)
        total = engine.state()["requests_total"]
        # Some 60 tokens at 30 ms: many wait times, each of which an idle engine would be tried after.
        for _ in range(120):
            next(lines)
        state = engine.state()
        assert state["running"] >= 1, "the stream ended too early"
        # One may have been on its way when the stream began.
        assert state["requests_total"] <= total + 1
    engine.wait_state(aborted_total=1)
    total = engine.state()["requests_total"]
    wait_until(lambda: engine.state()["requests_total"] > total, 10, "canaries again")


def test_a_stalled_busy_engine_is_tried_and_leaves(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    server = serve([engine], *QUICK, "--health-check-busy-stall-secs", "0.5", model_path=FOLDER)
    set_faults(engine, "stall-open")
    answers = []
    client = threading.Thread(target=lambda: answers.append(server.post("/v1/completions", PROMPT)))
    client.start()
    wait_until(lambda: server.get("/ready").status_code == 503, 15, "no worker")
    assert canaries(server, "timeout") >= 1
    set_faults(engine)
    server.wait_ready()
    server.stop()
    client.join(30)


def test_the_program_ends_while_a_canary_waits(mock_engine, serve):
    engine = mock_engine("--speedup-ratio", "0", model="demo")
    server = serve([engine], "--health-check", "--canary-wait-secs", "0.1",
                   "--health-check-request-timeout-secs", "600", model_path=FOLDER)
    set_faults(engine, "stall-open")
    done = canaries(server)
    wait_until(lambda: engine.state()["requests_total"] > done, 10, "a canary on the engine")
    server.stop()
    engine.wait_idle()


def test_a_payload_that_is_no_object_is_wrong_usage(launcher):
    for text in ("[1]", "hello", '{"tokens": [1]}', "demo={", "@/no/such/file"):
        done = launcher.run("serve", "--direct", "--engine-url", "127.0.0.1:1", "--health-check-payload", text)
        assert done.returncode == 2, text
        assert done.stderr.count("\n") == 1 and "--health-check-payload" in done.stderr
    done = launcher.run("serve", "--direct", "--engine-url", "127.0.0.1:1",
                        env={"DYN_HEALTH_CHECK_PAYLOAD": '"text"'})
    assert done.returncode == 2 and "DYN_HEALTH_CHECK_PAYLOAD" in done.stderr


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_a_canvas_with_an_end_in_its_middle_arrives_whole(mock_engine, serve, ignore_eos):
    engine = mock_engine("--speedup-ratio", "0", "--canvas-eos", "3", "--eos-token-id", "2607", model="demo", backend="vllm-http")
    server = serve([engine], backend="vllm-http", model_path=FOLDER)
    body = {**PROMPT, "max_tokens": 8, "ignore_eos": ignore_eos, "logprobs": 0, "return_tokens_as_token_ids": True}
    answer = server.post("/v1/completions", body).json()
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == 8
    assert answer["usage"]["completion_tokens"] == 8
