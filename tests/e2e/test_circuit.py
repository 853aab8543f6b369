"""Engines that answer health checks and fail, or never answer, what they are asked."""

import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT
from fairlead.vllm_api import set_faults

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 2}
FLAGS = ["--speedup-ratio", "0"]
CIRCUIT = ["--router-mode", "round-robin", "--circuit-breaker-failures", "3", "--circuit-breaker-open-secs", "0.5"]
QUICK = ["--health-check", "--canary-wait-secs", "0.2", "--health-check-request-timeout-secs", "1"]


def instances(server):
    return {i["endpoint"]: i for i in server.get("/health").json()["instances"]}


def circuit(server, engine):
    found = next(i for url, i in instances(server).items() if url.endswith(engine.address))
    return found["circuit"], found["healthy"]


def ask(server):
    return server.post("/v1/completions", PROMPT).status_code


def openings(server, engine):
    worker = next(i for url, i in instances(server).items() if url.endswith(engine.address))["worker_id"]
    return server.metrics().value("fairlead_frontend_worker_circuit_openings_total", worker_id=str(worker))


@pytest.mark.parametrize("router", [[], ["--router-mode", "kv"]])
def test_an_engine_that_fails_what_it_is_asked_leaves_routing_and_comes_back(mock_engine, serve, router):
    bad, good = (mock_engine(*FLAGS, model="demo") for _ in range(2))
    server = serve([bad, good], *CIRCUIT, *router, model_path=FOLDER)
    wait_until(lambda: len(instances(server)) == 2, 10, "two workers")
    set_faults(bad, "error-after:0:INTERNAL")
    wait_until(lambda: ask(server) and circuit(server, bad)[0] == "open", 10, "the circuit to open")
    assert openings(server, bad) == 1
    assert openings(server, good) == 0
    server.process.wait_log(r"worker's circuit opened: 3 of its requests failed in a row; no requests for 0.5 s")
    server.process.wait_log(r"worker's circuit is half-open: one request at a time")
    # The trial of a request fails, too, and the pause is longer then.
    wait_until(lambda: ask(server) and openings(server, bad) >= 2, 20, "a failed trial")
    server.process.wait_log(r"no requests for 1 s")
    set_faults(bad)
    wait_until(lambda: ask(server) and circuit(server, bad) == ("closed", True), 20, "a good trial")
    assert [ask(server) for _ in range(6)] == [200] * 6


def test_what_the_client_did_wrong_never_opens_a_circuit(mock_engine, serve):
    engines = [mock_engine(*FLAGS, "--fault", "error-after:0:INVALID_ARGUMENT", model="demo") for _ in range(2)]
    server = serve(engines, *CIRCUIT, model_path=FOLDER)
    wait_until(lambda: len(instances(server)) == 2, 10, "two workers")
    assert [ask(server) for _ in range(12)] == [400] * 12
    assert all(circuit(server, engine) == ("closed", True) for engine in engines)


def test_the_last_engine_stays_and_zero_is_off(mock_engine, serve):
    engines = [mock_engine(*FLAGS, "--fault", "error-after:0:INTERNAL", model="demo") for _ in range(2)]
    server = serve(engines[:1], *CIRCUIT, model_path=FOLDER)
    assert [ask(server) for _ in range(8)] == [502] * 8
    off = serve(engines, *CIRCUIT, "--circuit-breaker-failures", "0", model_path=FOLDER)
    wait_until(lambda: len(instances(off)) == 2, 10, "two workers")
    assert [ask(off) for _ in range(16)] == [502] * 16


@pytest.mark.parametrize("role", ["aggregated", "prefill"])
def test_one_hung_engine_of_three_is_found_by_canaries(mock_engine, serve, role):
    engines = [mock_engine(*FLAGS, "--role", role, model="demo") for _ in range(3)]
    if role == "prefill":
        named = [flag for engine in engines for flag in ("--prefill-engine-url", engine.address)]
        decode = mock_engine(*FLAGS, "--role", "decode", model="demo")
        server = serve([decode], *named, *QUICK, model_path=FOLDER)
    else:
        server = serve(engines, *QUICK, model_path=FOLDER)
    wait_until(lambda: sum(circuit(server, e)[1] for e in engines) == 3 if len(instances(server)) >= 3 else False, 20,
               "three workers")
    set_faults(engines[0], "stall-open")  # takes requests and answers none
    wait_until(lambda: not circuit(server, engines[0])[1], 15, "the hung one to leave")
    assert all(circuit(server, engine)[1] for engine in engines[1:])
    set_faults(engines[0])
    wait_until(lambda: circuit(server, engines[0])[1], 15, "its return")


def test_a_hung_decode_engine_is_found_by_canaries(mock_engine, serve):
    prefill = mock_engine(*FLAGS, "--role", "prefill", model="demo")
    decode = mock_engine(*FLAGS, "--role", "decode", model="demo")
    server = serve([decode], "--prefill-engine-url", prefill.address, *QUICK, "--engine-probe-timeout-secs", "1",
                   "--engine-health-timeout-secs", "1", model_path=FOLDER)
    metrics = "fairlead_frontend_canary_requests_total"
    # The mock's decode engines take nothing whole: they say so, which tells that they answer.
    wait_until(lambda: server.metrics().value(metrics, result="refused") >= 2, 10, "refused canaries")
    assert circuit(server, decode)[1]
    set_faults(decode, "stall-open:all")  # answers nothing at all
    wait_until(lambda: not circuit(server, decode)[1], 20, "the hung one to leave")
    assert server.get("/ready").status_code == 503
    set_faults(decode)
    wait_until(lambda: circuit(server, decode)[1], 15, "its return")
