"""What a fleet with prefill and decode engines answers while one of the kinds is missing."""

from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
PROMPT = {"model": "demo", "prompt": [5, 6, 7], "max_tokens": 2}
FLAGS = ["--speedup-ratio", "0"]


def named(*engines):
    return [flag for engine in engines for flag in ("--prefill-engine-url", engine.address)]


def types(server):
    return server.get("/v1/models/demo/ready").json()["namespaces"][""]


def test_without_a_prefill_engine_requests_are_refused_and_readiness_says_so(mock_engine, serve):
    prefill = mock_engine(*FLAGS, "--role", "prefill", model="demo")
    decode = mock_engine(*FLAGS, "--role", "decode", model="demo")
    server = serve([decode], *named(prefill), model_path=FOLDER)
    wait_until(lambda: server.get("/ready").status_code == 200, 10, "both kinds")
    server.process.wait_log(r"serving directly dialed engines decode_engines=1 prefill_engines=1")
    assert types(server)["present"] == ["decode", "prefill"]

    prefill.kill()
    wait_until(lambda: server.get("/ready").status_code == 503, 10, "readiness to follow")
    assert types(server)["missing_worker_types"] == ["prefill"]
    assert types(server)["reason"] == "missing worker types: prefill"
    answer = server.post("/v1/completions", PROMPT)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] in ("no_workers", "model_not_ready")
    assert "retry-after" in answer.headers
    assert decode.state()["requests_total"] == 0, "a decode engine is not tried alone"

    mock_engine(*FLAGS, "--role", "prefill", model="demo", listen=prefill.address)
    wait_until(lambda: server.get("/ready").status_code == 200, 10, "readiness to follow again")


def test_a_prefill_engine_alone_does_not_serve(mock_engine, serve):
    prefill = mock_engine(*FLAGS, "--role", "prefill", model="demo")
    decode = mock_engine(*FLAGS, "--role", "decode", model="demo")
    server = serve([decode], *named(prefill), model_path=FOLDER)
    wait_until(lambda: server.get("/ready").status_code == 200, 10, "both kinds")
    decode.kill()
    wait_until(lambda: server.get("/ready").status_code == 503, 10, "readiness to follow")
    assert types(server)["missing_worker_types"] == ["decode"]
    assert server.post("/v1/completions", PROMPT).status_code == 503
    assert prefill.state()["requests_total"] == 0


def test_with_the_fallback_engines_that_can_answer_alone(mock_engine, serve):
    # Of real vLLM engines the connector makes the role, and one that consumes also answers whole
    # requests; the mock's `decode` is stricter, so the engine is one without a role.
    decode = mock_engine(*FLAGS, model="demo")
    prefill = mock_engine(*FLAGS, "--role", "prefill", model="demo")
    prefill.kill()
    server = serve([decode], *named(prefill), "--allow-aggregated-fallback", model_path=FOLDER)
    wait_until(lambda: server.get("/ready").status_code == 200, 10, "the decode engine")
    answer = server.post("/v1/completions", PROMPT)
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 2

    back = mock_engine(*FLAGS, "--role", "prefill", model="demo", listen=prefill.address)
    wait_until(lambda: types(server)["present"] == ["decode", "prefill"], 10, "the prefill engine")
    back.kill()
    wait_until(lambda: types(server)["present"] == ["decode"], 10, "its end to be seen")
    assert server.get("/ready").status_code == 200
    assert server.post("/v1/completions", PROMPT).status_code == 200


def test_engines_of_other_block_sizes_are_no_peers(mock_engine, serve):
    decode = mock_engine(*FLAGS, "--block-size", "16", "--role", "decode", model="demo")
    prefill = mock_engine(*FLAGS, "--block-size", "32", "--role", "prefill", model="demo")
    server = serve([decode], *named(prefill), model_path=FOLDER, wait_models=False)
    server.process.wait_log(r"prefill and decode engines must be alike .*KV block size")
    assert server.get("/ready").status_code == 503
    instances = server.get("/health").json()["instances"]
    assert len(instances) == 1, "the other one is left out"
