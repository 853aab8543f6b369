"""The simulated vLLM engine against recorded traffic of the real one.

Every recorded call is made again. The simulated engine answers from a script that holds the tokens
the real one generated, so that messages, stop reasons, counts and refusals can be compared exactly;
texts and logprob values cannot, since there is no model.
"""

import json
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures/captures/vllm"
SETS = {"frontend-0.32.0": "vllm-0.32", "frontend-0.33.0": "vllm-0.33"}
GENERATE = "/vllm.Inference/Generate"
# Cut short by the client, which the recording cannot be replayed for; tested elsewhere.
CUT = {"abort-while-streaming", "cancel-while-streaming", "pause-abort-while-streaming"}


def captured(name):
    return json.loads((CAPTURES / name / "grpc/index.json").read_text())["calls"]


def is_generate(call):
    return call["method"].startswith(GENERATE)


def is_simulated(call):
    """No tokenizer, no adapters (text prompts and LoRA are refused), and no grammar that could fail."""
    request = call["request"]["json"]
    return ("lora_name" not in request and request.get("text", "") == "" and call["name"] not in CUT
            and call["status"]["code"] != "INTERNAL")


def output_ids(call):
    """What the real engine generated; zeros where it was not asked for the ids."""
    ids = []
    for response in call["responses"]:
        outputs = response["json"].get("outputs", {})
        ids += outputs.get("token_ids", [0] * outputs.get("num_tokens", 0))
    return ids


@pytest.fixture(scope="module", params=sorted(SETS))
def engine(request, module_launcher, tmp_path_factory, stubs):
    calls = [call for call in captured(request.param) if is_generate(call) and is_simulated(call)]
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    answered = [call for call in calls if call["status"]["code"] == "OK"]
    script.write_text("".join(json.dumps(output_ids(call)) + "\n" for call in answered))
    mock = module_launcher.mock_engine(
        "--reply", f"script:{script}", "--speedup-ratio", 0, "--dialect", SETS[request.param],
        "--alias", "smol-alias", "--model-id", "/srv/models/smollm2-135m", "--block-size", 32,
        "--num-gpu-blocks", 80, "--max-model-len", 1024, "--vocab-size", 49152, "--eos-token-id", 2,
        "--max-num-seqs", 8, "--max-num-batched-tokens", 2048, "--kv-events", "127.0.0.1:0",
        "--kv-replay", "127.0.0.1:0", "--kv-events-topic", "kv-events", model="smollm2")
    mock.capture_set = request.param
    mock.calls = calls
    with grpc.insecure_channel(mock.address) as channel:
        mock.messages = stubs.messages("vllm/inference.proto")
        mock.control_messages = stubs.messages("vllm/control.proto")
        mock.inference = stubs.services("vllm/inference.proto").InferenceStub(channel)
        mock.control = stubs.services("vllm/control.proto").ControlStub(channel)
        yield mock


def call_again(engine, call):
    """(responses, code, message) of the simulated engine."""
    request = engine.messages.GenerateRequest.FromString(
        (CAPTURES / engine.capture_set / "grpc" / call["request"]["file"]).read_bytes())
    metadata = list((call.get("metadata") or {}).items())
    try:
        if call["method"] == GENERATE:
            return [engine.inference.Generate(request, metadata=metadata, timeout=30)], "OK", ""
        return list(engine.inference.GenerateStream(request, metadata=metadata, timeout=30)), "OK", ""
    except grpc.RpcError as error:
        return [], error.code().name, error.details()


def shape_of(response):
    """A response without what only a model can produce."""
    shape = json_format.MessageToDict(response, preserving_proto_field_name=True)
    for part in (shape.get("prompt_info", {}), shape.get("outputs", {})):
        part.pop("text", None)
        if "logprobs" in part:
            part["logprobs"] = len(part["logprobs"])
            part["ranks"] = len(part["ranks"])
            part["candidate_tokens"] = [len(entry.get("tokens", [])) for entry in part["candidate_tokens"]]
    return shape


def test_every_recorded_generation_has_the_same_shape(engine):
    compared = 0
    for call in engine.calls:
        recorded = [engine.messages.GenerateResponse.FromString(
            (CAPTURES / engine.capture_set / "grpc" / response["file"]).read_bytes())
            for response in call["responses"]]
        responses, code, message = call_again(engine, call)
        name = call["name"]
        assert code == call["status"]["code"], (name, message)
        if name == "error-json-schema":  # the parser's own words
            assert message.startswith("invalid json schema: ")
        elif code != "OK":
            assert message == call["status"]["message"], name
        assert [shape_of(r) for r in responses] == [shape_of(r) for r in recorded], name
        compared += 1
    assert compared >= 30


def test_server_info_equals_the_recorded_one(engine):
    recorded = next(c for c in captured(engine.capture_set) if c["name"] == "GetServerInfo")
    expected = engine.control_messages.ServerInfo.FromString(
        (CAPTURES / engine.capture_set / "grpc" / recorded["responses"][0]["file"]).read_bytes())
    info = engine.control.GetServerInfo(engine.control_messages.GetServerInfoRequest())
    assert info.instance_id
    for either in (info, expected):  # the engine behind the frontend was 0.32.0 in both sets
        either.ClearField("instance_id")
        either.ClearField("max_loras")
        either.ClearField("engine_version")
    assert info == expected


def test_model_info_and_event_sources_have_the_recorded_fields(engine):
    info = engine.control.GetModelInfo(engine.control_messages.GetModelInfoRequest())
    assert info.model_id == "/srv/models/smollm2-135m"
    assert (info.served_model_name, list(info.served_model_aliases)) == ("smollm2", ["smol-alias"])
    assert info.supports_token_ids_input
    sources = engine.control.GetKvEventSources(engine.control_messages.GetKvEventSourcesRequest()).sources
    recorded = next(c for c in captured(engine.capture_set) if c["name"] == "GetKvEventSources")
    expected = engine.control_messages.GetKvEventSourcesResponse.FromString(
        (CAPTURES / engine.capture_set / "grpc" / recorded["responses"][0]["file"]).read_bytes()).sources
    assert len(sources) == 1
    assert sources[0].endpoint == f"tcp://{engine.addresses['kv_events']}"
    assert sources[0].replay_endpoint == f"tcp://{engine.addresses['kv_replay']}"
    assert sources[0].HasField("data_parallel_rank")
    for either in (sources[0], expected[0]):
        either.ClearField("endpoint")
        either.ClearField("replay_endpoint")
    assert sources[0] == expected[0]


def test_control_refuses_as_recorded(engine):
    """Features that neither engine was started with."""
    checked = 0
    for call in captured(engine.capture_set):
        if not call["method"].startswith("/vllm.Control/") or call["status"]["code"] == "OK" \
                or "Lora" in call["method"]:
            continue
        method = call["method"].rpartition("/")[2]
        request = getattr(engine.control_messages, f"{method}Request").FromString(
            (CAPTURES / engine.capture_set / "grpc" / call["request"]["file"]).read_bytes())
        with pytest.raises(grpc.RpcError) as refused:
            getattr(engine.control, method)(request)
        assert (refused.value.code().name, refused.value.details()) == (
            call["status"]["code"], call["status"]["message"]), call["name"]
        checked += 1
    assert checked >= 2


def test_nothing_is_left(engine):
    engine.wait_state(running=0, waiting=0, kv_blocks_used=0)
