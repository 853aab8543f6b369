"""The simulated SGLang engine against recorded traffic of a real one.

Every recorded generation is asked for again, and the form of the answer compared: status, number of
messages, keys and JSON types of meta_info, finish reasons, running counts. The simulated engine
answers from a script that holds the recorded tokens. What the real one found cached depends on what
it had been asked before and is left out, as are values of log-probabilities and times.
"""

import json
from pathlib import Path

import grpc
import pytest
from fairlead.sglang_api import SglangApi
from google.protobuf import json_format

CAPTURES = Path(__file__).resolve().parents[1] / "fixtures/captures/sglang"
GENERATE = "/sglang.runtime.v1.SglangService/Generate"
# Cut by the client or the end of the engine; the prompt was not recorded; its choice of words is a grammar's.
LEFT_OUT = ("abort", "paused", "token_negative", "token_out_of_vocab", "too_long", "dup_rid", "guided_choice",
            "stop_string")
RUNS = {"cumulative": "agg_", "incremental": "inc_"}


def recorded(run):
    calls = json.loads((CAPTURES / f"grpc-{run}.json").read_text())
    return {name: call for name, call in calls.items()
            if call["method"] == GENERATE and not any(part in name for part in LEFT_OUT)
            and "note" not in call["request"]}


def choices_of(call):
    return call["request"].get("sampling_params", {}).get("n", 1) or 1


def ids_of(call, run):
    """The tokens that the first choice was answered with."""
    decoded = [response["decoded"] for response in call["responses"]]
    first = [m for m in decoded if m["meta_info"]["id"] == decoded[0]["meta_info"]["id"]]
    if run == "cumulative":
        return first[-1].get("output_ids", [])
    return [t for m in first for t in m.get("output_ids", [])]



@pytest.fixture(scope="module", params=list(RUNS))
def replayed(request, module_launcher, tmp_path_factory, stubs):
    """Answers of the simulated engine to all recorded calls of a run, in order."""
    run = request.param
    calls = recorded(run)
    script = tmp_path_factory.mktemp("script") / "script.jsonl"
    lists = []
    for name, call in calls.items():
        if call["status"] == "OK" and "bad_json" not in name:
            lists += [ids_of(call, run)] * choices_of(call)
    script.write_text("".join(json.dumps(ids) + "\n" for ids in lists))
    flags = ["--incremental-streaming-output", "--reasoning-parser", "qwen3"] if run == "incremental" else []
    engine = module_launcher.mock_engine("--reply", f"script:{script}", "--speedup-ratio", 0, "--max-model-len", 4096,
                                         "--no-enable-prefix-caching", "--vocab-size", 151936, *flags,
                                         backend="sglang", model="tiny")
    api = SglangApi(engine, stubs)
    answers = {}
    for name, call in calls.items():
        message = json_format.ParseDict(call["request"], api.pb.GenerateRequest())
        assert message.SerializeToString() == bytes.fromhex(call["request_hex"]), name
        try:
            answers[name] = ("OK", "", list(api.stub.Generate(message)))
        except grpc.RpcError as error:
            answers[name] = (error.code().name, error.details(), [])
    api.close()
    return run, calls, answers


def shape(value):
    """The JSON types of a value, lists by their first element."""
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


UNSTABLE = {"cached_tokens_details"}


def test_statuses(replayed):
    _, calls, answers = replayed
    said = {name: answer[:2] for name, answer in answers.items()}
    assert said == {name: (call["status"], call.get("details") or "") for name, call in calls.items()}


def test_messages(replayed):
    _, calls, answers = replayed
    for name, call in calls.items():
        real = [response["decoded"] for response in call["responses"]]
        mock = answers[name][2]
        assert len(mock) == len(real), name
        for got, wanted in zip(mock, real, strict=True):
            assert got.finished == wanted.get("finished", False), name
            assert got.HasField("text") == ("text" in wanted), name
            if "bad_json" not in name:
                assert list(got.output_ids) == wanted.get("output_ids", []), name
            assert len(got.output_ids) == len(wanted.get("output_ids", [])), name


def test_meta_info(replayed):
    _, calls, answers = replayed
    for name, call in calls.items():
        for got, wanted in zip(answers[name][2], call["responses"], strict=True):
            meta = {key: json.loads(value) for key, value in got.meta_info.items()}
            real = {key: json.loads(value) for key, value in wanted["decoded"]["meta_info"].items()}
            assert set(meta) == set(real), name
            for key in set(real) - UNSTABLE:
                assert shape(meta[key]) == shape(real[key]), (name, key)
            for key in ["prompt_tokens", "completion_tokens", "weight_version", "weight_versions", "dp_rank",
                        "output_token_logprobs_length", "reasoning_tokens"]:
                assert meta.get(key) == real.get(key), (name, key)
            if "bad_json" in name:
                meta["finish_reason"].pop("message")
                real["finish_reason"].pop("message")
            assert meta["finish_reason"] == real["finish_reason"], name
            for key in ["input_token_logprobs", "output_token_logprobs"]:
                assert [e[1] for e in meta.get(key, [])] == [e[1] for e in real.get(key, [])], (name, key)


def test_reports_have_the_recorded_types(module_launcher, stubs):
    calls = json.loads((CAPTURES / "grpc-incremental.json").read_text())
    engine = module_launcher.mock_engine(
        "--kv-events", "127.0.0.1:0", "--kv-replay", "127.0.0.1:0", "--reasoning-parser", "qwen3",
        "--tool-call-parser", "qwen", "--incremental-streaming-output", backend="sglang")
    api = SglangApi(engine, stubs)
    raw = bytes.fromhex(calls["inc_server_info"]["responses"][0]["hex"])
    real = json.loads(raw[raw.index(b"{"):])
    info = api.server_info()
    assert set(info) <= set(real) | {"grpc_features"}
    exceptions = {"context_length", "kv_events", "kv_event_sources"}  # the length was not set there
    assert {k: shape(v) for k, v in info.items() if k not in exceptions} == {
        k: shape(real[k]) for k in info if k not in exceptions}
    load = {key for key in real["kv_events"] if key.startswith("load_")}
    assert set(info["kv_events"]) == set(real["kv_events"]) - load
    assert set(info["kv_event_sources"][0]) == set(real["kv_event_sources"][0])
    model = json.loads(calls["inc_model_info"]["responses"][0]["decoded"]["json_info"])
    assert set(api.model_info()) == set(model)
    (loads,) = json.loads(calls["inc_get_load"]["responses"][0]["decoded"]["json_info"])
    assert set(api.load()[0]) == set(loads)
    api.close()
