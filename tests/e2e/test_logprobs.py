"""Log-probabilities and token ids: one entry per token on every way to the client."""

import json
import struct

import pytest
from fairlead.launcher import ROOT
from tokenizers import Tokenizer

FOLDER = str(ROOT / "share/demo")
EOS = 2607
VOCABULARY = 2612
# The simulated engine repeats the prompt. Its tokens end between the halves of an emoji and inside
# the stop string.
TEXT = "a😀b hello world and STOP it"
STOP = "orl"
# What it ends with is EOS; this makes it begin again instead.
ON = {"ignore_eos": True}
BACKENDS = ["vllm", "vllm-http"]
METRIC = "fairlead_frontend_logprobs_missing_total"
TOKENIZER = Tokenizer.from_file(str(ROOT / "share/demo/tokenizer.json"))


@pytest.fixture(scope="module", params=BACKENDS)
def server(module_launcher, request):
    engine = module_launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", "--vocab-size", VOCABULARY,
                                         "--eos-token-id", EOS, model="demo", backend=request.param)
    serve = module_launcher.serve([engine], backend=request.param, model_path=FOLDER)
    serve.engine = engine
    yield serve
    engine.wait_idle()


def as_float(value):
    """As an engine holds it."""
    return struct.unpack("f", struct.pack("f", value))[0]


def formula(token, distance=0):
    """What the simulated engine says of a token and of those behind it."""
    return as_float(-0.1 * (token % 10 + 1 + distance))


def ids_of(text):
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def body_of(api, extra, stream=False):
    if api == "chat":
        body = {"messages": [{"role": "user", "content": TEXT}]}
    else:
        body = {"prompt": TEXT, "add_special_tokens": False}
    return {"model": "demo", "max_tokens": 24, "stream": stream, "request_id": "fixed", **body, **extra}


def path_of(api):
    return "/v1/chat/completions" if api == "chat" else "/v1/completions"


def documents(server, api, extra, stream=False):
    """The one document, or the chunks, of an answer."""
    answer = server.post(path_of(api), body_of(api, extra, stream))
    assert answer.status_code == 200, answer.text
    if not stream:
        return [answer.json()]
    lines = [line for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def refused(server, api, extra, param):
    answer = server.post(path_of(api), body_of(api, extra))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param, error
    return error["message"]


def logprobs_of(api, top):
    return {"logprobs": True, "top_logprobs": top} if api == "chat" else {"logprobs": top}


class Choice:
    """One choice put together from its chunks, or read from the document."""

    def __init__(self, answer, index):
        self.text, self.entries, self.ids, self.offsets, self.reasons = "", [], [], [], []
        for choice in (c for document in answer for c in document["choices"] if c["index"] == index):
            message = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
            self.text += message.get("content") or ""
            self.ids += choice.get("token_ids") or []
            if choice["finish_reason"]:
                self.reasons.append((choice["finish_reason"], choice["stop_reason"]))
            logprobs = choice["logprobs"]
            if logprobs is None:
                continue
            if "content" in logprobs:
                assert logprobs["refusal"] is None
                self.entries += [(e["token"], e["logprob"], e["bytes"], e["token_id"], e["top_logprobs"])
                                 for e in logprobs["content"]]
                continue
            arrays = [logprobs[key] for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset")]
            assert len({len(array) for array in arrays}) == 1
            self.entries += list(zip(*arrays[:3], strict=True))
            self.offsets += arrays[3]


@pytest.mark.parametrize("stop", [None, STOP])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("top", [0, 1, 20])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_token_has_one_entry(server, api, top, n, stop):
    extra = {**logprobs_of(api, top), "n": n, "stop": stop, "return_token_ids": True, **ON}
    folded = documents(server, api, extra)
    streamed = documents(server, api, {**extra, "stream_options": {"include_usage": True}}, stream=True)
    tokens = folded[0]["usage"]["completion_tokens"]
    assert streamed[-1]["usage"] == folded[0]["usage"]
    choices = [Choice(folded, i) for i in range(n)]
    assert sum(len(choice.entries) for choice in choices) == tokens
    for i, choice in enumerate(choices):
        assert len(choice.entries) == len(choice.ids)
        assert vars(Choice(streamed, i)) == vars(choice)
        assert choice.reasons == [("stop", STOP) if stop else ("length", None)]
        check_entries(api, choice, top)
        decoded = TOKENIZER.decode(choice.ids, skip_special_tokens=True)
        assert choice.text == (decoded[:decoded.index(stop)] if stop else decoded)


def check_entries(api, choice, top):
    for token, entry in zip(choice.ids, choice.entries, strict=True):
        assert entry[1] == formula(token)
        if api == "completions":
            assert entry[2][entry[0]] == formula(token)
            assert 1 <= len(entry[2]) <= max(top, 1)
            continue
        assert entry[3] == token
        assert len(entry[4]) == top
        if top:
            assert entry[4][0] == {"token": entry[0], "logprob": entry[1], "bytes": entry[2]}
        assert [t["logprob"] for t in entry[4]] == [formula(token, i) for i in range(top)]
    if api == "chat":
        joined = bytes(b for entry in choice.entries for b in entry[2])
        assert joined.decode() == TOKENIZER.decode(choice.ids, skip_special_tokens=False)
    else:
        assert choice.offsets == sorted(choice.offsets)
        assert choice.offsets[0] == 0 and choice.offsets[-1] <= len(choice.text)
        for (token, *_), start in zip(choice.entries, choice.offsets, strict=True):
            if start < len(choice.text) and "\ufffd" not in token and token not in ("<|end|>",):
                assert token.startswith(choice.text[start:start + len(token)])


@pytest.mark.parametrize("stop", [None, STOP, "STOPS"])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_stream_is_the_same_without_what_was_asked_for(server, api, n, stop):
    def plain(extra):
        chunks = documents(server, api, {"n": n, "stop": stop, "stream_options": {"include_usage": True},
                                         **ON, **extra}, stream=True)
        for chunk in chunks:
            chunk["created"] = 0
            for where in (chunk, *chunk["choices"]):
                where.pop("prompt_token_ids", None)
                where.pop("token_ids", None)
            chunk.pop("nvext", None)
            for choice in chunk["choices"]:
                choice["logprobs"] = None
        # The choices of one request run side by side.
        return sorted((json.dumps(c) for c in chunks), key=lambda c: n > 1 and c)

    without = plain({})
    assert any('"finish_reason"' in chunk for chunk in without)
    for top in (0, 1, 20):
        assert plain(logprobs_of(api, top)) == without
    assert plain({**logprobs_of(api, 2), "return_token_ids": True,
                  "nvext": {"extra_fields": ["stop_reason"]}}) == without


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_reads_chat(server, stream):
    arguments = {"model": "demo", "max_tokens": 24, "logprobs": True, "top_logprobs": 3, "extra_body": ON,
                 "messages": [{"role": "user", "content": TEXT}]}
    with server.client() as client:
        answer = client.chat.completions.create(**arguments, stream=stream)
        if stream:
            choices = [choice for chunk in answer for choice in chunk.choices]
            text = "".join(choice.delta.content or "" for choice in choices)
            entries = [entry for choice in choices if choice.logprobs for entry in choice.logprobs.content]
        else:
            text, entries = answer.choices[0].message.content, answer.choices[0].logprobs.content
    assert len(entries) == 24
    special = {"<|user|>", "<|assistant|>", "<|end|>"}
    assert b"".join(bytes(e.bytes) for e in entries if e.token not in special).decode() == text
    assert all(len(e.top_logprobs) == 3 and e.top_logprobs[0].logprob == e.logprob for e in entries)


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_reads_completions(server, stream):
    ids = ids_of(TEXT)
    with server.client() as client:
        answer = client.completions.create(model="demo", prompt=ids, max_tokens=len(ids), logprobs=2, stream=stream)
        choices = [c for chunk in answer for c in chunk.choices] if stream else answer.choices
    assert "".join(choice.text for choice in choices) == TEXT
    logprobs = [choice.logprobs for choice in choices if choice.logprobs]
    assert [value for part in logprobs for value in part.token_logprobs] == [formula(i) for i in ids]
    tokens = [token for part in logprobs for token in part.tokens]
    assert tokens == [TOKENIZER.decode([i], skip_special_tokens=False) for i in ids]
    offsets = [offset for part in logprobs for offset in part.text_offset]
    assert offsets == [len(TOKENIZER.decode(ids[:i]).rstrip("\ufffd")) for i in range(len(ids))]


def test_the_token_that_ends_an_answer_has_its_entry(server):
    for extra, text in (({}, TEXT), ({"skip_special_tokens": False}, TEXT),
                        ({"include_stop_str_in_output": True, "skip_special_tokens": False}, TEXT + "<|end|>")):
        answer = documents(server, "completions", {"logprobs": 0, "return_token_ids": True, **extra})
        choice = Choice(answer, 0)
        assert choice.text == text
        assert choice.reasons == [("stop", None)]
        assert choice.ids == [*ids_of(TEXT), EOS]
        assert [entry[0] for entry in choice.entries][-1] == "<|end|>"
        assert choice.offsets[-1] == len(TEXT)
        assert answer[0]["usage"]["completion_tokens"] == len(choice.ids)


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_can_be_named_by_their_ids(server, stream):
    extra = {"return_tokens_as_token_ids": True, "return_token_ids": True, **ON}
    choice = Choice(documents(server, "chat", {**logprobs_of("chat", 2), **extra}, stream), 0)
    for token, entry in zip(choice.ids, choice.entries, strict=True):
        assert entry[0] == f"token_id:{token}" and bytes(entry[2]).decode() == entry[0]
        assert [t["token"] for t in entry[4]] == [f"token_id:{token}", f"token_id:{(token + 1) % VOCABULARY}"]
    choice = Choice(documents(server, "completions", {**logprobs_of("completions", 2), **extra}, stream), 0)
    for token, entry in zip(choice.ids, choice.entries, strict=True):
        assert entry[0] == f"token_id:{token}" and list(entry[2]) == [
            f"token_id:{token}", f"token_id:{(token + 1) % VOCABULARY}"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_chosen_tokens_are_reported(server, api, stream):
    wanted = list(range(100, 227))
    extra = {**logprobs_of(api, 0), "logprob_token_ids": wanted, "return_token_ids": True,
             "return_tokens_as_token_ids": True, **ON}
    choice = Choice(documents(server, api, extra, stream), 0)
    assert choice.ids
    for token, entry in zip(choice.ids, choice.entries, strict=True):
        names = [t["token"] for t in entry[4]] if api == "chat" else list(entry[2])
        expected = [token, *(i for i in wanted if i != token)]
        assert names == [f"token_id:{i}" for i in expected]


def test_prompt_logprobs(server):
    ids = ids_of(TEXT)

    def check(positions, prompt, count):
        assert positions[0] is None and len(positions) == len(prompt)
        for token, position in zip(prompt[1:], positions[1:], strict=True):
            assert next(iter(position)) == str(token)
            assert len(position) == max(count, 1)
            assert position[str(token)] == {"logprob": formula(token), "rank": 1,
                                            "decoded_token": TOKENIZER.decode([token], skip_special_tokens=False)}

    for count in (0, 1, 20):
        answer = documents(server, "completions", {"prompt": ids, "prompt_logprobs": count, "n": 2})[0]
        for choice in answer["choices"]:
            check(choice["prompt_logprobs"], ids, count)
            assert choice["logprobs"] is None
        answer = documents(server, "chat", {"prompt_logprobs": count, "return_token_ids": True, "n": 2,
                                            "nvext": {"extra_fields": ["prompt_logprobs"]}})[0]
        check(answer["prompt_logprobs"], answer["prompt_token_ids"], count)
        assert answer["nvext"]["prompt_logprobs"] == answer["prompt_logprobs"]
        assert all("prompt_logprobs" not in choice for choice in answer["choices"])
    assert "prompt_logprobs" not in json.dumps(documents(server, "chat", {"prompt_logprobs": 0}, stream=True))
    # The engine allows 20; asked for the whole vocabulary it refuses, and so it is told.
    assert "20" in refused(server, "chat", {"prompt_logprobs": -1}, None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompt", [TEXT, ids_of(TEXT), [TEXT, "hello"], [ids_of(TEXT), ids_of("hello")]])
def test_echo(server, prompt, stream):
    prompts = [TEXT, "hello"] if isinstance(prompt[0], list | str) and not isinstance(prompt, str) else [TEXT]
    extra = {"prompt": prompt, "echo": True, "max_tokens": 5, "n": 2}
    plain = documents(server, "completions", extra, stream)
    told = documents(server, "completions", {**extra, "logprobs": 2, "return_token_ids": True}, stream)
    for i in range(2 * len(prompts)):
        text = prompts[i // 2]
        ids = ids_of(text)
        choice = Choice(told, i)
        whole = [*ids, *choice.ids]
        assert choice.text == Choice(plain, i).text == text + TOKENIZER.decode(choice.ids)
        assert len(choice.entries) == len(whole)
        assert choice.entries[0] == (TOKENIZER.decode(ids[:1]), None, None)
        assert [e[1] for e in choice.entries[1:]] == [formula(token) for token in whole[1:]]
        assert choice.offsets == [len(TOKENIZER.decode(whole[:k]).rstrip("\ufffd")) for k in range(len(whole))]
    completions = sum(len(Choice(told, i).ids) for i in range(2 * len(prompts)))
    if not stream:
        assert told[0]["usage"]["completion_tokens"] == completions


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_can_be_scored_alone(server, stream):
    extra = {"echo": True, "max_tokens": 0, "logprobs": 1, "stream_options": {"include_usage": True} if stream else None}
    answer = documents(server, "completions", extra, stream)
    choice = Choice(answer, 0)
    assert choice.text == TEXT
    assert [entry[1] for entry in choice.entries] == [None, *(formula(i) for i in ids_of(TEXT)[1:])]
    assert choice.reasons == [("length", None)]
    assert answer[-1]["usage"]["completion_tokens"] == 0
    assert answer[-1]["usage"]["prompt_tokens"] == len(ids_of(TEXT))


@pytest.mark.parametrize("stream", [False, True])
def test_chat_echoes_the_assistants_message(server, stream):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "One, "}]
    extra = {"messages": messages, "add_generation_prompt": False, "continue_final_message": True, "max_tokens": 4}
    without = Choice(documents(server, "chat", extra, stream), 0).text
    assert Choice(documents(server, "chat", {**extra, "echo": True}, stream), 0).text == "One, " + without
    other = {**extra, "messages": messages[:1], "echo": True}
    assert not Choice(documents(server, "chat", other, stream), 0).text.startswith("hi" + "hi")


def test_token_ids_of_streams_come_with_their_text(server):
    chunks = documents(server, "chat", {"return_token_ids": True, "n": 2, **ON}, stream=True)
    first = [next(c for c in chunks if c["choices"][0]["index"] == i) for i in range(2)]
    assert first[0]["prompt_token_ids"] == first[1]["prompt_token_ids"]
    assert all("prompt_token_ids" not in chunk for chunk in chunks if chunk not in first)
    chunks = documents(server, "completions", {"return_token_ids": True, **ON}, stream=True)
    assert [c["choices"][0].get("prompt_token_ids") for c in chunks] == [ids_of(TEXT), *[None] * (len(chunks) - 1)]
    held = b""
    for chunk in chunks:
        choice = chunk["choices"][0]
        held += TOKENIZER.decode(choice["token_ids"]).encode()
        assert choice["text"] == TOKENIZER.decode(choice["token_ids"]), "no part of a character is told about"


def test_nvext_repeats_what_is_selected(server):
    fields = {"nvext": {"extra_fields": ["completion_token_ids", "stop_reason", "timing", "made_up"]}, "stop": STOP}
    folded = documents(server, "completions", fields)[0]
    chunks = documents(server, "completions", fields, stream=True)
    ids = [i for chunk in chunks for i in chunk.get("nvext", {}).get("completion_token_ids", [])]
    assert folded["nvext"] == {"completion_token_ids": ids, "stop_reason": STOP}
    assert len(ids) == folded["usage"]["completion_tokens"]
    assert [c["nvext"].get("stop_reason") for c in chunks if "nvext" in c][-1] == STOP
    assert "token_ids" not in folded["choices"][0]


@pytest.mark.parametrize(("api", "extra", "param"), [
    ("chat", {"logprobs": 5}, "logprobs"),
    ("chat", {"top_logprobs": 3}, "top_logprobs"),
    ("chat", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ("chat", {"logprob_token_ids": [1]}, "logprob_token_ids"),
    ("chat", {"logprobs": True, "logprob_token_ids": [VOCABULARY]}, "logprob_token_ids"),
    ("chat", {"logprobs": True, "logprob_token_ids": []}, "logprob_token_ids"),
    ("chat", {"logprobs": True, "logprob_token_ids": list(range(129))}, "logprob_token_ids"),
    ("chat", {"prompt_logprobs": -2}, "prompt_logprobs"),
    ("chat", {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ("chat", {"n": 2, "nvext": {"extra_fields": ["completion_token_ids"]}}, "nvext.extra_fields"),
    ("completions", {"logprobs": 21}, "logprobs"),
    ("completions", {"logprobs": True}, "logprobs"),
    ("completions", {"logprobs": -1}, "logprobs"),
    ("completions", {"logprob_token_ids": [1]}, "logprob_token_ids"),
    ("completions", {"logprobs": 1, "echo": True, "logprob_token_ids": [1]}, "logprob_token_ids"),
    ("completions", {"prompt_logprobs": -1, "stream": True}, "prompt_logprobs"),
    ("completions", {"max_tokens": 0}, "max_tokens"),
    ("chat", {"max_tokens": 0, "echo": True}, "max_tokens"),
])
def test_what_cannot_be_is_refused_by_name(server, api, extra, param):
    refused(server, api, extra, param)


def test_min_tokens_and_special_tokens_keep_their_entries(server):
    extra = {"min_tokens": 10, "stop": STOP, "logprobs": 0, "return_token_ids": True, "max_tokens": 30,
             "skip_special_tokens": False, **ON}
    for stream in (False, True):
        choice = Choice(documents(server, "completions", extra, stream), 0)
        assert len(choice.ids) > 10 and len(choice.entries) == len(choice.ids)
        assert STOP in choice.text, "the first one came too early to end anything"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stream", [False, True])
def test_an_end_of_sequence_inside_the_output_ends_nothing(launcher, tmp_path, backend, stream):
    canvas = [*ids_of("one"), EOS, *ids_of(" two"), EOS, EOS]
    script = tmp_path / "canvas.jsonl"
    script.write_text(json.dumps(canvas) + "\n")
    engine = launcher.mock_engine("--reply", f"script:{script}", "--speedup-ratio", "0", model="demo", backend=backend)
    serve = launcher.serve([engine], backend=backend, model_path=FOLDER)
    extra = {"max_tokens": len(canvas), "logprobs": 0, "return_token_ids": True, **ON}
    choice = Choice(documents(serve, "completions", extra, stream), 0)
    assert choice.ids == canvas and len(choice.entries) == len(canvas)
    assert choice.text == "one two"
    shown = Choice(documents(serve, "completions", {**extra, "skip_special_tokens": False}, stream), 0)
    assert shown.text == "one<|end|> two<|end|><|end|>"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", ["logprobs-null", "logprobs-empty", "logprobs-short"])
def test_an_engine_that_leaves_entries_out_fails_the_request(launcher, backend, fault):
    engine = launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", "--fault", fault, model="demo",
                                  backend=backend)
    serve = launcher.serve([engine], backend=backend, model_path=FOLDER)
    for api in ("chat", "completions"):
        for stream in (False, True):
            answer = serve.post(path_of(api), body_of(api, {**logprobs_of(api, 1), **ON}, stream))
            if answer.status_code != 200:
                assert answer.status_code == 502, answer.text
                error = answer.json()["error"]
            else:
                assert stream and answer.text.endswith("data: [DONE]\n\n")
                error = json.loads(answer.text.split("\n\n")[-3].removeprefix("data: "))["error"]
            assert error["code"] == "engine_protocol_error"
        assert len(Choice(documents(serve, api, {"return_token_ids": True, **ON}), 0).ids) == 24, "not asked for"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", ["logprob-nan", "logprob-unsampled"])
def test_one_missing_value_shifts_nothing(launcher, backend, fault):
    engine = launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", "--vocab-size", VOCABULARY,
                                  "--fault", f"{fault}:3", model="demo", backend=backend)
    serve = launcher.serve([engine], backend=backend, model_path=FOLDER)
    # The gRPC interface sends the token's own value beside its distribution.
    missing = {3} if fault == "logprob-nan" or backend == "vllm-http" else set()
    told = 0
    for api in ("chat", "completions"):
        for stream in (False, True):
            choice = Choice(documents(serve, api, {**logprobs_of(api, 2), "return_token_ids": True, **ON}, stream), 0)
            told += len(missing)
            assert len(choice.entries) == len(choice.ids) == 24
            for i, (token, entry) in enumerate(zip(choice.ids, choice.entries, strict=True)):
                alternatives = entry[4] if api == "chat" else entry[2]
                assert entry[1] == (-9999.0 if i in missing else formula(token))
                assert (len(alternatives) == 0) == (i in missing)
            assert serve.metrics().value(METRIC) == told
    if missing:
        assert "no finite log-probability" in serve.process.log_text()


@pytest.mark.parametrize(("params", "warnings", "entries"), [
    ({"logprobs": "many", "prompt_logprobs": -5}, 2, 0),
    ({"logprobs": -1}, 1, 0),
    ({"logprobs": 2, "prompt_logprobs": 0}, 0, 2),
])
def test_defaults_of_the_server(launcher, params, warnings, entries):
    engine = launcher.mock_engine("--reply", "echo", "--speedup-ratio", "0", model="demo")
    serve = launcher.serve([engine], "--default-sampling-params", json.dumps(params), model_path=FOLDER)
    answer = documents(serve, "chat", {"max_tokens": 3})[0]
    logprobs = answer["choices"][0]["logprobs"]
    assert (len(logprobs["content"][0]["top_logprobs"]) if logprobs else 0) == entries
    assert ("prompt_logprobs" in answer) == (params.get("prompt_logprobs") == 0)
    assert documents(serve, "chat", {"max_tokens": 3, "logprobs": False})[0]["choices"][0]["logprobs"] is None
    documents(serve, "chat", {"max_tokens": 3}, stream=True)
    assert serve.process.log_text().count("is no count of log-probabilities") == warnings
