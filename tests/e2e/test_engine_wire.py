"""The program against engines of other making (tests/e2e/wire), one per generation of vLLM's gRPC
interface: the answers must not depend on which of them serves."""

import openai
import pytest
from fairlead import wait_until
from fairlead.launcher import ROOT
from wire import GENERATIONS, WireEngine

FOLDER = str(ROOT / "share/demo")


@pytest.fixture
def wire_engine(tmp_path):
    """Factory of engines: `wire_engine(generation, *flags, listen=...)`."""
    engines = []

    def start(generation, *flags, **options):
        folder = tmp_path / f"wire-{len(engines)}"
        engines.append(WireEngine(folder, generation, "--model-name", "demo", *flags, **options))
        return engines[-1]

    yield start
    for engine in engines:
        engine.process.discard()


def serve_one(serve, engine, *flags):
    # The oldest generation reports no model name, so every one is served under the operator's.
    server = serve([engine.url], "--model-name", "demo", *flags, model_path=FOLDER)
    server.wait_model("demo")
    server.wait_ready()
    return server


def answers(server):
    """What clients see of a few requests, without ids and times."""
    seen = []
    with server.client() as client:
        for extra in ({}, {"temperature": 0.7, "seed": 7, "extra_body": {"top_k": 40}}):
            completion = client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=8, **extra)
            choice = completion.choices[0]
            seen.append((choice.text, choice.finish_reason, completion.usage.prompt_tokens,
                         completion.usage.completion_tokens))
        stream = client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=8, stream=True)
        seen.append("".join(chunk.choices[0].text for chunk in stream))
    return seen


def test_every_generation_serves_the_same_answers(wire_engine, serve):
    seen = {generation: answers(serve_one(serve, wire_engine(generation))) for generation in GENERATIONS}
    assert seen["newest"][0][3] == 8
    assert seen["newest"][2] == seen["newest"][0][0] != ""
    assert seen["single"] == seen["newest"]
    assert seen["early"] == seen["newest"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_leaving_client_stops_the_engine(wire_engine, serve, generation):
    engine = wire_engine(generation, "--token-interval-ms", 20)
    server = serve_one(serve, engine)
    with server.client() as client:
        stream = client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=4000, stream=True)
        next(stream)
        stream.close()
    assert engine.wait_event("cancelled")[0]["running"] == 0
    if generation != "single":
        sent = engine.events("generate")[0]["request"]["request_id"]
        assert engine.wait_event("abort")[0]["ids"] == [sent]
    server.wait_metric("fairlead_frontend_inflight_requests", 0)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_requests_leave_nothing_to_the_model(wire_engine, serve, generation):
    engine = wire_engine(generation)
    server = serve_one(serve, engine)
    with server.client() as client:
        client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=3, stop=["never"])
    request = engine.wait_event("generate")[0]["request"]
    assert request["token_ids"]["ids"] == [5, 6, 7]
    assert request["temperature"] == 1.0
    assert request["sampling"]["top_p"] == 1.0
    assert request["sampling"]["top_k"] == (0 if generation == "newest" else 2**31 - 1)
    assert request["decoding"]["repetition_penalty"] == 1.0
    assert request["stopping"]["max_new_tokens"] == 3
    assert "stop_strings" not in request["stopping"]
    assert request["response"] == {"output_text": False, "output_token_ids": True}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_engine_that_dies_comes_back(wire_engine, serve, generation):
    engine = wire_engine(generation)
    server = serve_one(serve, engine)
    engine.kill()
    with server.client() as client:
        def refused():
            with pytest.raises(openai.InternalServerError):
                client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=3)
            return True

        wait_until(refused, 10, "an error without engine")
        wire_engine(generation, listen=engine.address)
        server.wait_ready()
        completion = wait_until(
            lambda: client.completions.create(model="demo", prompt=[5, 6, 7], max_tokens=3), 10, "an answer")
        assert completion.usage.completion_tokens == 3


def test_parsers_of_the_engine_are_reported_and_not_adopted(wire_engine, serve):
    engine = wire_engine("newest", "--tool-call-parser", "qwen3_xml", "--reasoning-parser", "none")
    server = serve_one(serve, engine)
    server.process.wait_log(
        rf"probed vLLM engine for direct routing endpoint={engine.url} mode=Aggregated model=/models/wire "
        r'kv_event_sources=0 vllm_tool_call_parser="qwen3_xml" vllm_reasoning_parser="none"')
    server.process.wait_log(r"serving directly dialed engines decode_engines=1 prefill_engines=0")


def test_an_engine_of_another_model_is_left_out(wire_engine, serve):
    first = wire_engine("newest")
    server = serve_one(serve, first)
    second = wire_engine("newest", "--model-id", "/models/other")
    both = serve([first.url, second.url], "--model-name", "demo", model_path=FOLDER)
    both.process.wait_log(r"engine left out: the workers of a set must be alike endpoint=http://127\.0\.0\.1:\d+ "
                          r"reason=.model id `/models/\w+` instead of `/models/\w+`")
    assert len(wait_until(lambda: both.get("/health").json()["instances"], 10, "one worker")) == 1
    assert len(server.get("/health").json()["instances"]) == 1
