"""The program in front of an SGLang engine of other making (tests/e2e/wire) that plays what a real one was
recorded to answer (tests/fixtures/captures/sglang), byte for byte and cut at arbitrary places. What is
expected is read from the recordings."""

import json
import shutil

import openai
import pytest
from fairlead.launcher import ROOT
from wire import SglangWireEngine

CAPTURES = ROOT / "tests/fixtures/captures/sglang"
PROMPT = [9707, 11, 1879, 0]


def recorded(name):
    return json.loads((CAPTURES / f"grpc-{name}.json").read_text())


def one_sequence(key, call):
    """Of several sequences, for each of which is asked by itself here, the one whose end is told: the last."""
    if not key.endswith("_n2"):
        return call
    last = meta(call["responses"][-1]["decoded"], "id")
    part = [response for response in call["responses"] if meta(response["decoded"], "id") == last]
    assert len(part) * 2 == len(call["responses"])
    return {**call, "responses": part}


def calls(name):
    """Generate calls that were answered."""
    return {key: one_sequence(key, call) for key, call in recorded(name).items()
            if call["method"].endswith("/Generate") and call["responses"]}


def as_script(call):
    return {"messages": [response["hex"] for response in call["responses"]], "status": call["status"],
            "details": call.get("details", "")}


def meta(message, key):
    return json.loads(message["meta_info"].get(key, "null"))


class Expected:
    """A recorded answer as a whole."""

    def __init__(self, call, incremental):
        messages = [response["decoded"] for response in call["responses"]]
        used = messages if incremental else messages[-1:]
        last = messages[-1]
        self.finished = last.get("finished", False)
        self.ids = [i for message in used for i in message.get("output_ids", [])]
        self.finish = meta(last, "finish_reason") or {}
        self.cached = meta(last, "cached_tokens")
        self.logprobs = [e for message in used for e in meta(message, "output_token_logprobs") or []]
        self.top = [e for message in used for e in meta(message, "output_top_logprobs") or []]
        self.prompt = meta(last, "input_token_logprobs")
        self.prompt_top = meta(last, "input_top_logprobs")

    @property
    def aborted(self):
        return self.finish.get("type") == "abort"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The demo model with the vocabulary of the recorded one."""
    out = tmp_path_factory.mktemp("model") / "demo"
    shutil.copytree(ROOT / "share/demo", out)
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**config, "vocab_size": 151936}))
    return out


@pytest.fixture
def play(tmp_path, folder, serve):
    """Factory: `play(answers, *flags)` gives a frontend before an engine with these answers, and the engine."""
    engines = []

    def start(answers, *flags):
        engines.append(SglangWireEngine(tmp_path / f"wire-{len(engines)}", answers, "--model-name", "demo", *flags))
        server = serve([engines[-1].url], backend="sglang", model_path=folder)
        server.wait_model("demo")
        return server, engines[-1]

    yield start
    for engine in engines:
        engine.process.discard()


def body_of(call):
    """The request that asks for what was recorded."""
    request = call["request"]
    sampling = request.get("sampling_params", {})
    body = {"model": "demo", "prompt": request["input_ids"], "max_tokens": max(sampling.get("max_new_tokens", 128), 1),
            "return_token_ids": True}
    if "stop_token_ids" in sampling:
        body["stop_token_ids"] = sampling["stop_token_ids"]
    if request.get("return_logprob"):
        body["logprobs"] = request["top_logprobs_num"]
        body["return_tokens_as_token_ids"] = True
    if request.get("logprob_start_len") == 0:
        body["prompt_logprobs"] = request["top_logprobs_num"]
    return body


def check_logprobs(expected, logprobs):
    assert logprobs["tokens"] == [f"token_id:{i}" for i in expected.ids]
    tops = expected.top or [[]] * len(expected.ids)
    for id_, entry, top, value, shown in zip(expected.ids, expected.logprobs, tops, logprobs["token_logprobs"],
                                             logprobs["top_logprobs"], strict=True):
        if entry[1] != id_:  # the placeholder of a handed-on first token
            assert value == -9999
            continue
        assert value == pytest.approx(entry[0])
        assert shown.items() >= {f"token_id:{t}": pytest.approx(p) for p, t, _ in top}.items()


def check_prompt_logprobs(expected, shown):
    assert shown[0] is None
    for entry, top, found in zip(expected.prompt[1:], expected.prompt_top[1:], shown[1:], strict=True):
        for value, id_, _ in (entry, *top):
            assert found[str(id_)]["logprob"] == pytest.approx(value)


def check_answer(call, expected, response):
    if expected.aborted:
        blamed = expected.finish["status_code"] == 400
        assert response.status_code == (400 if blamed else 502)
        assert (expected.finish["message"] in response.json()["error"]["message"]) == blamed
        return
    if not expected.finished:  # ended by a status, which is no success
        assert response.status_code in (502, 504)
        return
    assert response.status_code == 200, response.text
    answer = response.json()
    choice = answer["choices"][0]
    assert choice["token_ids"] == expected.ids
    assert choice["finish_reason"] == expected.finish["type"]
    assert answer["usage"]["prompt_tokens"] == len(call["request"]["input_ids"])
    assert answer["usage"]["completion_tokens"] == len(expected.ids)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == expected.cached
    if call["request"].get("return_logprob"):
        check_logprobs(expected, choice["logprobs"])
    if expected.prompt:
        check_prompt_logprobs(expected, choice["prompt_logprobs"])


@pytest.mark.parametrize("name", ["cumulative", "incremental", "disaggregation"])
def test_every_recorded_answer(play, name):
    incremental = name != "cumulative"
    played = calls(name)
    server, engine = play([as_script(call) for call in played.values()], *["--incremental"] * incremental)
    for key, call in played.items():
        response = server.post("/v1/completions", body_of(call))
        try:
            check_answer(call, Expected(call, incremental), response)
        except AssertionError as error:
            raise AssertionError(f"{key}: {response.text}") from error
    sent = [event["request"] for event in engine.events("generate")]
    assert [request["input_ids"] for request in sent] == [call["request"]["input_ids"] for call in played.values()]
    assert len({request["rid"] for request in sent}) == len(played)


def test_text_and_its_end(play):
    # Bytes have the same ids in both vocabularies: the choice "yes" and the end of the sequence.
    call = recorded("incremental")["inc_err_guided_choice"]
    server, _ = play([as_script(call)] * 2, "--incremental")
    with server.client() as client:
        answer = client.completions.create(model="demo", prompt=PROMPT, max_tokens=8)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("yes", "stop")
        assert answer.usage.completion_tokens == 4
        stream = list(client.completions.create(model="demo", prompt=PROMPT, max_tokens=8, stream=True))
        assert "".join(chunk.choices[0].text for chunk in stream) == "yes"
        assert stream[-1].choices[0].finish_reason == "stop"


def test_refusals_blame_the_request_and_the_next_one_works(play):
    refusals = [call for key, call in recorded("cumulative").items()
                if call["method"].endswith("/Generate") and call["status"] in ("INTERNAL", "INVALID_ARGUMENT")]
    own = ("routed_dp_rank", "Duplicate active")  # the client chose neither
    good = recorded("cumulative")["agg_generate_stream"]
    server, _ = play([as_script(call) for call in (*refusals, good)])
    for call in refusals:
        response = server.post("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 2})
        blamed = not any(text in call["details"] for text in own)
        assert response.status_code == (400 if blamed else 502), call
        message = response.json()["error"]["message"]
        assert (call["details"] in message) == blamed
    with server.client() as client:
        assert client.completions.create(model="demo", prompt=PROMPT, max_tokens=4).usage.completion_tokens == 4


def test_an_engine_that_dies_of_a_request_leaves_routing(play):
    call = recorded("cumulative")["agg_err_token_out_of_vocab"]
    server, _ = play([as_script(call)])
    with server.client() as client, pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model="demo", prompt=PROMPT, max_tokens=2)
    assert caught.value.status_code == 503
    server.process.wait_log("engine left routing")


def test_ids_that_would_end_the_engine_never_reach_it(play):
    server, engine = play([])
    asked = [("prompt", [[151936]]), ("prompt", [[-5]]), ("prompt", [[2**31]]), ("stop_token_ids", [151936]),
             ("stop_token_ids", [-1])]
    for field, value in asked:
        body = {"model": "demo", "prompt": PROMPT, "max_tokens": 2, field: value}
        response = server.post("/v1/completions", body)
        assert response.status_code == 400, (field, value)
        assert field in response.json()["error"]["param"]
    for extra in ({"stop_token_ids": [151936]}, {"logit_bias": {"151936": 1}}):
        body = {"model": "demo", "messages": [{"role": "user", "content": "x"}], **extra}
        assert server.post("/v1/chat/completions", body).json()["error"]["param"] == next(iter(extra))
    assert engine.events("generate") == []


@pytest.mark.parametrize("extra", [{"logit_bias": {"5": 1}}, {"cache_salt": "s"}, {"allowed_token_ids": [5]},
                                   {"bad_words_token_ids": [[5]]}], ids=lambda extra: next(iter(extra)))
def test_what_the_interface_has_no_field_for_is_refused(play, extra):
    server, engine = play([])
    response = server.post("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 2, **extra})
    assert response.status_code == 400
    assert next(iter(extra)) in response.json()["error"]["message"]
    assert engine.events("generate") == []


def test_requests_leave_nothing_to_the_model(play):
    server, engine = play([as_script(recorded("cumulative")["agg_generate_stream"])])
    with server.client() as client:
        client.completions.create(model="demo", prompt=PROMPT, max_tokens=4, temperature=0, stop=["never"])
    request = engine.wait_event("generate")[0]["request"]
    sampling = request["sampling_params"]
    assert sampling.pop("stop_token_ids", [2607]) == [2607]
    assert sampling == {
        "temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0,
        "presence_penalty": 0.0, "repetition_penalty": 1.0, "max_new_tokens": 4, "min_new_tokens": 0,
        "ignore_eos": False}
    assert request["stream"] is True
    assert request["return_logprob"] is False
    assert set(request) == {"input_ids", "sampling_params", "stream", "return_logprob", "rid"}
