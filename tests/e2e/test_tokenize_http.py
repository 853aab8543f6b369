"""`POST /tokenize` and `/detokenize` against the reference libraries on the same files, and against hostile clients."""

import json
import random
import shutil
import signal
import socket

import httpx
import pytest
from fairlead import scaled, wait_until
from fairlead.launcher import ROOT
from tokenizers import Tokenizer

DEMO = ROOT / "share/demo"
PREFIX = "fairlead_frontend_"
BOS = 2608  # one of the demo's special tokens
VOCABULARY = 151_936  # rows of the model; its tokenizer has fewer
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & \"later\" — in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TEXTS = ["", " ", "Hello, world", "Grüße 世界 🎉\u200d\u0301", "<|im_start|>user\nx<|im_end|>", "a\n\n  b\t\"q\\\" \x7f",
         "x" * 3000, "q7Z " * 20_000]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """The tokenizer and template of Qwen3, as a folder that can be served."""
    source = ROOT / "tests/.assets/qwen3"
    assert source.is_dir(), f"{source} is missing: run `tools/install.sh test`"
    folder = tmp_path_factory.mktemp("qwen")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder / name)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 40_960, "vocab_size": VOCABULARY}))
    return folder


@pytest.fixture(scope="module")
def server(module_launcher, qwen):
    engine = module_launcher.mock_engine("--speedup-ratio", "0", "--max-model-len", "2048", model="qwen")
    serve = module_launcher.serve([engine], "--http-body-limit-mb", "4", model_path=qwen)
    serve.engine = engine
    return serve


@pytest.fixture(scope="module")
def reference(qwen):
    return Tokenizer.from_file(str(qwen / "tokenizer.json"))


@pytest.fixture(scope="module")
def chat_reference(qwen):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(qwen))


def answer(server, path, body, status=200):
    got = server.post(path, body)
    assert got.status_code == status, got.text
    return got.json() if status == 200 else got.json()["error"]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_texts_become_the_ids_of_the_reference_and_come_back(server, reference, text):
    expected = reference.encode(text)
    got = answer(server, "/tokenize", {"model": "qwen", "prompt": text, "return_token_strs": True})
    assert got == {"count": len(expected.ids), "max_model_len": 2048, "tokens": expected.ids,
                   "token_strs": [reference.id_to_token(i) for i in expected.ids]}
    assert list(got) == ["count", "max_model_len", "tokens", "token_strs"]
    back = answer(server, "/detokenize", {"model": "qwen", "tokens": got["tokens"]})
    assert back == {"prompt": reference.decode(expected.ids, skip_special_tokens=False)}


def test_any_ids_become_the_text_of_the_reference(server, reference, seed):
    rng = random.Random(seed)
    size = reference.get_vocab_size()
    for count in (1, 2, 3, 10, 1000, 30_000):
        ids = [rng.randrange(size) for _ in range(count)]
        got = answer(server, "/detokenize", {"tokens": ids})
        assert got["prompt"] == reference.decode(ids, skip_special_tokens=False), (seed, ids[:20])
    # Rows of the model that no token uses are no text; behind them there is nothing.
    assert answer(server, "/detokenize", {"tokens": [VOCABULARY - 1, 9707]}) == {"prompt": "Hello"}
    assert answer(server, "/detokenize", {"tokens": [9707, VOCABULARY]}, 400)["param"] == "tokens[1]"


CONVERSATIONS = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 🎉"},
     {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, {"role": "user", "content": "<|im_end|>"}],
    [{"role": "user", "content": "w?"},
     {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "function": {
         "name": "get_weather", "arguments": {"city": "東京"}}}]},
     {"role": "tool", "content": '{"t": 20}'}],
]
OPTIONS = [
    ({}, {"add_generation_prompt": True}),
    ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
    ({"tools": [WEATHER]}, {"add_generation_prompt": True, "tools": [WEATHER]}),
    ({"chat_template_kwargs": {"enable_thinking": False}}, {"add_generation_prompt": True, "enable_thinking": False}),
]


@pytest.mark.parametrize("messages", CONVERSATIONS, ids=range(len(CONVERSATIONS)))
@pytest.mark.parametrize(("fields", "arguments"), OPTIONS, ids=range(len(OPTIONS)))
def test_chats_become_the_ids_of_the_reference(server, chat_reference, messages, fields, arguments):
    text = chat_reference.apply_chat_template(messages, tokenize=False, **arguments)
    expected = chat_reference(text, add_special_tokens=False)["input_ids"]
    got = answer(server, "/tokenize", {"model": "qwen", "messages": messages, **fields})
    assert got["tokens"] == expected
    assert (got["count"], got["token_strs"]) == (len(expected), None)


def test_a_final_message_is_continued(server, chat_reference):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well,"}]
    text = chat_reference.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    got = answer(server, "/tokenize", {"messages": messages, "continue_final_message": True,
                                       "add_generation_prompt": False})
    assert got["tokens"] == chat_reference(text, add_special_tokens=False)["input_ids"]
    assert answer(server, "/tokenize", {"messages": messages, "continue_final_message": True}, 400)["param"] \
        == "continue_final_message"


def test_the_engine_gets_the_ids_that_are_told(server):
    body = {"model": "qwen", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 0}
    told = answer(server, "/tokenize", body)["tokens"]
    asked = server.post("/v1/chat/completions", {**body, "return_token_ids": True}).json()
    assert asked["prompt_token_ids"] == told


def test_special_tokens_are_added_as_asked(launcher, mock_engine, tmp_path):
    folder = tmp_path / "with-bos"
    shutil.copytree(DEMO, folder)
    file = json.loads((folder / "tokenizer.json").read_text())
    token = {"SpecialToken": {"id": "<|system|>", "type_id": 0}}
    sequence = {"Sequence": {"id": "A", "type_id": 0}}
    file["post_processor"] = {
        "type": "TemplateProcessing", "single": [token, sequence], "pair": [token, sequence, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|system|>": {"id": "<|system|>", "ids": [BOS], "tokens": ["<|system|>"]}}}
    (folder / "tokenizer.json").write_text(json.dumps(file))
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    server = launcher.serve([mock_engine(model="demo")], model_path=folder)
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    rendered = "<|user|>Hi<|assistant|>"
    for body, text, added in [
        ({"prompt": "Hi"}, "Hi", True),
        ({"prompt": "Hi", "add_special_tokens": False}, "Hi", False),
        (chat, rendered, False),
        ({**chat, "add_special_tokens": True}, rendered, True),
    ]:
        assert answer(server, "/tokenize", body)["tokens"] == reference.encode(text, add_special_tokens=added).ids
    assert answer(server, "/tokenize", {"prompt": ""})["tokens"] == [BOS]
    assert answer(server, "/detokenize", {"tokens": [BOS, 2607]}) == {"prompt": "<|system|><|end|>"}


@pytest.mark.parametrize(("path", "body", "param"), [
    ("/tokenize", {}, "messages"),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
    ("/tokenize", {"prompt": ["a"]}, "prompt"),
    ("/tokenize", {"prompt": "a", "frobnicate": 1}, "frobnicate"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "chat_template": "{{ 1 }}"}, "chat_template"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": {"chat_template": "x"}},
     "chat_template_kwargs"),
    ("/tokenize", {"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]},
     "tools[0].function"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "1"}, "tokens"),
    ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
    ("/detokenize", {"tokens": [1.5]}, "tokens[0]"),
    ("/detokenize", {"tokens": [1, 2, "3"]}, "tokens[2]"),
    ("/detokenize", {"tokens": [2**63]}, "tokens[0]"),
    ("/detokenize", {"tokens": [2**32]}, "tokens[0]"),
    ("/detokenize", {"tokens": [VOCABULARY]}, "tokens[0]"),
    ("/detokenize", {"tokens": [[1]]}, "tokens[0]"),
    ("/detokenize", {"tokens": [1], "frobnicate": 1}, "frobnicate"),
])
def test_wrong_requests_name_their_field(server, path, body, param):
    error = answer(server, path, body, 400)
    assert error["param"] == param and param in error["message"], error


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_hostile_bodies_are_refused(server, path):
    field = '"prompt":"a"' if path == "/tokenize" else '"tokens":[1]'
    for body in [b"", b"{", b"[]", b"null", b"\xff", b"\x00", f'{{{field}}} x'.encode(), f'{{{field},"x":"\ufffd"'.encode(),
                 b'{"prompt":"\\ud800"}', b'{"prompt":"a\x01"}', b'{"prompt":"\xff"}', b'{"tokens":[1,]}',
                 b'{"tokens":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"tokens":[01]}', b'{"tokens":[1e999]}']:
        answer(server, path, body, 400)
    assert server.post(path, b"{" + field.encode() + b',"x":"' + b"y" * 5_000_000 + b'"}').status_code == 413
    assert server.get(path).status_code == 405
    assert httpx.post(server.base_url + path, content=b"{" + field.encode() + b"}", headers={"content-type": "text/plain"},
                      timeout=scaled(30)).status_code == 415
    assert answer(server, path, {"model": "none", "prompt" if path == "/tokenize" else "tokens":
                                 "a" if path == "/tokenize" else [1]}, 404)["param"] == "model"


def test_one_document_per_request_and_all_are_counted(server):
    before = server.metrics()
    answer(server, "/tokenize", {"prompt": "a"})
    answer(server, "/detokenize", {"tokens": [1]})
    answer(server, "/detokenize", {"tokens": [-1]}, 400)
    after = server.metrics()

    def more(name, **labels):
        return after.value(PREFIX + name, **labels) - before.value(PREFIX + name, **labels)

    assert more("requests_total", endpoint="tokenize", model="qwen", status="success") == 1
    assert more("requests_total", endpoint="detokenize", model="qwen", status="success") == 1
    assert after.value(PREFIX + "requests_total", endpoint="detokenize", model="unknown", status="error") > 0
    assert more("request_duration_seconds_count", model="qwen") == 0
    assert after.value(PREFIX + "inflight_requests") == 0


def send(server, path, body):
    host, port = server.http.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), scaled(30))
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                       % (path.encode(), len(body)) + body)
    return connection


@pytest.fixture
def demo(launcher, mock_engine):
    return lambda *flags: launcher.serve([mock_engine("--speedup-ratio", "0", model="demo")], *flags, model_path=DEMO)


def slow_body(megabytes):
    """One word, which takes longest."""
    return json.dumps({"prompt": " " * (megabytes * 1_000_000)}).encode()


def test_what_nobody_waits_for_is_dropped_and_the_small_pass(demo):
    server = demo()
    connections = [send(server, "/tokenize", slow_body(20)) for _ in range(6)]
    wait_until(lambda: server.metrics().value(PREFIX + "cpu_queue_jobs") > 0, 20, "queued jobs")
    assert answer(server, "/tokenize", {"prompt": "Hello"})["count"] > 0
    for connection in connections:
        connection.close()
    for gauge in ("cpu_queue_jobs", "cpu_running_jobs", "cpu_queue_bytes"):
        server.wait_metric(PREFIX + gauge, 0)
    server.wait_metric(PREFIX + "model_cancellation_total", 6, model="unknown", endpoint="tokenize")
    assert server.post("/tokenize", {"prompt": "word " * 20_000}).status_code == 200


def test_no_more_waits_than_allowed(demo):
    server = demo("--cpu-queue-mb", "1")
    with send(server, "/tokenize", slow_body(40)):
        server.wait_metric(PREFIX + "cpu_running_jobs", 1)
        assert server.post("/tokenize", {"prompt": "word " * 20_000}).status_code == 503
        assert server.post("/detokenize", {"tokens": [1] * 20_000}).status_code == 503


def test_answers_are_bounded(demo):
    server = demo("--http-answer-limit-mb", "1")
    longest = max(range(2607), key=lambda i: len(answer_text(i)))
    assert len(answer_text(longest)) > 8
    for path, body in [("/detokenize", {"tokens": [longest] * 500_000}),
                       ("/tokenize", {"prompt": "a b " * 200_000, "return_token_strs": True})]:
        error = answer(server, path, body, 400)
        assert error["code"] == "answer_too_large", error
    assert server.post("/detokenize", {"tokens": [longest] * 1000}).status_code == 200
    server.wait_metric(PREFIX + "cpu_queue_bytes", 0)


def answer_text(token, reference=Tokenizer.from_file(str(DEMO / "tokenizer.json"))):
    return reference.decode([token], skip_special_tokens=False)


def test_the_drain_ends_what_is_worked_on(demo):
    server = demo("--graceful-shutdown-timeout-secs", "3")
    connections = [send(server, "/tokenize", slow_body(40)) for _ in range(3)]
    wait_until(lambda: server.metrics().value(PREFIX + "cpu_queue_jobs") > 0, 20, "queued jobs")
    server.process.signal(signal.SIGTERM)
    wait_until(lambda: server.get("/health").status_code == 503, 10, "the drain")
    assert server.post("/detokenize", {"tokens": [1]}).status_code == 503
    assert server.process.wait_exit(15) == 0
    assert connections[-1].recv(100).startswith(b"HTTP/1.1 503 ")
    for connection in connections:
        connection.close()
