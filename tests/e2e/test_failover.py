"""Two engines, one of which dies and comes back."""

import openai
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
CHAT = {"model": "demo", "messages": [{"role": "user", "content": "one two three four five six"}]}
# The simulated engine ends with EOS behind the echo; this makes it begin again instead.
LONG = {**CHAT, "extra_body": {"ignore_eos": True}}


def healthy(server):
    """Worker ids by engine URL, of the workers in routing."""
    instances = server.get("/health").json()["instances"]
    return {i["endpoint"]: i["worker_id"] for i in instances if i["healthy"]}


def wait_workers(server, count):
    wait_until(lambda: len(healthy(server)) == count, 20, f"{count} healthy workers")


def test_round_robin_is_even(mock_engine, serve):
    engines = [mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "round-robin", model_path=FOLDER)
    wait_workers(server, 2)
    with server.client() as client:
        for _ in range(20):
            client.chat.completions.create(**CHAT, max_tokens=4)
    assert [engine.state()["requests_total"] for engine in engines] == [10, 10]


def test_a_killed_engine_ends_its_stream_in_band_and_rejoins(mock_engine, serve):
    # Paced, so that the stream is still running when its engine dies.
    flags = ["--reply", "echo", "--speedup-ratio", "0", "--token-interval-ms", "20"]
    engines = [mock_engine(*flags, model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "round-robin", model_path=FOLDER)
    wait_workers(server, 2)
    with server.client() as client:
        stream = client.chat.completions.create(**LONG, max_tokens=400, stream=True)
        next(stream)
        victim = wait_until(lambda: next((e for e in engines if e.state()["running"] == 1), None), 10,
                            "the engine that runs the stream")
        other = engines[1 - engines.index(victim)]
        victim.kill()
        with pytest.raises(openai.APIError) as caught:
            for _ in stream:
                pass
        assert isinstance(caught.value.body["code"], str)
        served = other.state()["requests_total"]
        for _ in range(6):
            assert client.chat.completions.create(**CHAT, max_tokens=2).choices[0].finish_reason == "length"
        assert other.state()["requests_total"] == served + 6

        back = mock_engine(*flags, model="demo", listen=victim.address)
        wait_workers(server, 2)
        for _ in range(6):
            client.chat.completions.create(**CHAT, max_tokens=2)
        assert back.state()["requests_total"] == 3
        other.wait_idle()
    server.wait_metric("fairlead_frontend_inflight_requests", 0)
    server.wait_metric("fairlead_frontend_worker_inflight_requests", 0)


def test_the_raw_stream_ends_with_an_error_object_and_done(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault", "reset-after:3", model="demo")
    server = serve([engine], model_path=FOLDER)
    answer = server.post("/v1/chat/completions", {**CHAT, "stream": True, "max_tokens": 50})
    assert answer.status_code == 200
    frames = [frame for frame in answer.text.split("\n\n") if frame]
    assert frames[-1] == "data: [DONE]"
    assert frames[-2].startswith('data: {"error":{"message":')
    assert sum('"error"' in frame for frame in frames) == 1
    assert "finish_reason\":\"" not in answer.text


def test_an_engine_that_is_down_at_start_joins_later(mock_engine, serve):
    first = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    address = first.address
    first.stop()
    server = serve([f"http://{address}"], model_path=FOLDER, wait_models=False)
    assert server.get("/live").status_code == 200
    assert server.get("/ready").status_code == 503
    mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo", listen=address)
    server.wait_ready()
    with server.client() as client:
        client.chat.completions.create(**CHAT, max_tokens=2)


def test_an_engine_host_that_does_not_resolve_delays_nothing(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    server = serve([engine, "http://no-such-host.invalid:9"], model_path=FOLDER)
    with server.client() as client:
        client.chat.completions.create(**CHAT, max_tokens=2)


def test_rejections_of_the_engine_are_the_clients_400(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault",
                         "error-after:0:INVALID_ARGUMENT", model="demo")
    server = serve([engine], model_path=FOLDER)
    for stream in (False, True):
        answer = server.post("/v1/chat/completions", {**CHAT, "stream": stream})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("backend", ["vllm", "vllm-http"])
@pytest.mark.parametrize("count", [1, 2])
def test_an_engine_exchanged_for_one_of_another_model_is_not_the_clients_mistake(mock_engine, serve, backend, count):
    engines = [mock_engine("--speedup-ratio", "0", model="demo", backend=backend) for _ in range(count)]
    # No health check comes before the requests.
    server = serve(engines, "--router-mode", "round-robin", "--engine-health-interval-secs", "600", backend=backend,
                   model_path=FOLDER)
    wait_workers(server, count)
    engines[0].kill()
    mock_engine("--speedup-ratio", "0", model="other", backend=backend, listen=engines[0].address)
    answers = [server.post("/v1/chat/completions", {**CHAT, "max_tokens": 2}) for _ in range(count)]
    if count == 2:
        assert [answer.status_code for answer in answers] == [200, 200], "the other worker takes it over"
    else:
        assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "service_unavailable")
        assert "retry-after" in answers[0].headers
    server.wait_model("other")
    assert server.post("/v1/chat/completions", {**CHAT, "model": "other", "max_tokens": 2}).status_code == 200


def test_an_exhausted_engine_is_a_503_with_retry_after(mock_engine, serve):
    engine = mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault",
                         "error-after:0:RESOURCE_EXHAUSTED", model="demo")
    server = serve([engine], model_path=FOLDER)
    answer = server.post("/v1/chat/completions", CHAT)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["message"] == (
        "The service is temporarily overloaded, please retry later")


def test_worker_pins_and_direct_mode(mock_engine, serve):
    engines = [mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo") for _ in range(2)]
    server = serve(engines, "--router-mode", "direct", model_path=FOLDER)
    wait_workers(server, 2)
    assert server.post("/v1/chat/completions", CHAT).status_code == 400
    ids = healthy(server)
    for engine in engines:
        answer = server.post("/v1/chat/completions", {**CHAT, "max_tokens": 2},
                             headers={"x-dynamo-worker-instance-id": str(ids[engine.url])})
        assert answer.status_code == 200
        assert engine.state()["requests_total"] == 1
    answer = server.post("/v1/chat/completions", CHAT, headers={"x-dynamo-worker-instance-id": "12345"})
    assert answer.status_code == 503
