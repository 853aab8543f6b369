"""The program in front of simulated SGLang engines, in both ways of streaming."""

import pytest
from fairlead.launcher import ROOT

FOLDER = str(ROOT / "share/demo")
PROMPT = [5, 6, 7, 8]
MODES = {"cumulative": ["--no-incremental-streaming-output"], "incremental": ["--incremental-streaming-output"]}


@pytest.fixture(params=sorted(MODES))
def mode(request):
    return MODES[request.param]


@pytest.fixture
def start(mock_engine, serve):
    """Factory: an engine and a frontend before it."""
    def factory(*flags, server_flags=()):
        engine = mock_engine("--vocab-size", "2612", "--eos-token-id", "2607", *flags, model="demo",
                             backend="sglang")
        server = serve([engine], *server_flags, backend="sglang", model_path=FOLDER)
        server.wait_model("demo")
        return engine, server

    return factory


def ids_of(server, **body):
    response = server.post("/v1/completions", {"model": "demo", "prompt": PROMPT, "return_token_ids": True, **body})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


def test_answers_and_streams_agree(start, mode):
    _, server = start("--speedup-ratio", 0, "--reply", "echo", *mode)
    with server.client() as client:
        answer = client.completions.create(model="demo", prompt=PROMPT, max_tokens=6)
        assert answer.usage.prompt_tokens == 4
        assert answer.usage.completion_tokens == 6 or answer.choices[0].finish_reason == "stop"
        stream = client.completions.create(model="demo", prompt=PROMPT, max_tokens=6, stream=True)
        assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text != ""
        chat = client.chat.completions.create(model="demo", max_tokens=5, temperature=0,
                                              messages=[{"role": "user", "content": "Hello there"}])
        assert chat.choices[0].message.content
        parts = client.chat.completions.create(model="demo", max_tokens=5, temperature=0, stream=True,
                                               messages=[{"role": "user", "content": "Hello there"}])
        assert "".join(c.choices[0].delta.content or "" for c in parts) == chat.choices[0].message.content


def test_batches_of_tokens(start, mode):
    _, server = start("--speedup-ratio", 0, "--reply", "echo", "--stream-interval", 3, *mode)
    whole = ids_of(server, max_tokens=4)
    assert whole["token_ids"] == ids_of(server, max_tokens=4)["token_ids"]
    assert len(whole["token_ids"]) == 4


def test_stops(start, mode):
    _, server = start("--speedup-ratio", 0, "--reply", "echo", *mode)
    tokens = ids_of(server, max_tokens=4)["token_ids"]
    by_token = ids_of(server, max_tokens=4, stop_token_ids=[tokens[2]])
    assert by_token["finish_reason"] == "stop"
    assert by_token["stop_reason"] == tokens[2]
    assert by_token["token_ids"][:2] == tokens[:2]
    text = ids_of(server, max_tokens=4)["text"]
    by_text = ids_of(server, max_tokens=4, stop=[text[2:3]])
    assert (by_text["text"], by_text["finish_reason"]) == (text[:text.index(text[2:3])], "stop")


def test_logprobs(start, mode):
    _, server = start("--speedup-ratio", 0, "--reply", "echo", *mode)
    choice = ids_of(server, max_tokens=3, logprobs=2, prompt_logprobs=1, return_tokens_as_token_ids=True)
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]
    assert all(-1000 < value <= 0 for value in logprobs["token_logprobs"])
    assert all(len(top) in (2, 3) for top in logprobs["top_logprobs"])
    assert choice["prompt_logprobs"][0] is None
    for token, entry in zip(PROMPT[1:], choice["prompt_logprobs"][1:], strict=True):
        assert str(token) in entry


def test_a_leaving_client_frees_the_engine(start, mode):
    engine, server = start("--speedup-ratio", 0, "--token-interval-ms", 10, "--reply", "echo", *mode)
    with server.client() as client:
        stream = client.completions.create(model="demo", prompt=PROMPT, max_tokens=4000, stream=True,
                                           extra_body={"ignore_eos": True})
        next(stream)
        stream.close()
    engine.wait_idle()
    server.wait_metric("fairlead_frontend_inflight_requests", 0)


def test_cached_tokens_are_told(start):
    _, server = start("--speedup-ratio", 0, "--block-size", 16, "--incremental-streaming-output")
    prompt = list(range(100, 164))
    seen = [server.post("/v1/completions", {"model": "demo", "prompt": prompt, "max_tokens": 2}).json()["usage"]
            for _ in range(2)]
    assert seen[1]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize("dialect", ["sglang-0.5.23", "sglang-0.5.21", "sglang-0.5.19", "sglang-0.5.17", "sglang-0.5.16"])
def test_older_releases(start, dialect):
    _, server = start("--speedup-ratio", 0, "--reply", "echo", "--dialect", dialect)
    assert len(ids_of(server, max_tokens=3)["token_ids"]) == 3
    response = server.post("/v1/completions", {"model": "demo", "prompt": PROMPT, "max_tokens": 2, "seed": 7})
    assert response.status_code == (400 if dialect == "sglang-0.5.16" else 200), response.text


def test_the_probe_tells_what_it_found(start):
    engine, server = start("--incremental-streaming-output", "--kv-events", "127.0.0.1:0")
    server.process.wait_log(
        rf"probed SGLang engine for direct routing endpoint={engine.url} mode=Aggregated model=\S+ kv_event_sources=1 "
        r'sglang_tool_call_parser="[^"]*" sglang_reasoning_parser="[^"]*"')
